"""How to install gputop and what an optional part needs: the one place that names the distribution."""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

from gputop.model.text_table import table_rows

DISTRIBUTION = "gputop-tui"
"""The name of the package's metadata; ``gputop`` on the package index is another program."""
CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The folder of the package: of the project as well, where it was not installed from a wheel."""

_THERE = "in a checkout of gputop"


def install(extra: str) -> str:
    """The command that installs one of the extras, for messages."""
    return f"pip install '.[{extra}]' {_THERE}" if _is_checkout() else f"pip install '{DISTRIBUTION}[{extra}]'"


def install_there() -> str:
    """The command that puts gputop on another machine, for messages."""
    return f"pipx install . {_THERE}" if _is_checkout() else f"pipx install {DISTRIBUTION}"


def _is_checkout() -> bool:
    return os.path.exists(os.path.join(CHECKOUT, "pyproject.toml"))


class Extra(Struct, frozen=True):
    """One optional part: the distribution that it needs first, and what it is for."""

    distribution: str
    purpose: str


EXTRAS: Mapping[str, Extra] = {
    name: Extra(*cells)
    for name, *cells in table_rows("""
    fleet      httpcore                gputop fleet
    export     grpcio                  gputop export --pod-resources
    web        textual-serve           gputop serve
    mcp        mcp                     gputop mcp
    deep       py-spy                  Python stacks in the details of a process
    png        resvg-py                screenshots as PNG
    perf       nvidia-cuda-cupti       SM activity by counters, driver 580 and newer
    perf-cu12  nvidia-cuda-cupti-cu12  SM activity by counters, older drivers
""")
}
"""The extras that people install, by name."""
