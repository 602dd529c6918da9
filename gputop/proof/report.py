"""What `gputop prove` found: as lines for people, as one JSON object to paste, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from gputop import __version__
from gputop.model.sm import MEASURED, SM_SOURCES
from gputop.model.snapshot import GpuSample
from gputop.model.text import terminal_safe
from gputop.proof.experiment import Result, Verdict
from gputop.proof.run import Proof

SCHEMA = 1
_TITLE = 40
HEAD = f"{'':{_TITLE}}{'UTIL':>6}{'SM':>8}{'expected':>11}{'power':>11}"


def headline(gpu: GpuSample, driver: str | None, multiprocessors: int | None, beside: Sequence[str]) -> str:
    """The GPU, and who measures."""
    static = gpu.static
    source = f"SM measured · {SM_SOURCES[gpu.sm_source].label}" if gpu.sm_source in MEASURED else "SM not measured"
    parts = [f"GPU {static.index}  {static.name}"]
    if multiprocessors is not None:
        parts.append(f"{multiprocessors} multiprocessors")
    parts += [
        f"driver {driver or 'unknown'}",
        source,
        f"used by {', '.join(beside)}" if beside else "nobody else on it",
    ]
    return terminal_safe("   ".join(parts))


def row(found: Result) -> str:
    """One stage."""
    stage = found.stage
    expected = "–" if stage.expected_pct is None else f"{stage.expected_pct:.1f}"
    mark = {True: " ✓", False: " ✗", None: "  "}[found.ok]
    sm = (
        f"{found.sm_pct:.1f}"
        if found.sm_pct is not None
        else f"≤{found.util_pct:.0f}"
        if found.util_pct is not None
        else "n/a"
    )
    power = "n/a" if found.power_w is None else f"{found.power_w:.0f} W"
    note = ""
    if stage.kind == "spin" and stage.blocks == 1 and (found.util_pct or 0.0) >= 95.0:
        note = f"   ← nvidia-smi says {found.util_pct:.0f} %"
    elif found.dram_pct is not None and stage.kind == "copy":
        note = f"   DRAM {found.dram_pct:.0f}"
    util = "n/a" if found.util_pct is None else f"{found.util_pct:.0f}"
    return f"{stage.title:{_TITLE}}{util:>6}{sm:>8}{expected:>9}{mark}{power:>11}{note}"


def conclusion(verdict: Verdict) -> list[str]:
    return [
        verdict.words,
        *(
            [f"Likely reason: {verdict.reason}." if verdict.exit_status == 1 else verdict.reason]
            if verdict.reason
            else []
        ),
    ]


def text(proof: Proof, verdict: Verdict) -> str:
    """The whole table."""
    lines = [headline(proof.before, proof.driver, proof.multiprocessors, proof.beside), HEAD]
    lines += [*map(row, proof.results), *conclusion(verdict)]
    return "".join(terminal_safe(line).rstrip() + "\n" for line in lines)


def data(proof: Proof, verdict: Verdict) -> dict[str, Any]:
    """A report to paste: versions, stages, every sample."""
    gpu = proof.before.static
    return {
        "schema": SCHEMA,
        "gputop": __version__,
        "driver": proof.driver,
        "cuda": proof.cuda,
        "gpu": {
            "index": gpu.index,
            "name": gpu.name,
            "architecture": gpu.architecture,
            "multiprocessors": proof.multiprocessors,
            "mig": gpu.mig_parent is not None,
        },
        "sm_source": proof.before.sm_source,
        "beside": len(proof.beside),
        "exit_status": verdict.exit_status,
        "verdict": verdict.words,
        "reason": verdict.reason,
        "stages": to_builtins(proof.results),
    }
