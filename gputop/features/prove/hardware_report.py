"""What somebody's GPU showed, as a file for docs/hardware.md: the card, its driver, and whether the numbers were right.

It names no host, no user and no UUID. Read again it is checked, since such files come from strangers.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from gputop.features.prove.experiment import ProofVerdict
from gputop.features.prove.prove_run import Proof
from gputop.model.quantity import clean_text

KIND: Literal["gputop hardware report"] = "gputop hardware report"
MOST_BYTES, MOST_TEXT = 256 << 10, 200


class ReportedStage(Struct, frozen=True):
    """One stage of the experiment. Percent and watts; None where nothing was measured or expected."""

    title: str
    expected_pct: float | None
    util_pct: float | None
    sm_pct: float | None
    dram_pct: float | None
    power_w: float | None
    ok: bool | None


class ReportedSource(Struct, frozen=True):
    """One source of SM activity, as ``gputop doctor`` tells it."""

    source: str
    ok: bool
    reason: str


class HardwareReport(Struct, frozen=True, forbid_unknown_fields=False):
    """One GPU, seen once. ``exit_status`` is that of ``gputop prove``: 0 right, 1 wrong, 3 not measured."""

    kind: Literal["gputop hardware report"]
    schema: Literal[1]
    gputop: str
    date: str
    gpu: str
    architecture: str | None
    multiprocessors: int
    driver: str | None
    kernel: str
    sm_source: str
    exit_status: Literal[0, 1, 3]
    words: str
    stages: tuple[ReportedStage, ...]
    sources: tuple[ReportedSource, ...] = ()
    by: str = ""


class NoReport(Exception):
    """A file is no hardware report. One line: why."""


def hardware_report(
    proof: Proof, found: ProofVerdict, source_rows: Sequence[Mapping[str, Any]], version: str
) -> dict[str, Any]:
    """The report of an experiment as JSON-able data. ``source_rows`` are doctor's for this GPU."""
    static = proof.before.static
    report = HardwareReport(
        KIND,
        1,
        version,
        time.strftime("%Y-%m-%d", time.gmtime(proof.results[0].samples[0].t if proof.results[0].samples else None)),
        static.name,
        static.architecture,
        proof.multiprocessors,
        static.driver,
        # The release alone: the rest of a kernel's name may be that of whoever built it.
        platform.release().partition("-")[0],
        proof.before.sm_source,
        {0: 0, 1: 1}.get(found.exit_status, 3),  # type: ignore[arg-type]
        found.words,
        tuple(
            ReportedStage(r.stage.title, r.stage.expected_pct, r.util_pct, r.sm_pct, r.dram_pct, r.power_w, r.ok)
            for r in proof.results
        ),
        tuple(ReportedSource(row["rung"], row["ok"], row["reason"]) for row in source_rows if row["rung"] != "none"),
    )
    built: dict[str, Any] = msgspec.to_builtins(report)
    return built


def read_report(data: bytes) -> HardwareReport:
    """A report from a file, its texts made harmless. Raises NoReport."""
    if len(data) > MOST_BYTES:
        raise NoReport(f"no hardware report: it is larger than {MOST_BYTES >> 10} KiB")
    try:
        found = msgspec.json.decode(data, type=HardwareReport)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NoReport(f"no hardware report: {error}") from None
    return msgspec.structs.replace(
        found, **{name: clean_text(value)[:MOST_TEXT] for name in ("gpu", "driver", "kernel", "gputop", "by", "words",
                                                                   "architecture", "date", "sm_source")
                  if (value := getattr(found, name)) is not None},
    )  # fmt: skip
