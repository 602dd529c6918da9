"""The filter language of the process table: ``gpu:3 user:ml mem>10G !state:D name~train "two words"``.

Terms are ANDed, ``!`` negates one, commas inside a value are alternatives, quotes keep spaces. Pure: text in, filter
out. A number that was not measured satisfies neither a comparison nor its negation: it is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct

from gputop.model.metrics import PROCESS_METRICS, PROCESS_STATIC, Unit
from gputop.model.quantity import typed_number
from gputop.model.snapshot import ProcessSample
from gputop.paint.process_columns import COLUMNS

Operator = Literal[":", "~", "=", "!=", "<", ">", "<=", ">="]

MOST_REMEMBERED = 50
QUOTES = "\"'"
LONGEST = 400
"""Characters of a filter; a longer one was pasted by mistake."""
ALIASES = {
    "mem": "gpu_mem_bytes", "host": "rss_bytes", "cpu": "cpu_pct", "time": "gpu_time_pct", "cmd": "command",
    "read": "read_bytes_per_s", "write": "write_bytes_per_s", "age": "age_s", "run": "run_pct", "queue": "wait_pct",
    "wait": "waiting_on", "waits": "waiting_on", "pin": "pin_memory", "throttled": "throttled_pct",
    "treecpu": "tree_cpu_pct", "treehost": "tree_rss_bytes",
}  # fmt: skip
"""Short names → catalogue keys, which are understood as well."""
_NUMBERED = ("gpu", "pid", "ppid", "starttime")
_TERM = r"(?P<field>[A-Za-z_]\w*)(?P<op><=|>=|!=|[:~=<>])"


class FilterError(Exception):
    """What is wrong with a filter, in one line; ``position`` is the offset of the mistake in the text."""

    def __init__(self, text: str, position: int) -> None:
        super().__init__(f"{text} (at character {position + 1})")
        self.position = position
        self._text = text

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle and copy would call the constructor with the finished words alone.
        return type(self), (self._text, self.position)


class Term(Struct, frozen=True):
    """One condition. ``field`` is a catalogue key, ``verdict``, ``name`` or empty (any text of the process).

    ``values`` are alternatives: lower-case texts, or numbers in the catalogue's unit.
    """

    field: str
    operator: Operator
    values: tuple[float | str, ...]
    negated: bool = False

    def holds(self, process: ProcessSample, children: Sequence[ProcessSample], verdict: str) -> bool:
        """Whether it holds for a process; ``children`` are its descendants, ``verdict`` its GPU's in lower case."""
        if isinstance(self.values[0], str):
            return self.holds_for(_texts(self.field, process, children, verdict))
        number = _measured(self.field, process, children)
        if number is None:
            # "Which GPU?" has an answer for a process that uses none: not this one.
            return self.field in _NUMBERED and (self.negated != (self.operator == "!="))
        return self.holds_for(number)

    def holds_for(self, known: float | Sequence[str] | None) -> bool:
        """Whether it holds for a number, or for one of several texts. Nothing holds for None, which is unknown."""
        if known is None:
            return False
        if isinstance(known, (int, float)):
            return any(_COMPARE[self.operator](known, float(value)) for value in self.values) is not self.negated
        return _says(known, self.operator, self.values) is not (self.negated or self.operator == "!=")


class Fields(Struct, frozen=True):
    """What can be asked for: fields with their units (``text`` for texts), other names for them, and some to try."""

    units: Mapping[str, Unit]
    aliases: Mapping[str, str]
    examples: str
    loose: frozenset[str] = frozenset(("verdict",))
    """Texts that match by any of their words."""
    letters: frozenset[str] = frozenset()
    """Texts of one letter: states of a process."""


class Filter(Struct, frozen=True):
    """All terms must hold. Without terms everything matches."""

    text: str = ""
    terms: tuple[Term, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)

    def matches(self, process: ProcessSample, children: Sequence[ProcessSample], verdict_words: str) -> bool:
        """Whether a process passes. ``verdict_words`` are what its GPU's diagnosis says of it, in lower case."""
        return all(term.holds(process, children, verdict_words) for term in self.terms)


NO_FILTER = Filter()


def _equal(a: float, b: float) -> bool:
    # Sizes and shares are compared as they are shown: rounded.
    return a == b or (abs(a) >= 1 and round(a) == round(b))


_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ":": _equal, "=": _equal, "~": _equal, "!=": lambda a, b: not _equal(a, b), "<": lambda a, b: a < b,
    ">": lambda a, b: a > b, "<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b,
}  # fmt: skip


def _says(texts: Sequence[str], operator: Operator, wanted: tuple[float | str, ...]) -> bool:
    """Whether one of the texts says one of what is wanted, which is in lower case.

    ``~`` looks inside the text; ``:`` and ``=`` want all of it or one of its words (``job:8821``).
    """
    for text in texts:
        said = text.lower()
        within: str | list[str] = said if operator == "~" else [said, *said.split()]
        for value in wanted:
            if value in within:
                return True
    return False


def _texts(field: str, p: ProcessSample, children: Sequence[ProcessSample], verdict: str) -> tuple[str, ...]:
    static = p.static
    if field == "":
        return searchable(p)
    if field == "verdict":
        return (verdict,)
    if field == "name":
        return (static.name or "", static.command or "")
    if field == "job":
        return (static.job or "", static.container or "")
    return (str(COLUMNS[field].value(p, children) or ""),)


def _measured(field: str, p: ProcessSample, children: Sequence[ProcessSample]) -> float | None:
    value = COLUMNS[field].value(p, children)
    return None if value is None or isinstance(value, str) else float(value)


def searchable(process: ProcessSample) -> tuple[str, ...]:
    """The texts of a process that a search or a word without a field looks into."""
    s = process.static
    return s.command or "", s.name or "", s.user or "", str(process.pid), s.job or "", s.container or ""


@lru_cache(maxsize=64)
def parse(text: str) -> Filter:
    """The filter of processes that a text means. Raises FilterError with the position of the first mistake."""
    return parse_for(text, process_fields())


def parse_for(text: str, fields: Fields) -> Filter:
    """The filter that a text means, of whatever has these fields. Raises FilterError."""
    if len(text) > LONGEST:
        raise FilterError(f"a filter has at most {LONGEST} characters", LONGEST)
    terms, position = [], 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        term, position = _term(text, position, fields)
        terms.append(term)
    return Filter(text.strip(), tuple(terms))


def _term(text: str, position: int, fields: Fields) -> tuple[Term, int]:
    negated = text[position] == "!"
    begin = position + negated
    named = re.compile(_TERM).match(text, begin)
    if named is None:
        value, end = _value(text, begin, "! needs a term after it" if negated else "a term is missing here")
        return Term("", "~", (value.lower(),), negated), end
    name, operator = named["field"].lower(), named["op"]
    field = _field(name, begin, fields)
    value, end = _value(text, named.end(), f"{name}{operator} needs a value")
    unit = fields.units[field]
    if unit == "text":
        if operator in ("<", ">", "<=", ">="):
            raise FilterError(f"{name} is a text: use {name}:… or {name}~…", begin)
        # A verdict matches by any of its words, however the diagnosis puts them.
        like: Operator = "~" if field in fields.loose and operator == ":" else operator  # type: ignore[assignment]
        quoted = text[named.end()] in QUOTES
        wanted = (value.lower(),) if quoted else _texts_wanted(value, named.end())
        if field in fields.letters and any(len(one) > 1 for one in wanted):
            raise FilterError("state is a process's: R, S, D, Z or T; of a GPU write verdict:starved", begin)
        return Term(field, like, wanted, negated), end
    numbers = tuple(_number(part, unit, named.end()) for part in value.split(","))
    return Term(field, operator, numbers, negated), end  # type: ignore[arg-type]


def _field(name: str, position: int, fields: Fields) -> str:
    field = fields.aliases.get(name, name)
    if field in fields.units:
        return field
    from difflib import get_close_matches

    near = get_close_matches(name, [*fields.aliases, *fields.units], 1)
    hint = f"did you mean {near[0]}?" if near else f"try {fields.examples}"
    raise FilterError(f"there is no field {name}; {hint}", position)


@lru_cache(maxsize=1)
def process_fields() -> Fields:
    """The fields of a process."""
    units = {field: _unit(field) for field in COLUMNS}
    examples = "gpu, user, mem, cpu, name, job, role, state or verdict"
    return Fields({**units, "verdict": "text"}, ALIASES, examples, letters=frozenset(("state",)))


def _unit(field: str) -> Unit:
    known = PROCESS_METRICS.get(field) or PROCESS_STATIC.get(field)
    return (known or PROCESS_METRICS[field.removeprefix("tree_")]).unit


def _value(text: str, begin: int, missing: str) -> tuple[str, int]:
    """A word, or what stands between quotes, and where it ends."""
    if begin >= len(text) or text[begin].isspace():
        raise FilterError(missing, begin)
    quote = text[begin]
    if quote in QUOTES:
        end = text.find(quote, begin + 1)
        if end < 0:
            raise FilterError(f"the quote {quote} is not closed", begin)
        if end == begin + 1:
            raise FilterError(missing, begin)
        return text[begin + 1 : end], end + 1
    end = begin
    while end < len(text) and not text[end].isspace():
        end += 1
    return text[begin:end], end


def _texts_wanted(value: str, position: int) -> tuple[str, ...]:
    wanted = tuple(part for part in value.lower().split(",") if part)
    if not wanted:
        raise FilterError("a value is missing", position)
    return wanted


def _number(text: str, unit: Unit, position: int) -> float:
    try:
        return typed_number(text, unit)
    except ValueError as error:
        raise FilterError(str(error), position) from None


def may_become_field(text: str) -> bool:
    """Whether the last word of a filter that is being typed is the beginning of a field's name, such as ``gp``."""
    fields = process_fields()
    word = text.rpartition(" ")[2].lstrip("!").lower()
    return bool(word) and any(name.startswith(word) for name in (*fields.aliases, *fields.units))


def remembered(history: tuple[str, ...], text: str) -> tuple[str, ...]:
    """A history of filters with one more, newest last, each once, at most MOST_REMEMBERED."""
    text = text.strip()
    if not text:
        return history
    return (*(old for old in history if old != text), text)[-MOST_REMEMBERED:]
