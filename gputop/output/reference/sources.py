"""Where the numbers come from, from the table of SM sources and the catalogue's origins."""

from __future__ import annotations

from gputop.model.sm import SM_SOURCES
from gputop.output.reference.page import Page, Section


def sources_page() -> Page:
    rows = tuple((f"`{name}`", row.works_on, row.asks, row.shown) for name, row in SM_SOURCES.items())
    return Page(
        "Sources",
        (
            "gputop asks NVML and reads /proc, /sys and cgroup files, as the user who runs it. It needs no root, sends "
            "nothing anywhere and writes no file unless asked. `gputop help metrics` names the call or file of each "
            "number.",
            "SM activity has several sources. For each GPU the first that works is used; where it fails the next one "
            "takes over, the chart's line breaks there, and the place is marked. Two sources are never mixed into one "
            "number. `gputop doctor` says for each GPU which of them work, why the others do not, and what to do.",
        ),
        (Section("SM activity", (), ("source", "works on", "what it asks", "shown as"), rows),),
    )
