"""The comparison's results: a table for people, data for machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tests.bench.measure import Results
from tests.bench.workload import Load

REFERENCE = "nvitop"
ROWS = (
    ("first_frame_ms", "first complete frame, ms", 0),
    ("cpu_rest_pct", "CPU at rest, % of a core", 2),
    ("cpu_key_pct", "CPU with a key held at 30/s, %", 2),
    ("key_answer_ms", "answer to a key, ms", 1),
    ("bytes_per_s", "bytes/s to the terminal", 0),
    ("peak_mb", "memory: most resident, MB", 1),
    ("rss_mb", "memory: resident at rest, MB", 1),
    ("pss_mb", "memory: PSS at rest, MB", 1),
    ("private_mb", "memory: private at rest, MB", 1),
    ("nvml_calls_per_s", "NVML calls/s", 1),
    ("once_ms", "print once, ms", 0),
    ("once_cpu_ms", "print once, ms of CPU", 0),
    ("record_pct", "CPU of record, % of a core", 2),
    ("export_pct", "CPU of export, % of a core", 2),
)
BESIDE_A_SCREEN = {"record_pct": "cpu_rest_pct", "export_pct": "cpu_rest_pct"}
"""What the reference does not do, and which of its figures stands beside it: watching, as cheaply as it can."""
LABEL, CELL, RATIO = 32, 26, 10


def ratios(results: Mapping[str, Results]) -> dict[str, dict[str, float]]:
    """Each program's medians divided by the reference's, where both have one, or its nearest one has."""
    medians = {name: {key: f.median for key, f in r.figures().items()} for name, r in results.items()}
    base = medians.pop(REFERENCE, {})
    base |= {key: base[nearest] for key, nearest in BESIDE_A_SCREEN.items() if nearest in base}
    return {
        name: {key: value / base[key] for key, value in row.items() if base.get(key)} for name, row in medians.items()
    }


def as_data(load: Load, results: Mapping[str, Results]) -> dict[str, Any]:
    """The load, and of each program its figures, its ratios to the reference and its trouble."""
    of_reference = ratios(results)
    programs = {
        name: {
            "figures": {key: asdict(spread) for key, spread in result.figures().items()},
            f"ratio_to_{REFERENCE}": of_reference.get(name, {}),
            "trouble": result.trouble,
        }
        for name, result in results.items()
    }
    return {"load": asdict(load), "programs": programs}


def as_table(load: Load, results: Mapping[str, Results]) -> str:
    """One row for each figure, median (lowest–highest) for each program, and gputop's ratio to the reference."""
    ratio = ratios(results).get("gputop", {})
    head = f"{'':{LABEL}}" + "".join(f"{name:>{CELL}}" for name in results)
    lines = [load.title(), head + (f"{'÷ ' + REFERENCE:>{RATIO}}" if ratio else "")]
    columns = [result.figures() for result in results.values()]
    for key, label, decimals in ROWS:
        cells = "".join(f"{column[key].text(decimals) if key in column else '—':>{CELL}}" for column in columns)
        lines.append(f"{label:{LABEL}}{cells}" + (f"{ratio[key]:>{RATIO}.2f}" if key in ratio else ""))
    lines += [f"{name} failed: {result.trouble}" for name, result in results.items() if result.trouble]
    return "\n".join(lines)
