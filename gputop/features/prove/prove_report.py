"""Results of `gputop prove` as text, JSON and picture."""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import to_builtins

from gputop import __version__
from gputop.features.prove.experiment import FULL_UTIL, ProofVerdict, Result
from gputop.features.prove.prove_run import Proof
from gputop.model.clean_text import terminal_safe, wrapped
from gputop.model.sm import MEASURED, SM_SOURCES
from gputop.model.snapshot import GpuSample
from gputop.output.plain_document import text_lines

SCHEMA = 1
WIDTH = 80
"""Columns of the table: fits the narrowest terminal in use, and text that is pasted somewhere."""
_TITLE = 33
_BAR = 25
_LEGEND = (("▇", "gap.sm"), (" SM  ", "dim"), ("▇", "gap.gap"), (" rest of UTIL", "dim"))
_LEGEND_OF_UTIL = (("▇", "gap.unknown"), (" UTIL, SM not measured", "dim"))
HEAD = f"{'':{_TITLE}}{'UTIL':>5}{'SM':>6}{'expected':>9}{'power':>9}"


def headline(
    gpu: GpuSample, driver: str | None, multiprocessors: int | None, other_users: Sequence[str]
) -> list[str]:
    """The GPU and its source of SM activity, in lines."""
    static = gpu.static
    source = (
        f"SM measured · {SM_SOURCES[gpu.sm_source].label}"
        if gpu.sm_source in MEASURED
        else "SM not measured"
    )
    parts = [f"GPU {static.index}  {static.name}"]
    if multiprocessors is not None:
        parts.append(f"{multiprocessors} multiprocessors")
    parts += [
        f"driver {driver or 'unknown'}",
        source,
        f"used by {', '.join(other_users)}" if other_users else "nobody else on it",
    ]
    lines: list[str] = []
    for part in map(terminal_safe, parts):
        if lines and len(lines[-1]) + 3 + len(part) <= WIDTH:
            lines[-1] += f"   {part}"
        else:
            lines.append(part)
    return lines


def row(result: Result) -> str:
    """One stage."""
    stage, util, sm = result.stage, result.util_pct, result.sm_pct
    expected = "–" if stage.expected_pct is None else f"{stage.expected_pct:.1f}"
    mark = {True: " ✓", False: " ✗", None: "  "}[result.ok]
    util_cell = "n/a" if util is None else f"{util:.0f}"
    sm_cell = f"{sm:.1f}" if sm is not None else "n/a" if util is None else f"≤{util:.0f}"
    power = "n/a" if result.power_w is None else f"{result.power_w:.0f} W"
    note = ""
    if stage.kind == "spin" and stage.blocks == 1 and (util or 0.0) >= FULL_UTIL:
        note = f" ← nvidia-smi: {util:.0f}"
    elif result.dram_pct is not None and stage.kind == "copy":
        note = f"   DRAM {result.dram_pct:.0f}"
    return f"{stage.title:{_TITLE}}{util_cell:>5}{sm_cell:>6}{expected:>9}{mark}{power:>7}{note}"


def conclusion(verdict: ProofVerdict) -> list[str]:
    """The verdict and its likely cause, in lines."""
    lines = wrapped(verdict.words, WIDTH)
    if verdict.reason:
        reason = f"Likely reason: {verdict.reason}." if verdict.exit_status == 1 else verdict.reason
        lines += wrapped(reason, WIDTH)
    return lines


def text(proof: Proof, verdict: ProofVerdict) -> str:
    """The whole table."""
    lines = [*headline(proof.at_rest, proof.driver, proof.multiprocessors, proof.other_users), HEAD]
    lines += [*map(row, proof.results), *conclusion(verdict)]
    return text_lines(lines)


def picture(proof: Proof, verdict: ProofVerdict) -> list[tuple[tuple[str, str], ...]]:
    """The table as styled rows, each stage with a bar.

    The bar shows SM activity, and the gap up to utilisation.
    """
    first = headline(proof.at_rest, proof.driver, proof.multiprocessors, proof.other_users)
    rows: list[tuple[tuple[str, str], ...]] = [((line, "value"),) for line in first]
    legend = (
        _LEGEND if any(result.sm_pct is not None for result in proof.results) else _LEGEND_OF_UTIL
    )
    room = _BAR + 2 - sum(len(part) for part, _ in legend)
    rows.append(((" " * (_TITLE + 1), "text"), *legend, (f"{'':{room}}{HEAD[_TITLE:]}", "dim")))
    styles = {"✓": "level.green", "✗": "level.red"}
    for result in proof.results:
        line = terminal_safe(row(result))
        marked = [(part, styles.get(part, "text")) for part in re.split("([✓✗])", line[_TITLE:])]
        rows.append(
            ((line[:_TITLE], "text"), (" ", "text"), *_bar(result), ("  ", "text"), *marked)
        )
    level = {0: "level.green", 1: "level.red"}.get(verdict.exit_status, "level.yellow")
    verdict_rows = len(wrapped(verdict.words, WIDTH))
    words = [terminal_safe(line) for line in conclusion(verdict)]
    return [
        *rows,
        *(((line, level if i < verdict_rows else "text"),) for i, line in enumerate(words)),
    ]


def _bar(result: Result) -> list[tuple[str, str]]:
    """A bar of utilisation with SM activity in its own colour.

    It is grey where SM activity is not measured.
    """
    util = round(_BAR * min(100.0, result.util_pct or 0.0) / 100.0)
    if result.sm_pct is None:
        return [("▇" * util, "gap.unknown"), ("·" * (_BAR - util), "dim")]
    # Anything above 0 must be visible: one multiprocessor of a hundred is less than a cell.
    sm = min(_BAR, max(round(_BAR * result.sm_pct / 100.0), 1 if result.sm_pct >= 0.5 else 0))
    gap = max(0, util - sm)
    return [("▇" * sm, "gap.sm"), ("▇" * gap, "gap.gap"), ("·" * (_BAR - sm - gap), "dim")]


def data(proof: Proof, verdict: ProofVerdict) -> dict[str, Any]:
    """A report to paste: versions, stages, every sample."""
    gpu = proof.at_rest.static
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
        "sm_source": proof.at_rest.sm_source,
        "beside": len(proof.other_users),
        "exit_status": verdict.exit_status,
        "verdict": verdict.words,
        "reason": verdict.reason,
        "stages": to_builtins(proof.results),
    }


_OF_STAGE = ("util_pct", "sm_pct", "dram_pct", "power_w", "ok")


def hardware_report(
    proof: Proof, proof_verdict: ProofVerdict, source_rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The experiment as JSON, with doctor's rows on this GPU."""
    static, samples = proof.at_rest.static, proof.results[0].samples
    return {
        "kind": "gputop hardware report",
        "schema": SCHEMA,
        "gputop": __version__,
        "date": time.strftime("%Y-%m-%d", time.gmtime(samples[0].t if samples else None)),
        "gpu": static.name,
        "architecture": static.architecture,
        "multiprocessors": proof.multiprocessors,
        "driver": static.driver,
        # The release alone: the rest of a kernel's name may name the person who built it.
        "kernel": platform.release().partition("-")[0],
        "sm_source": proof.at_rest.sm_source,
        "exit_status": proof_verdict.exit_status,
        "words": proof_verdict.words,
        "stages": [
            {
                "title": found.stage.title,
                "expected_pct": found.stage.expected_pct,
                **{key: getattr(found, key) for key in _OF_STAGE},
            }
            for found in proof.results
        ],
        "sources": [
            {"source": row["rung"], "ok": row["ok"], "reason": row["reason"]}
            for row in source_rows
            if row["rung"] != "none"
        ],
        "by": "",
    }
