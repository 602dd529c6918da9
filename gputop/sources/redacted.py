"""A source, and what can be asked of its processes, as ``--redact`` shows them."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.model.inspection import (
    DeepLook,
    Environment,
    InspectedProcess,
    ProcessAccess,
    ProcessIdentity,
    SignalOutcome,
    WatchedThreads,
)
from gputop.model.redaction import Redactor
from gputop.model.snapshot import Event, Snapshot
from gputop.model.source import PassingOn, Source

NOT_SHOWN = "an environment names users, hosts and paths: it is not shown with --redact"


class Redacted(PassingOn):
    """Passes on what another source measured, redacted in the polling thread."""

    def __init__(self, source: Source, redactor: Redactor) -> None:
        super().__init__(source)
        self._redactor = redactor

    def passed(self, snapshot: Snapshot) -> Snapshot:
        return self._redactor.snapshot(snapshot)

    @property
    def late(self) -> tuple[Event, ...]:
        """Marks after the last snapshot, as the source has them."""
        return tuple(map(self._redactor.event, getattr(self._source, "late", ())))


class RedactedAccess:
    """Access to live processes without names. Signals are sent as always."""

    def __init__(self, access: ProcessAccess, redactor: Redactor) -> None:
        self._access = access
        self._redactor = redactor

    def send(self, identity: ProcessIdentity, number: int) -> SignalOutcome:
        """As ``ProcessAccess.send``; the reason names nobody."""
        outcome = self._access.send(identity, number)
        return replace(outcome, reason=self._redactor.text(outcome.reason))

    def environment(self, identity: ProcessIdentity) -> Environment:
        """Never shown."""
        return Environment(identity, reason=NOT_SHOWN)

    def look(self, identity: ProcessIdentity, loader: ProcessIdentity | None) -> DeepLook:
        """As ``ProcessAccess.look``, without the command line and with paths as numbers."""
        inspection = self._access.look(identity, loader)
        return DeepLook(
            self._redacted_process(inspection.process),
            inspection.loader and self._redacted_process(inspection.loader),
            note=inspection.note,
            exists=inspection.exists,
        )

    def command(self, identity: ProcessIdentity) -> str:
        """Never given: a redacted screen shows no secrets."""
        return ""

    def watch_threads(self, identity: ProcessIdentity) -> WatchedThreads:
        """As ``ProcessAccess.watch_threads``: threads are named by programs."""
        return self._access.watch_threads(identity)

    def _redacted_process(self, process: InspectedProcess) -> InspectedProcess:
        text = self._redactor.text
        stacks = tuple(
            replace(stack, frames=tuple((name, text(file), line) for name, file, line in stack.frames))
            for stack in process.stacks
        )
        threads = tuple(replace(thread, name=text(thread.name)) for thread in process.threads)
        return replace(process, threads=threads, stacks=stacks, reason=text(process.reason), help=text(process.help))
