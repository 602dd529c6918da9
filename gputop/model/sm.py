"""The sources of SM activity: their names, how they are shown, and which of them measure. Declared here and only here.

A new source is a name and a row here, the rung that reads it, and its place on the ladder.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

SmSource = Literal["gpm", "dcgm-exporter", "dcgmi", "bound", "none"]


class SmSourceRow(Struct, frozen=True):
    """How one source is shown, and what its values are.

    ``measured`` tells a value that was measured from a bound. A ``dcgm`` source gives its values under the names of
    DCGM's fields. Those of a ``slow`` source are means over many seconds and may be old: the header then says so.
    """

    label: str
    measured: bool
    dcgm: bool = False
    slow: bool = False


SM_SOURCES: Mapping[str, SmSourceRow] = MappingProxyType({
    "gpm": SmSourceRow("GPM", measured=True),
    "dcgm-exporter": SmSourceRow("DCGM", measured=True, dcgm=True, slow=True),
    "dcgmi": SmSourceRow("dcgmi", measured=True, dcgm=True),
    "bound": SmSourceRow("bound", measured=False),
    "none": SmSourceRow("none", measured=False),
})  # fmt: skip
"""Every value of ``SmSource``, the best source first."""

MEASURED = frozenset(name for name, row in SM_SOURCES.items() if row.measured)
"""Where an SM activity comes from that was measured, not bounded."""
