"""Redacts a source and the details of its processes (``--redact``)."""

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
    """Redacts another source's snapshots in the polling thread."""

    def __init__(self, source: Source, redactor: Redactor) -> None:
        super().__init__(source)
        self._redactor = redactor

    def passed(self, snapshot: Snapshot) -> Snapshot:
        return self._redactor.snapshot(snapshot)

    @property
    def late(self) -> tuple[Event, ...]:
        """Return the source's marks after the last snapshot, redacted."""
        return tuple(map(self._redactor.event, getattr(self._source, "late", ())))


class RedactedAccess:
    """Access to live processes without names; signals are sent as always."""

    def __init__(self, access: ProcessAccess, redactor: Redactor) -> None:
        self._access = access
        self._redactor = redactor

    def send(self, identity: ProcessIdentity, number: int) -> SignalOutcome:
        """Send a signal; the reason names nobody."""
        outcome = self._access.send(identity, number)
        return replace(outcome, reason=self._redactor.text(outcome.reason))

    def environment(self, identity: ProcessIdentity) -> Environment:
        """Refuse: an environment is never shown."""
        return Environment(identity, reason=NOT_SHOWN)

    def look(self, identity: ProcessIdentity, loader: ProcessIdentity | None) -> DeepLook:
        """Look at a process without command line, with paths as numbers."""
        inspection = self._access.look(identity, loader)
        return DeepLook(
            self._redacted_process(inspection.process),
            inspection.loader and self._redacted_process(inspection.loader),
        )

    def command(self, identity: ProcessIdentity) -> str:
        """Return nothing: a redacted screen shows no secrets."""
        return ""

    def watch_threads(self, identity: ProcessIdentity) -> WatchedThreads | None:
        """Watch the threads, whose names come from programs."""
        return self._access.watch_threads(identity)

    def _redacted_process(self, process: InspectedProcess) -> InspectedProcess:
        text = self._redactor.text
        stacks = tuple(
            replace(
                stack, frames=tuple((name, text(file), line) for name, file, line in stack.frames)
            )
            for stack in process.stacks
        )
        threads = tuple(replace(thread, name=text(thread.name)) for thread in process.threads)
        return replace(
            process,
            threads=threads,
            stacks=stacks,
            reason=text(process.reason),
            help=text(process.help),
        )
