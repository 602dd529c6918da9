"""A filter for everything read from a recording: redaction, a choice of GPUs, or both."""

from __future__ import annotations

from typing import Protocol

from gputop.model.snapshot import Snapshot


class Lens(Protocol):
    """Changes what was recorded on its way to whoever reads it."""

    def snapshot(self, snapshot: Snapshot) -> Snapshot:
        """The frame as it is to be seen."""
        ...

    def text(self, text: str) -> str:
        """Words of an event as they are to be seen."""
        ...
