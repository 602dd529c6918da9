"""Shows secrets on command lines on this machine's own screen (``show_secrets``).

Recordings, pictures and everything sent on use the masked frames.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from gputop.model.inspection import ProcessIdentity
from gputop.model.secret_marks import MASK
from gputop.model.snapshot import ProcessSample
from gputop.monitor import Frame

CommandOf = Callable[[ProcessIdentity], str]
"""The command line of a process of this machine; empty where it cannot be read."""


class Revealed:
    """Replaces masked command lines by the real ones.

    The same frame gives the same object.
    """

    def __init__(self, command_of: CommandOf) -> None:
        self._command_of = command_of
        self._masked: Frame | None = None
        self._shown: Frame | None = None

    def frame(self, masked: Frame) -> Frame:
        """Return the frame to paint."""
        if masked is not self._masked or self._shown is None:
            self._masked = masked
            processes = tuple(map(self._process, masked.snapshot.processes))
            self._shown = replace(masked, snapshot=replace(masked.snapshot, processes=processes))
        return self._shown

    def _process(self, process: ProcessSample) -> ProcessSample:
        if MASK not in (process.static.command or ""):
            return process
        command = self._command_of(ProcessIdentity(process.pid, process.starttime))
        return (
            replace(process, static=replace(process.static, command=command))
            if command
            else process
        )
