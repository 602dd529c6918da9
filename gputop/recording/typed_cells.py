"""What stands in a recording both as a value of several parts and in words: its cell, and the value of older words.

The words are for people and for older versions. Where a recording has them alone, they are taken apart here and nowhere
else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, get_args

from msgspec import Struct

from gputop.model.feeders import NEVER, NOT_A_LOADER, VIAS, MainLooks, Outsider, Rule, WaitEnd, main_looks
from gputop.model.quantity import MOST_TEXT, clean_text
from gputop.model.sm import COUNTERS_DENIED, COUNTERS_RELEASED, LACK_KINDS, LackKind, SmLack
from gputop.model.snapshot import CgroupName

_MOST_PARTS = 64
_MOST_COUNT = 1e8


class TypedColumn(Struct, frozen=True):
    """``words`` is the column with the words, made of the value by the snapshot's property of the same name.

    ``cell`` turns a value into JSON. ``read`` checks a cell, and raises TypeError or ValueError for what cannot be a
    value; ``parsed`` makes what it can of words.
    """

    words: str
    cell: Callable[[Any], Any]
    read: Callable[[Any], Any]
    parsed: Callable[[str], Any]

    def value_of_words(self, words: object) -> Any:
        """What the words of an older recording say. Raises TypeError where they are none."""
        if not isinstance(words, str):
            raise TypeError("words are not a text")
        return self.parsed(clean_text(words))


def _looks_cell(looks: MainLooks) -> dict[str, int]:
    return dict(looks.counts)


def _looks_read(cell: Any) -> MainLooks:
    if not isinstance(cell, dict):
        raise TypeError("looks are not an object")
    return main_looks((state, _whole(count)) for state, count in _few(cell.items()))


def _looks_parsed(words: str) -> MainLooks:
    pairs = (part.partition(" ") for part in words.split(", "))
    return main_looks((state, int(count)) for state, _, count in pairs if count.isdecimal() and len(count) < 4)


def _outsiders_cell(outsiders: tuple[Outsider, ...]) -> list[list[Any]]:
    return [[outsider.user, outsider.name, round(outsider.cpu_pct)] for outsider in outsiders]


def _outsiders_read(cell: Any) -> tuple[Outsider, ...]:
    rows = [(clean_text(user), clean_text(name), _whole(pct)) for user, name, pct in _few(cell)]
    return tuple(Outsider(user, name, float(pct)) for user, name, pct in rows)


def _outsiders_parsed(words: str) -> tuple[Outsider, ...]:
    outsiders = []
    for part in words.split("; "):
        user, _, rest = part.partition(" ")
        name, _, percent = rest.rpartition(" ")
        if name and percent.isdecimal() and len(percent) < 8:
            outsiders.append(Outsider(user, name, float(percent)))
    return tuple(outsiders)


def _ends_cell(ends: tuple[WaitEnd, ...]) -> list[list[Any]]:
    return [[end.via, round(end.pct), list(end.pids), end.detail[:MOST_TEXT]] for end in ends]


def _ends_read(cell: Any) -> tuple[WaitEnd, ...]:
    """A way of a newer version is not known."""
    rows = [
        (via, _whole(pct), tuple(map(_whole, _few(pids))), clean_text(detail)) for via, pct, pids, detail in _few(cell)
    ]
    return tuple(
        WaitEnd(via if via in VIAS else "unknown", float(pct), pids, detail) for via, pct, pids, detail in rows
    )


def _name_cell(name: CgroupName) -> list[str]:
    return [name.kind[:MOST_TEXT], name.id[:MOST_TEXT]]


def _name_read(cell: Any) -> CgroupName:
    kind, number = _few(cell)
    return CgroupName(clean_text(kind), clean_text(number))


def _name_parsed(words: str) -> CgroupName:
    kind, _, number = words.partition(" ")
    return CgroupName(kind, number)


def _lack_cell(lack: SmLack) -> list[Any]:
    return [lack.reasons, lack.fix, lack.kind]


def _lack_read(cell: Any) -> SmLack:
    reasons, fix, kind = cell
    return _lack(tuple(_few(reasons)), fix, kind)


@lru_cache(maxsize=256)
def _lack(reasons: tuple[str, ...], fix: str, kind: Any) -> SmLack:
    """Once for all the frames that say the same. A kind of a newer version is none."""
    return SmLack(tuple(map(clean_text, reasons)), clean_text(fix), kind if kind in LACK_KINDS else None)


@lru_cache(maxsize=256)
def _lack_parsed(words: str) -> SmLack:
    """All reasons as one: where one of them ends is not told by words."""
    kind: LackKind | None = None
    if words.startswith("collecting"):
        kind = "collecting"
    elif COUNTERS_RELEASED in words:
        kind = "released"
    elif COUNTERS_DENIED in words:
        kind = "denied"
    reason, _, fix = words.partition("; ")
    if not (reason and fix):
        reason, fix = words, ""
    return SmLack((reason,), fix, kind)


def rule_in(why: str) -> str | None:
    """The rule behind the words of older recordings."""
    rules: tuple[str, ...] = get_args(Rule)
    return NEVER if why.startswith(NOT_A_LOADER) else next((rule for rule in rules if why.startswith(rule)), None)


def event_parts(kind: str, words: str) -> tuple[int | None, str | None, str | None]:
    """The number of an Xid, a verdict's id and its flag, as the words of an event of this kind say them."""
    if kind == "xid":
        number = re.search(r"\d{1,9}", words, re.ASCII)
        return None if number is None else int(number[0]), None, None
    verdict, _, flag = words.partition(" ") if kind == "verdict" else ("", "", "")
    return None, verdict or None, flag or None


def _few(parts: Any) -> list[Any]:
    listed = list(parts)
    if len(listed) > _MOST_PARTS:
        raise ValueError("too many parts")
    return listed


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value < _MOST_COUNT:
        raise ValueError("not a count")
    return value


TYPED: Mapping[str, TypedColumn] = {
    "sm_lack": TypedColumn("sm_reason", _lack_cell, _lack_read, _lack_parsed),
    "main_looks": TypedColumn("main_waits", _looks_cell, _looks_read, _looks_parsed),
    "waits_for": TypedColumn("held_up_by", _ends_cell, _ends_read, lambda words: None),
    "outsiders": TypedColumn("cpu_outsiders", _outsiders_cell, _outsiders_read, _outsiders_parsed),
    "batch_job": TypedColumn("job", _name_cell, _name_read, _name_parsed),
    "contained_in": TypedColumn("container", _name_cell, _name_read, _name_parsed),
}
"""By the name of the snapshot's field, which is that of the column."""
