"""Opens a recording on a thread, while the screen hears keys."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from msgspec import Struct

from gputop.model.clean_text import terminal_safe
from gputop.session.player import Player
from gputop.system.awaited import Awaited

SOON_S = 0.3
"""A recording that is open within this time needs no words about it."""
MEGABYTE = 1e6


class Opened(Struct, frozen=True):
    """A player of an opened recording, and where that was opened, in words."""

    player: Player
    said: str = ""


class Opening:
    """Runs ``open_player`` on a daemon thread, and says how far it is.

    ``open_player`` gets the function that notes the bytes of text that were read so far.
    """

    def __init__(
        self,
        path: str,
        open_player: Callable[[Callable[[int], None]], Opened],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = terminal_safe(os.path.basename(path) or path)
        self._clock = clock
        self._begun = clock()
        self._bytes_read = 0
        self._worker: Awaited[Opened] = Awaited("opening", lambda: open_player(self._note))
        self._worker.ask()

    def _note(self, bytes_read: int) -> None:
        self._bytes_read = bytes_read

    def words(self) -> str:
        """Return the progress: ``opening r.jsonl: 43 MB of text read, 4 s``."""
        lasts = f"{self._clock() - self._begun:.0f} s"
        if self._bytes_read < MEGABYTE:
            return f"opening {self._name}: {lasts}"
        return f"opening {self._name}: {self._bytes_read / MEGABYTE:.0f} MB of text read, {lasts}"

    async def ended(self, wait_s: float) -> bool:
        """Wait until the recording is open, or cannot be; False after ``wait_s`` seconds."""
        return await self._worker.ended(wait_s)

    def opened(self) -> Opened:
        """Return the player; raises what opening raised."""
        if self._worker.error is not None:
            raise self._worker.error
        assert self._worker.latest is not None
        return self._worker.latest

    def close(self) -> None:
        """Close the recording; a thread that still reads it is left behind."""
        self._worker.stop()
        if self._worker.latest is not None:
            self._worker.latest.player.source.close()
