"""Validate lines of a recording.

msgspec checks types and bounds; ``_checked`` does the rest.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.json import Decoder
from msgspec.structs import astuple, replace

from gputop.model.bounds import Count
from gputop.model.secrets import masked_text
from gputop.model.serving import checked_server
from gputop.model.snapshot import CgroupName, Event, ProcessStatic, Snapshot
from gputop.model.steps import checked_steps
from gputop.recording.format import (
    MOST_COMMAND,
    VERSION,
    Damage,
    Line,
    MachineLine,
    ProcessLine,
    RecordingError,
    RunFacts,
    cleaned,
    is_clean,
)


class OtherFormat(RecordingError):
    """A line of another format than this one.

    ``head`` is its machine line, None where it has another form.
    """

    def __init__(self, version: int, head: MachineLine | None = None) -> None:
        fix = "update gputop to read it" if version > VERSION else "record again"
        super().__init__(f"recorded in format {version}, this gputop reads format {VERSION}: {fix}")
        self.version = version
        self.head = head


class _Head(Struct, rename={"kind": "k"}):
    """Keys that identify a line of another kind or format."""

    kind: str
    version: Count = 0


_LINES = Decoder(Line)
_HEADS = Decoder(_Head)
_KINDS = ("machine", "process", "health", "frame", "event", "run")
NOT_A_LINE = "not a line of a recording"
_FORMAT_1 = "key"
"""The kind of the first line of a recording in format 1."""


def decode_line(line: bytes) -> Line | None:
    """Decode and check one line; None for an unknown kind.

    Raises Damage, and OtherFormat for a line of another format.
    """
    try:
        value: Line = _LINES.decode(line)
    except (DecodeError, ValueError, RecursionError) as error:
        if _is_skipped(line):
            return None
        raise Damage(f"{NOT_A_LINE}: {error}") from error
    if isinstance(value, MachineLine) and value.version != VERSION:
        raise OtherFormat(value.version, value)
    return _checked(value if is_clean(line) else cleaned(value))


def is_sound_frame(line: bytes) -> bool:
    """Return whether a line is a frame that a reader accepts."""
    try:
        return isinstance(decode_line(line), Snapshot)
    except (Damage, RecordingError):
        return False


def _is_skipped(line: bytes) -> bool:
    """Return whether a line is of an unknown kind.

    Raises OtherFormat for a line of another format.
    """
    try:
        head = _HEADS.decode(line)
    except (DecodeError, ValueError, RecursionError):
        return False
    if head.kind == _FORMAT_1:
        raise OtherFormat(1)
    if head.kind == "machine" and head.version > VERSION:
        raise OtherFormat(head.version)
    return head.kind not in _KINDS


def _checked(line: Line) -> Line:
    """Apply checks beyond types and bounds; mask secrets.

    Raises Damage.
    """
    if isinstance(line, Snapshot):
        steps, servers = (
            tuple(map(checked_steps, line.steps)),
            tuple(map(checked_server, line.servers)),
        )
        if None in steps or None in servers:
            raise Damage("steps or servers that cannot be")
        return _masked_frame(
            replace(line, steps=steps, servers=servers) if steps or servers else line
        )
    if isinstance(line, Event):
        return replace(line, text=masked_text(line.text))
    if isinstance(line, MachineLine) and len({gpu.uuid for gpu in line.gpus}) < len(line.gpus):
        # Values of both would be added up as one GPU's.
        raise Damage("two GPUs have one uuid")
    if isinstance(line, ProcessLine):
        return replace(line, static=ProcessStatic(*map(_masked_fact, astuple(line.static))))
    if isinstance(line, RunFacts):
        return replace(line, command=masked_text(line.command)[:MOST_COMMAND])
    return line


_masked_again = lru_cache(maxsize=8192)(masked_text)
"""Cached: most frames repeat their texts, and most processes the facts of others."""


def _masked_frame(frame: Snapshot) -> Snapshot:
    """Mask secrets in notices and wait details.

    Another program may have written these texts.
    """
    if frame.notices:
        frame = replace(frame, notices=tuple(map(_masked_again, frame.notices)))
    details = (end.detail for process in frame.processes for end in process.waits_for or ())
    if any(_masked_again(detail) != detail for detail in details if detail):
        processes = tuple(
            replace(
                p,
                waits_for=tuple(
                    replace(end, detail=_masked_again(end.detail)) for end in p.waits_for
                ),
            )
            if p.waits_for
            else p
            for p in frame.processes
        )
        frame = replace(frame, processes=processes)
    return frame


def _masked_fact(fact: str | int | CgroupName | None) -> Any:
    if isinstance(fact, CgroupName):
        return CgroupName(_masked_again(fact.kind), _masked_again(fact.id))
    return _masked_again(fact) if isinstance(fact, str) else fact
