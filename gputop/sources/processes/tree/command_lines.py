"""Command lines of the processes that a discovery looks at, read as seldom as possible."""

from __future__ import annotations

from msgspec import Struct

from gputop.sources.processes.tree.process_facts import FactsReader
from gputop.sources.processes.tree.process_table import ProcessTable
from gputop.sources.procfs import TICKS_PER_S, Stat

_SETTLED_AGE_S = 10.0
"""A younger process may still be between fork and exec, or about to name itself."""


class _Known(Struct, frozen=True):
    """A command line as last read. It is settled if it was readable and the process no longer young."""

    stat: Stat
    command: bytes
    is_settled: bool
    round: int


class CommandLines:
    """Command lines by process.

    A settled one is read again only if the process has another name; all others once in each discovery. A reused pid
    begins anew.
    """

    def __init__(self, facts: FactsReader) -> None:
        self._facts = facts
        self._known: dict[int, _Known] = {}
        self._round = 0
        self._uptime: float | None = None

    def begin_round(self, uptime: float | None) -> None:
        """Begin a discovery; ``uptime`` is in seconds."""
        self._round += 1
        self._uptime = uptime

    def command_of(self, pid: int, stat: Stat) -> bytes:
        """Return the raw text of a process's command line; empty if it is not readable."""
        known = self._known.get(pid)
        if known is not None and known.stat.starttime != stat.starttime:
            known = None
        if known is not None and known.round == self._round:
            return known.command
        if known is not None and known.is_settled and known.stat.comm == stat.comm:
            return known.command
        return self._read(pid, stat, known)

    def drop_gone(self, table: ProcessTable) -> None:
        """Forget the processes that the table lacks."""
        self._known = {pid: known for pid, known in self._known.items() if table.get(pid)}

    def _read(self, pid: int, stat: Stat, known: _Known | None) -> bytes:
        read = self._facts.command(pid)
        command = read or b""
        if read is None and known is not None:
            # The read blocks for now; what was read before still holds.
            command = known.command
        is_settled = read is not None and self._is_old(stat)
        self._known[pid] = _Known(stat, command, is_settled, self._round)
        return command

    def _is_old(self, stat: Stat) -> bool:
        if self._uptime is None:
            return True
        return self._uptime - stat.starttime / TICKS_PER_S >= _SETTLED_AGE_S
