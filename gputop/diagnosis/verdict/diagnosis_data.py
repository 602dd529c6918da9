"""The diagnosis as JSON, schema 1."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import to_builtins
from msgspec.structs import asdict

from gputop.diagnosis.types import STATES, GpuDiagnosis
from gputop.diagnosis.verdict.summary import summarize
from gputop.model.json_keys import json_keys
from gputop.model.quantity import rounded
from gputop.model.snapshot import GpuSample, Snapshot
from gputop.model.step_pace import StepPace

SCHEMA = 1


STEP_KEYS = (
    "pid", "rank", "gpu", "name", "mean_s", "error_pct", "p99_s", "steps", "steps_per_s", "samples_per_s",
    "tokens_per_s", "mfu_pct", "wait_s",
)  # fmt: skip
BADGE_KEYS = ("id", "level", "title", "evidence", "remedy")


def as_json(
    snapshot: Snapshot,
    diagnoses: Iterable[GpuDiagnosis],
    begin: float,
    steps: Iterable[StepPace] = (),
) -> dict[str, object]:
    """Verdicts and badges at ``snapshot``, the last one.

    ``begin`` is the first one's Unix time. ``steps`` are the paces of the processes that announce their steps, over the
    last minute.
    """
    return {
        "schema": SCHEMA,
        "host": snapshot.machine.hostname,
        "simulated": snapshot.machine.is_simulated,
        "begin": begin,
        "end": snapshot.t,
        "servers": list(map(json_keys, snapshot.servers)),
        "steps": [{key: getattr(pace, key) for key in STEP_KEYS} for pace in steps],
        "gpus": [
            _gpu(gpu, diagnosis) for gpu, diagnosis in zip(snapshot.gpus, diagnoses, strict=True)
        ],
    }


def verdict_data(d: GpuDiagnosis) -> dict[str, object]:
    """A verdict as JSON, for the diagnosis, tickets and alert commands.

    ``charged_s`` of its ``lasted_s`` seconds were wasted, None where nothing was judged.
    """
    f, told = d.feeders, summarize(d)
    return {
        "verdict": d.verdict,
        "title": told.words,
        "level": told.level,
        "state": d.state,
        "busy_not_working": d.busy_not_working,
        "efficiency_pct": None if d.efficiency_pct is None else round(d.efficiency_pct, 1),
        "confidence": d.confidence,
        "window_s": d.window_s,
        "n": d.n,
        "since": told.since,
        "lasted_s": round(told.lasted_s, 3),
        "charged_s": None if told.charged_s is None else round(told.charged_s, 3),
        **rounded(asdict(told.worth), 3),
        "evidence": list(d.evidence),
        "cause": d.cause,
        "uneven": d.uneven,
        "feeders": f
        and {"n": f.count, "busiest": round(100.0 * f.busiest.useful, 1), "kind": f.kind},
        "remedy": d.remedy,
        "notes": list(d.notes),
        "badges": [{key: getattr(badge, key) for key in BADGE_KEYS} for badge in d.badges],
        "role": told.role,
        "number": None if told.number is None else to_builtins(told.number),
        "owner": None if told.owner is None else to_builtins(told.owner),
    }


def _gpu(gpu: GpuSample, d: GpuDiagnosis) -> dict[str, object]:
    seconds = d.seconds or {}
    return {
        "index": d.index,
        "uuid": d.uuid,
        "name": gpu.static.name,
        **verdict_data(d),
        "seconds": {state: round(seconds.get(state, 0.0), 3) for state in STATES},
        "busy_not_working_seconds": {
            verdict: round(s, 3) for verdict, s in (d.causes or {}).items()
        },
        "lost_seconds": {verdict: round(s, 3) for verdict, s in (d.lost or {}).items()},
        "timeline": [
            {"t": t, "verdict": verdict, "busy_not_working": flag}
            for t, verdict, flag in d.timeline
        ],
    }
