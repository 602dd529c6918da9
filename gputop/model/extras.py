"""How to install what an optional part needs: the one place that names the distribution.

The distribution is not published under its name: an extra is installed from a checkout.
"""

from __future__ import annotations

DISTRIBUTION = "gputop-tui"
"""The name of the package's metadata; ``gputop`` on the package index is another program."""


def install(extra: str) -> str:
    """The command that installs one of the extras, for messages."""
    return f"pip install '.[{extra}]' in a checkout of gputop"
