"""What README says that gputop costs beside nvitop, and whether a measurement is far from it."""

from __future__ import annotations

import re
from collections.abc import Mapping

MOST_TIMES = 1.5
"""A ratio so many times README's is a regression. Machines differ by less: both programs are measured on the same one
[judged]."""
MOST_TIMES_OF_A_KEY = 3.0
"""While a key is held nvitop wants a core of its own: where the machine lends it half of one, the ratio doubles."""
ROWS = {
    "first complete frame": "first_frame_ms",
    "CPU at rest": "cpu_rest_pct",
    "CPU while a key is held": "cpu_key_pct",
    "to the terminal": "bytes_per_s",
    "memory (PSS)": "pss_mb",
    "printing once": "once_ms",
}
"""How README's rows begin, and what they are called where they are measured. The answer to a key is not among them: it
takes 2 ms, and a busy machine adds as much."""


def readme_ratios(readme: str) -> dict[str, float]:
    """gputop's figure divided by nvitop's, both with a driver that answers at once, from the table in README.

    Raises LookupError where a row is not there.
    """
    found = {}
    for begin, key in ROWS.items():
        row = next(line for line in readme.splitlines() if line.startswith(f"| {begin}"))
        own, peer = (float(re.findall(r"[\d.]+", cell)[0]) for cell in row.split("|")[2:4])
        found[key] = own / peer
    return found


def regressions(measured: Mapping[str, float], wanted: Mapping[str, float]) -> list[str]:
    """A line for each ratio that was not measured or is too far above the wanted one."""
    said = []
    for key, ratio in wanted.items():
        most = (MOST_TIMES_OF_A_KEY if key == "cpu_key_pct" else MOST_TIMES) * ratio
        if key not in measured:
            said.append(f"{key}: not measured")
        elif measured[key] > most:
            said.append(f"{key}: {measured[key]:.3f} × nvitop's, README says {ratio:.3f}, at most {most:.3f} is taken")
    return said
