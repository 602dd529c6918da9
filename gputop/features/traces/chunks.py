"""Splits a Chrome trace's text into lists of events.

Some megabytes at a time are in memory, for files of any size.

A piece is cut where one event ends and the next begins. The cut is found by its text, and a left part that decodes
proves it: inside a string or a nested list it could not. A piece that does not decode is read by halves; the
events that cannot be read are counted.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

import msgspec

from gputop.features.traces.columns import TraceError
from gputop.features.traces.trace_text import PIECE_BYTES

LARGEST_EVENT = 16 << 20
_EMPTY_TEXT_BYTES = 1 << 20
_LEAST_EVENT_BYTES = 16
"""Profilers write a hundred and more for an event; a megabyte of smaller ones is none of theirs, and takes thirty times
as much memory."""
MOST_NESTED = 10_000
"""Damaged events in a row that may be lists within one event that goes on. More of them are damaged events [judged]."""
_HEAD_LIMIT = 64 << 20
_CLOSE_TRIES, _END_TRIES, _TORN_TRIES = 8, 16, 3

_KEYS = rb'"(?:ph|cat|name|pid|tid|ts|id|args|dur|s|bp)"'
_CUT = re.compile(rb"\}(\s*),(?=\s*\{\s*" + _KEYS + rb"\s*:)")
_ANY_CUT = re.compile(rb"\}(\s*),(?=\s*\{)")
"""Where the next event may begin, if none begins as a profiler's."""
_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_CLOSE = re.compile(rb'\}(\s*)\](?=\s*(?:,\s*"\w+"\s*:|\}\s*\Z|\Z))')
_NO_NUMBER = re.compile(rb"(?:-nan|-NaN|-inf|-Infinity|nan|NaN|inf|Infinity)(?:\.0)?(?=\s*[,}\]])")
_BEFORE_A_NUMBER = b":[, "
_BETWEEN = b", \r\n\t"

T = TypeVar("T")
Decode = Callable[[bytes], list[T]]


class EventText:
    """Events of a trace's text, and the text around them.

    ``head`` and ``tail`` are before and after the list of events.

    ``dropped`` counts events that could not be read, ``truncated`` says that the list has no end.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self.head = b""
        self.tail = b""
        self.dropped = 0
        self.truncated = False

    def lists(self, decode: Decode[T]) -> Iterator[list[T]]:
        """Lists of decoded events. Raises TraceError where the text holds no list of events."""
        text = self._open()
        for piece in self._pieces:
            text += piece
            _refuse_empty(text)
            if len(text) >= PIECE_BYTES and (cut := _last_cut(text)) is not None:
                part, rest = text[: cut.start() + 1], b""
                events = _decoded(part, decode)
                if events is None and (closed := self._closed(text, decode)) is not None:
                    yield closed
                    self._read_tail()
                    return
                if events is None:
                    events, rest = self._salvaged(part, decode)
                yield events
                text = (rest + text[cut.start() + 1 :]).lstrip(_BETWEEN)
            if len(text) >= LARGEST_EVENT:
                raise TraceError("holds an event that is larger than any that a profiler writes")
        yield self._last(text, decode)

    def _open(self) -> bytes:
        """The text after the opening bracket of the list of events."""
        text = b""
        for piece in self._pieces:
            text += piece
            start = text[:256].lstrip(b"\xef\xbb\xbf \t\r\n")
            if start[:1] == b"[":
                return text[text.index(b"[") + 1 :]
            if start and start[:1] != b"{":
                raise TraceError("is not JSON: a trace is the .json or .json.gz file of a profiler")
            match = _LIST.search(text)
            if match:
                self.head = text[: match.start()]
                return text[match.end() :]
            if len(text) > _HEAD_LIMIT:
                break
        if not text.strip():
            raise TraceError("is empty")
        raise TraceError(
            "holds no traceEvents: a trace is what torch.profiler's export_chrome_trace writes"
        )

    def _read_tail(self) -> None:
        for piece in self._pieces:
            if len(self.tail) < _HEAD_LIMIT:
                self.tail += piece

    def _closed(self, text: bytes, decode: Decode[T]) -> list[T] | None:
        """Events up to the list's end in this text.

        The text after it becomes the tail.
        """
        end = _end(text)
        # Where the metadata goes on beyond this text, an end cannot be recognised by what follows it.
        for match in [end] if end is not None else islice(_CLOSE.finditer(text), _CLOSE_TRIES):
            events = _decoded(text[: match.start() + 1], decode)
            if events is not None:
                self.tail = text[match.end() :]
                return events
        return None

    def _last(self, text: bytes, decode: Decode[T]) -> list[T]:
        """Events of the rest of a file.

        They end with the list, or with the file.
        """
        _refuse_empty(text)
        stripped = text.strip()
        if stripped.startswith(b"]"):
            self.tail = stripped[1:]
            return []
        end = _end(text)
        self.truncated = end is None
        if end is not None:
            text, self.tail = text[: end.start() + 1], text[end.end() :]
        events = _decoded(text, decode)
        if events is None:
            events, rest = self._salvaged(text, decode)
            # The last event of a file that was cut off is not damaged.
            self.dropped += bool(rest) and not self.truncated
        return events

    def _salvaged(self, text: bytes, decode: Decode[T]) -> tuple[list[T], bytes]:
        """Events that decode in a text with damage, and the text after them.

        The rest is the begin of an event that goes on; its lists may look like the begin of others.
        """
        text = _repaired(text)
        cuts = [match.start() + 1 for match in _CUT.finditer(text)]
        for end in (len(text), *cuts[: -_TORN_TRIES - 1 : -1]):
            if (events := _decoded(text[:end].strip(_BETWEEN), decode)) is not None:
                return events, text[end:].strip(_BETWEEN)
        bounds = [0, *cuts, len(text)]
        salvaged: list[T] = []
        lost = end = 0
        # By halves: all that is whole is decoded in a few large pieces.
        waiting = [(0, len(bounds) - 1)]
        while waiting:
            first, last = waiting.pop()
            events = _decoded(text[bounds[first] : bounds[last]].strip(_BETWEEN), decode)
            if events is not None:
                salvaged += events
                self.dropped += lost
                lost, end = 0, bounds[last]
            elif last - first > 1:
                middle = (first + last) // 2
                waiting += [(middle, last), (first, middle)]
            else:
                lost += 1
        if lost > MOST_NESTED:
            self.dropped += lost
            return salvaged, b""
        return salvaged, text[end:].strip(_BETWEEN)


def _repaired(text: bytes) -> bytes:
    """Replace NaN, infinities and bytes that are not UTF-8."""

    def number(match: re.Match[bytes]) -> bytes:
        return b"null" if text[match.start() - 1] in _BEFORE_A_NUMBER else match[0]

    text = _NO_NUMBER.sub(number, text)
    return text.decode("utf-8", "replace").encode()


def _end(text: bytes) -> re.Match[bytes] | None:
    """Find the end of the list of events.

    Of the last candidates it is the first one followed by the rest of an object.

    Lists inside of events look alike, but the rest of an event is followed by more events; lists in the metadata do
    too, but come later.
    """
    places = deque(_CLOSE.finditer(text), maxlen=_END_TRIES)
    return next((match for match in places if _is_rest(text[match.end() :])), None)


def _is_rest(text: bytes) -> bool:
    """Whether a text may follow the list of events.

    That is nothing, or the end of the object around the list.
    """
    text = text.strip()
    if not text:
        return True
    try:
        msgspec.json.decode(b"{" + _repaired(text.removeprefix(b",")))
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _refuse_empty(text: bytes) -> None:
    """Raise TraceError for a long text whose events hold next to nothing."""
    if len(text) >= _EMPTY_TEXT_BYTES and text.count(b"}") * _LEAST_EVENT_BYTES > len(text):
        raise TraceError("holds empty events by the million, as no profiler writes them")


def _last_cut(text: bytes) -> re.Match[bytes] | None:
    """The last place between two events, looked for from the end in windows that grow.

    Where none begins as a profiler's, it is one that begins in any way.
    """
    return _last_match(_CUT, text) or _last_match(_ANY_CUT, text)


def _last_match(pattern: re.Pattern[bytes], text: bytes) -> re.Match[bytes] | None:
    width = 1 << 16
    while True:
        begin = max(0, len(text) - width)
        last = None
        for match in pattern.finditer(text, begin):
            last = match
        if last is not None or begin == 0:
            return last
        width *= 8


def _decoded(text: bytes, decode: Decode[T]) -> list[T] | None:
    try:
        return decode(b"[" + text + b"]")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def framing(head: bytes, tail: bytes) -> dict[str, Any]:
    """Values of the object around the list of events.

    Unreadable parts are left out.
    """
    values: dict[str, Any] = {}
    for text in (head.rstrip().rstrip(b",") + b"}", b"{" + tail.lstrip().lstrip(b",")):
        try:
            part = msgspec.json.decode(_repaired(text))
        except (msgspec.DecodeError, RecursionError):
            continue
        if isinstance(part, dict):
            values.update(part)
    return values
