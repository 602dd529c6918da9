"""Runs cases beside the real program, replays what it recorded, and says what it said of each job and when."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
from pathlib import Path

from msgspec import Struct

from gputop.diagnosis.types import GpuDiagnosis
from gputop.monitor import Frame, Monitor
from gputop.recording.reader import read_snapshots
from tests.e2e.case import CALM, Case
from tests.e2e.machine import ROOT, Machine
from tests.nvml.stand_in import Scenario

WATCH_S = 42.0
"""How long a group is watched: jobs begin to train within some seconds, and a verdict has 30 s from there."""
FIRST_S = 30.0
"""The first right verdict has so long from the first kernel on, and as long as ``CHANGE_S`` after a change."""
CHANGE_S = 20.0
CROWDED_S = 60.0
"""How long a group is watched on a machine that others crowd: there it must become right, however late."""
START_S = 6.0
"""A job that imports a framework begins to train so long after its start [measured]."""
SLACK_S = 4.0
"""What two busy cores may cost beside: starting, sampling, and the last tick [measured]."""


class Result(Struct, frozen=True):
    """What was said of one job. ``first_s`` counts from its first kernel, or from the change of its cause."""

    name: str
    wanted: str
    got: str
    cause: str
    feeders: str
    first_s: float | None
    flaps: int
    problems: tuple[str, ...]
    evidence: tuple[str, ...] = ()
    """What was said in the end, after what was said when."""


def run_group(cases: dict[str, Case], library: Path, *, calm: bool = True) -> list[Result]:
    """Run these cases at once. Raises AssertionError when a job or the program itself ends.

    Where the machine is not ``calm``, a job and the program come late to what they do: only what is said is judged.
    """
    change_s = max(case.change_s for case in cases.values())
    longest_s = max(case.watch_s or WATCH_S for case in cases.values())
    seconds = longest_s if not change_s else change_s + CHANGE_S + SLACK_S + START_S
    seconds = seconds if calm else max(seconds, CROWDED_S)
    with tempfile.TemporaryDirectory(prefix="gputop-e2e-") as made:
        directory = Path(made)
        scenario = Scenario(directory, library, gpus=len(cases))
        with Machine(directory, scenario, cases) as machine:
            recording = directory / "watched.jsonl"
            command = [
                sys.executable,
                "-m",
                "gputop",
                "record",
                "--for",
                f"{seconds:.0f}s",
                "-o",
                str(recording),
            ]
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=scenario.environment(),
                capture_output=True,
                text=True,
                timeout=seconds + 30.0,
            )
            dead, said = machine.dead_jobs(), machine.log
        assert not dead, f"{', '.join(dead)}: {said[-4000:]}"
        assert done.returncode == 0, done.stderr
        monitor = Monitor(1.0)
        # On a crowded machine a stand-in GPU may answer late: a snapshot without it says nothing of its job.
        frames = [
            monitor.feed(s) for s in read_snapshots(str(recording)) if len(s.gpus) == len(cases)
        ]
    return [
        judged(name, case, place, frames, calm=calm)
        for place, (name, case) in enumerate(cases.items())
    ]


def judged(name: str, case: Case, place: int, frames: list[Frame], *, calm: bool = True) -> Result:
    """One job against what its case asks for; in time as well, where the machine is ``calm``."""
    begun = next(
        (f.snapshot.t for f in frames if (f.snapshot.gpus[place].util_pct or 0.0) > 0.0), None
    )
    if begun is None and frames:
        # A job that never gets so far holds the GPU all the same.
        index = frames[-1].snapshot.gpus[place].static.index
        begun = next(
            (f.snapshot.t for f in frames if any(p.gpu == index for p in f.snapshot.processes)),
            None,
        )
    if begun is None:
        return Result(
            name, "/".join(case.verdict), "", "", "", None, 0, ("its GPU never ran a kernel",)
        )
    said = [(f.snapshot.t - begun, f.diagnoses[place]) for f in frames if f.snapshot.t >= begun]
    last = said[-1][1]
    wanted = case.then or case.verdict
    since = case.change_s if case.then else 0.0
    first = next((t - since for t, d in said if t >= since and d.verdict in wanted), None)
    flaps = _flaps(said, case)
    problems = [*_wrong(case, last, wanted), *(_times(case, said, first) if calm else ())]
    if flaps:
        problems.append(f"{flaps} flaps")
    # Of a GPU that idled until its first kernel that is still shown then.
    told = itertools.dropwhile(lambda at: at[1].verdict == "idle", said)
    accused = {d.verdict for _, d in told} - case.only if case.only else set()
    if accused:
        problems.append(f"accused: {', '.join(sorted(accused))}")
    named = {d.cause for _, d in said if d.cause in case.never}
    if named:
        problems.append(f"named: {', '.join(sorted(filter(None, named)))}")
    feeders = "" if last.feeders is None else f"{last.feeders.count} {last.feeders.kind}"
    words = (_course(said), *last.evidence, *last.notes)
    return Result(
        name, "/".join(wanted), last.verdict, last.cause or "", feeders, first, flaps, tuple(problems), words
    )  # fmt: skip


def _course(said: list[tuple[float, GpuDiagnosis]]) -> str:
    """What was said when: ``0 s startup, 15 s dataloader_cpu``."""
    changes = [
        (t, d.verdict)
        for i, (t, d) in enumerate(said)
        if not i or said[i - 1][1].verdict != d.verdict
    ]
    return ", ".join(f"{t:.0f} s {verdict}" for t, verdict in changes)


def _wrong(case: Case, last: GpuDiagnosis, wanted: tuple[str, ...]) -> list[str]:
    found = []
    if last.verdict not in wanted:
        found.append(f"said {last.verdict}")
    elif not case.then:
        if case.cause and last.cause not in case.cause:
            found.append(f"cause {last.cause}, wanted {'/'.join(case.cause)}")
        if case.uneven is not None and last.uneven != case.uneven:
            found.append("even" if case.uneven else "uneven")
        seen = 0 if last.feeders is None else last.feeders.count
        if seen < case.feeders:
            found.append(f"{seen} of {case.feeders} feeders")
        text = " ".join((*last.evidence, *last.notes, last.remedy)).lower()
        found += [f"does not say {words!r}" for words in case.says if words.lower() not in text]
    return found


def _times(case: Case, said: list[tuple[float, GpuDiagnosis]], first: float | None) -> list[str]:
    limit = (CHANGE_S if case.then else FIRST_S) + SLACK_S
    limit = max(limit, case.watch_s or 0.0)
    late = [f"right after {first:.0f} s"] if first is not None and first > limit else []
    if case.then and not any(
        d.verdict in case.verdict for t, d in said if t < case.change_s + CHANGE_S
    ):
        late.append(f"never said {'/'.join(case.verdict)} before its cause changed")
    return late


def _flaps(said: list[tuple[float, GpuDiagnosis]], case: Case) -> int:
    """Changes of the verdict, beyond what must be: the first right one, the change of a cause, and what leads there.

    A GPU that idles until its first kernel and a cause that is not seen at first are no flaps, and between two causes
    "collecting" is right: the old verdict is not shown as current.
    """
    waiting = {"collecting", "startup", "idle", "starved_unattributed"} - set(case.verdict)
    shown = [d.verdict for _, d in said if d.verdict not in waiting]
    changes = sum(1 for a, b in itertools.pairwise(shown) if a != b and not {a, b} <= CALM)
    return max(0, changes - (1 if case.then else case.changes))
