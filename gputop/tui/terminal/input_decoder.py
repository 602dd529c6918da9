"""Terminal input: keys, pastes and answers to queries.

Imports nothing of Textual.

Textual's parser runs the rest of a paste that contains ESC as keys, loses every key after a paste without an end, and
takes the answer to a colour query for keys.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder

from msgspec import Struct

PASTE_BEGIN, PASTE_END = "\x1b[200~", "\x1b[201~"
MOST_PASTED = 65_536
"""Characters of one paste that are kept; the rest is dropped."""
LONGEST_REPLY = 128
QUERY_BACKGROUND = b"\x1b]11;?\x07"
"""OSC 11: asks for the background colour."""
_REPLY = re.compile(r"\x1b\](?P<text>[^\x07\x1b]*)(?:\x07|\x1b\\)")
_BACKGROUND = re.compile(r"11;rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Paste(Struct, frozen=True):
    """Pasted text without control characters."""

    text: str


class InputDecoder:
    """Splits terminal input into keys and pastes."""

    def __init__(self) -> None:
        # Noise on a line, or a pasted file, is not UTF-8: such bytes are dropped.
        self._decode = getincrementaldecoder("utf-8")("ignore").decode
        self._held = ""
        """The beginning of a sequence whose rest has not come yet."""
        self._pasted: str | None = None
        self.is_light: bool | None = None
        """Whether the terminal's background is light; None until the terminal has answered."""

    @property
    def is_waiting(self) -> bool:
        """Whether ``flush`` is due unless more comes soon."""
        return bool(self._held) or self.is_pasting

    @property
    def is_pasting(self) -> bool:
        """Whether a paste has begun and not ended."""
        return self._pasted is not None

    def feed(self, data: bytes) -> list[str | Paste]:
        """Return the parts of the input that are complete, in order."""
        text, self._held = self._held + self._decode(data), ""
        parts: list[str | Paste] = []
        while text:
            text = (
                self._take_paste(text, parts)
                if self._pasted is not None
                else self._take_keys(text, parts)
            )
        return parts

    def flush(self) -> list[str | Paste]:
        """Give up on an unfinished sequence; return its beginning."""
        held, self._held = self._held, ""
        if self._pasted is None:
            return [held] if held else []
        pasted, self._pasted = self._pasted, None
        return [Paste(_CONTROL.sub("", pasted))]

    def _take_keys(self, text: str, parts: list[str | Paste]) -> str:
        """Take text up to a paste or reply; return the rest."""
        begin, reply = text.find(PASTE_BEGIN), text.find("\x1b]")
        if reply >= 0 and (begin < 0 or reply < begin):
            _add(parts, text[:reply])
            return self._take_reply(text[reply:], parts)
        if begin >= 0:
            _add(parts, text[:begin])
            self._pasted = ""
            return text[begin + len(PASTE_BEGIN) :]
        kept = _overlap(text, PASTE_BEGIN)
        self._held = text[len(text) - kept :]
        _add(parts, text[: len(text) - kept])
        return ""

    def _take_reply(self, text: str, parts: list[str | Paste]) -> str:
        """Take an answer of the terminal (OSC); return the rest."""
        if (match := _REPLY.match(text)) is not None:
            if (colour := _BACKGROUND.match(match["text"])) is not None:
                red, green, blue = (
                    int(part, 16) / (16 ** len(part) - 1) for part in colour.groups()
                )
                self.is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.5
            return text[match.end() :]
        if len(text) <= LONGEST_REPLY and "\x1b" not in text[2:-1]:
            self._held = text
            return ""
        # No reply: Alt and a bracket.
        _add(parts, text[:2])
        return text[2:]

    def _take_paste(self, text: str, parts: list[str | Paste]) -> str:
        """Take text up to the paste's end; return the rest."""
        assert self._pasted is not None
        end = text.find(PASTE_END)
        if end < 0:
            kept = _overlap(text, PASTE_END)
            self._held = text[len(text) - kept :]
            self._pasted = (self._pasted + text[: len(text) - kept])[:MOST_PASTED]
            return ""
        parts.append(Paste(_CONTROL.sub("", self._pasted + text[:end])[:MOST_PASTED]))
        self._pasted = None
        return text[end + len(PASTE_END) :]


def _add(parts: list[str | Paste], text: str) -> None:
    if text:
        parts.append(text)


def _overlap(text: str, sequence: str) -> int:
    """Return how many last characters may begin a sequence."""
    return next((n for n in range(len(sequence) - 1, 0, -1) if text.endswith(sequence[:n])), 0)
