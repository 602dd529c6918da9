"""``--redact`` of the command line: one redactor for everything that a command shows or writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gputop.config import Settings

if TYPE_CHECKING:
    from gputop.model.redaction import Redactor
    from gputop.model.snapshot import Snapshot
    from gputop.model.source import MarkedSource, Source

    S = TypeVar("S", Source, MarkedSource)


def redactor_of(settings: Settings) -> Redactor | None:
    """A new redactor where the user asked for one."""
    if not settings.redact:
        return None
    from gputop.model.redaction import Redactor

    return Redactor()


def redacted_source(source: S, redactor: Redactor | None) -> S:
    """The source, redacted where that was asked for."""
    if redactor is None:
        return source
    from gputop.sources.redacted import Redacted

    return Redacted(source, redactor)  # type: ignore[return-value]


def redacted_snapshot(snapshot: Snapshot, redactor: Redactor | None) -> Snapshot:
    """The snapshot, redacted where that was asked for."""
    return snapshot if redactor is None else redactor.snapshot(snapshot)
