"""The comparison's results: a table, data, and whether they are far from what docs/design/speed.md says."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gputop.sources.nvml.gpm import CLOSEST_PAIR_S
from tests.bench.measure import Results
from tests.bench.workload import Load

REFERENCE = "nvitop"
ONE_GPU_AT_REST = "cpu_rest_one_pct"
"""CPU at rest where there is one GPU with one process: what a tick costs before there is anything to read."""
ROWS = (
    ("first_frame_ms", "first complete frame, ms", 0),
    ("demo_ms", "first picture of the demo, ms", 0),
    ("cpu_rest_pct", "CPU at rest, % of a core", 2),
    ("cpu_key_pct", "CPU with a key held at 30/s, %", 2),
    ("key_answer_ms", "answer to a key, ms", 1),
    ("bytes_per_s", "bytes/s to the terminal", 0),
    ("peak_mb", "memory: most resident, MB", 1),
    ("pss_mb", "memory: PSS at rest, MB", 1),
    ("nvml_calls_per_s", "NVML calls/s", 1),
    ("once_ms", "print once, ms", 0),
    ("once_cpu_ms", "print once, ms of CPU", 0),
    ("record_pct", "CPU of record, % of a core", 2),
)
MOST_CALLS = 1.15
"""NVML calls a second, beside the reference's: 1.06 with one GPU and one process, those for health included."""
BESIDE_A_SCREEN = {"record_pct": "cpu_rest_pct"}
"""What the reference does not do, and which of its figures stands beside it: watching, as cheaply as it can."""
LABEL, CELL, RATIO = 32, 26, 10


def ratios(results: Mapping[str, Results]) -> dict[str, dict[str, float]]:
    """Each program's medians divided by the reference's, where both have one, or its nearest one has."""
    medians = {
        name: {key: f.median for key, f in r.figures().items()} for name, r in results.items()
    }
    base = medians.pop(REFERENCE, {})
    base |= {key: base[nearest] for key, nearest in BESIDE_A_SCREEN.items() if nearest in base}
    return {
        name: {key: value / base[key] for key, value in row.items() if base.get(key)}
        for name, row in medians.items()
    }


def as_table(load: Load, results: Mapping[str, Results]) -> str:
    """One row for each figure, median (lowest–highest) for each program, and gputop's ratio to the reference."""
    ratio = ratios(results).get("gputop", {})
    head = f"{'':{LABEL}}" + "".join(f"{name:>{CELL}}" for name in results)
    lines = [load.title(), head + (f"{'÷ ' + REFERENCE:>{RATIO}}" if ratio else "")]
    columns = [result.figures() for result in results.values()]
    for key, label, decimals in ROWS:
        cells = "".join(
            f"{column[key].text(decimals) if key in column else '—':>{CELL}}" for column in columns
        )
        lines.append(
            f"{label:{LABEL}}{cells}" + (f"{ratio[key]:>{RATIO}.2f}" if key in ratio else "")
        )
    lines += [
        f"{name} failed: {result.trouble}" for name, result in results.items() if result.trouble
    ]
    return "\n".join(lines)


# What docs/design/speed.md says that gputop costs beside nvitop, and whether a measurement is far from it.

MOST_TIMES = 1.5
"""A ratio so many times the page's is a regression. Machines differ by less: both programs are measured on the same one
[judged]."""
MORE_TIMES = {"cpu_key_pct": 3.0, "once_ms": 2.5}
"""While a key is held nvitop wants a core of its own: where the machine lends it half of one, the ratio doubles. And
of printing once a tenth of a second is left to compare, a few runs of which differ by half."""
ONCE_WINDOW_MS = 1000.0 * CLOSEST_PAIR_S
"""So long gputop waits between its two looks on any machine: only the rest of printing once is compared."""
WRITTEN_ROWS = {
    "first complete frame": "first_frame_ms",
    "CPU at rest": "cpu_rest_pct",
    "the same with one GPU": ONE_GPU_AT_REST,
    "CPU while a key is held": "cpu_key_pct",
    "to the terminal": "bytes_per_s",
    "memory (PSS)": "pss_mb",
    "printing once": "once_ms",
}
"""How the page's rows begin, and what they are called where they are measured. The answer to a key is not among them:
it takes some milliseconds, and a busy machine adds as much."""


def written_ratios(page: str) -> dict[str, float]:
    """gputop's figure divided by nvitop's, both with a driver that answers at once, from a page's table.

    Raises LookupError where a row is not there.
    """
    own, peer = {}, {}
    for begin, key in WRITTEN_ROWS.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| {begin}"))
        own[key], peer[key] = (
            float(re.findall(r"[\d.]+", cell)[0]) for cell in row.split("|")[2:4]
        )
    return compared(own, peer)


def compared(own: Mapping[str, float], peer: Mapping[str, float]) -> dict[str, float]:
    """gputop's figures divided by nvitop's, of all rows for which both have one."""
    return {
        key: (own[key] - (ONCE_WINDOW_MS if key == "once_ms" else 0.0)) / peer[key]
        for key in WRITTEN_ROWS.values()
        if key in own and peer.get(key)
    }


def regressions(measured: Mapping[str, float], wanted: Mapping[str, float]) -> list[str]:
    """A line for each ratio that was not measured or is too far above the wanted one."""
    said = []
    for key, ratio in wanted.items():
        most = MORE_TIMES.get(key, MOST_TIMES) * ratio
        if key not in measured:
            said.append(f"{key}: not measured")
        elif measured[key] > most:
            said.append(
                f"{key}: {measured[key]:.3f} × nvitop's, speed.md says {ratio:.3f}, at most {most:.3f} is fine"
            )
    return said
