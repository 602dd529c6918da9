"""What docs/design/speed.md says that gputop costs beside nvitop, and whether a measurement is far from it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gputop.sources.nvml.gpm import CLOSEST_PAIR_S

MOST_TIMES = 1.5
"""A ratio so many times the page's is a regression. Machines differ by less: both programs are measured on the same one
[judged]."""
MORE_TIMES = {"cpu_key_pct": 3.0, "once_ms": 2.5}
"""While a key is held nvitop wants a core of its own: where the machine lends it half of one, the ratio doubles. And
of printing once a tenth of a second is left to compare, a few runs of which differ by half."""
ONCE_WINDOW_MS = 1000.0 * CLOSEST_PAIR_S
"""So long gputop waits between its two looks on any machine: only the rest of printing once is compared."""
ROWS = {
    "first complete frame": "first_frame_ms",
    "CPU at rest": "cpu_rest_pct",
    "CPU while a key is held": "cpu_key_pct",
    "to the terminal": "bytes_per_s",
    "memory (PSS)": "pss_mb",
    "printing once": "once_ms",
}
"""How the page's rows begin, and what they are called where they are measured. The answer to a key is not among them:
it takes 2 ms, and a busy machine adds as much."""


def written_ratios(page: str) -> dict[str, float]:
    """gputop's figure divided by nvitop's, both with a driver that answers at once, from a page's table.

    Raises LookupError where a row is not there.
    """
    own, peer = {}, {}
    for begin, key in ROWS.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| {begin}"))
        own[key], peer[key] = (float(re.findall(r"[\d.]+", cell)[0]) for cell in row.split("|")[2:4])
    return compared(own, peer)


def compared(own: Mapping[str, float], peer: Mapping[str, float]) -> dict[str, float]:
    """gputop's figures divided by nvitop's, of all rows for which both have one."""
    return {
        key: (own[key] - (ONCE_WINDOW_MS if key == "once_ms" else 0.0)) / peer[key]
        for key in ROWS.values()
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
            said.append(f"{key}: {measured[key]:.3f} × nvitop's, speed.md says {ratio:.3f}, at most {most:.3f} is fine")
    return said
