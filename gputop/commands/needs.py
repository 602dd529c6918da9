"""What a command needs before it runs, said in the command's own file as ``NEEDS``."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Needs(Struct, frozen=True):
    """What has to be there. The command line checks it, so that every command fails in the same words."""

    output: Literal["stdout", "terminal", "nothing"] = "stdout"
    """Where the result goes: ``stdout`` must be open; a ``terminal`` is asked for by the screen itself."""
    configuration: bool = True
    """Whether the configuration is read first. Without it the command works while the file is wrong."""
