"""The benchmark's results: a table for people, JSON for machines."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tests.bench.measure import Figures
from tests.bench.workload import Load

ROWS = (
    ("first_frame_ms", "first complete frame, ms (median)", 0),
    ("first_frame_low_ms", "  fastest", 0),
    ("first_frame_high_ms", "  slowest", 0),
    ("cpu_rest_pct", "CPU at rest, % of a core", 2),
    ("cpu_key_pct", "CPU with a key held at 30/s, %", 2),
    ("key_answer_ms", "answer to a key, ms (median)", 1),
    ("key_answer_worst_ms", "  slowest", 1),
    ("bytes_per_s", "bytes/s to the terminal", 0),
    ("peak_rss_mb", "peak memory, MB", 1),
    ("nvml_calls_per_s", "NVML calls/s", 1),
    ("once_ms", "print once, ms (median)", 0),
    ("once_cpu_ms", "  CPU, ms", 0),
)


def as_data(load: Load, results: Mapping[str, Figures], reference: str = "nvitop") -> dict[str, Any]:
    """Setting, figures and each program's ratio to the reference."""
    figures = {name: asdict(row) for name, row in results.items()}
    base = figures.get(reference, {})
    ratios = {
        name: {key: value / base[key] for key, value in row.items() if value is not None and base.get(key)}
        for name, row in figures.items()
        if base and name != reference
    }
    machine = {"cpus": os.cpu_count(), "kernel": platform.release(), "python": sys.version.split()[0]}
    return {"machine": machine, "load": asdict(load), "programs": figures, "ratio_to_" + reference: ratios}


def as_table(load: Load, results: Mapping[str, Figures], reference: str = "nvitop") -> str:
    """One row for each figure, one column for each program, and gputop's ratio to the reference."""
    data = as_data(load, results, reference)
    ratios = data["ratio_to_" + reference].get("gputop", {})
    title = (
        f"{load.gpus} GPUs × {load.processes_per_gpu} processes, every {load.interval_s:g} s, "
        f"{load.latency_ms:g} ms added to each NVML call"
    )
    head = f"{'':36}" + "".join(f"{name:>12}" for name in results) + (f"{'÷ ' + reference:>12}" if ratios else "")
    lines = [title, head]
    for key, label, decimals in ROWS:
        cells = [data["programs"][name][key] for name in results]
        text = "".join(f"{'—' if cell is None else f'{cell:,.{decimals}f}':>12}" for cell in cells)
        lines.append(f"{label:36}{text}" + (f"{ratios[key]:>12.2f}" if key in ratios else ""))
    return "\n".join(lines)
