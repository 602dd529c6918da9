"""One language for what is to hold: filters of processes and of a fleet's rows, and the conditions of alerts. Pure.

    expression = terms {"or" terms}
    terms      = term {"and" term}
    term       = ["!"] (name operator value {"," value} | "some text" | word)
    operator   = ":" | "~" | "=" | "==" | "!=" | "<" | ">" | "<=" | ">="

``!`` negates a term, commas are alternatives, quotes keep spaces. What may be asked for is a ``Vocabulary``, and what a
term says of something is up to the caller: it hands the numbers or texts in. A value that was not measured satisfies
neither a comparison nor its negation: it is unknown.

There are two ways of writing it. A *search* (a filter) is a list of words, all of which must hold: spaces separate
terms, so that none stands beside an operator, and a word without an operator is looked for as it is, ``and`` and ``or``
too. A *condition* is a sentence: ``and`` and ``or`` join its terms, ``and`` binding tighter, spaces mean nothing, and a
word without an operator is the name of a value that only one field has (``ecc`` for ``badge:ecc``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any, Literal, NoReturn

from msgspec import Struct

from gputop.model.metrics import Unit
from gputop.model.quantity import typed_number

Operator = Literal[":", "~", "=", "!=", "<", ">", "<=", ">="]

LONGEST = 400
"""Characters of an expression; a longer one was pasted by mistake."""
QUOTES = "\"'"
_NAMED = r"(?P<name>[A-Za-z_]\w*)%s(?P<operator><=|>=|!=|==|[:~=<>])"
_NAME = r"[A-Za-z_]\w*"
_NONE: Mapping[str, Any] = {}


class ExpressionError(Exception):
    """What is wrong with an expression, in one line; ``position`` is the offset of the mistake in the text."""

    def __init__(self, text: str, position: int) -> None:
        super().__init__(text, position)
        self.position = position

    def __str__(self) -> str:
        return f"{self.args[0]} (at column {self.position + 1})"


class Vocabulary(Struct, frozen=True):
    """What can be asked for, and the words for what cannot.

    ``units``: each field's unit, ``text`` for texts. ``ids``: the values of texts that are one of a list. ``loose``
    texts match by any of their words. ``hints`` are said of a value that is not in its field's list, ``otherwise``
    of a name that resembles none, ``not_comparable`` of names that exist and cannot be asked for.
    """

    what: str
    units: Mapping[str, Unit]
    otherwise: str
    aliases: Mapping[str, str] = _NONE
    ids: Mapping[str, Sequence[str]] = _NONE
    hints: Mapping[str, str] = _NONE
    not_comparable: Mapping[str, str] = _NONE
    loose: frozenset[str] = frozenset()
    is_condition: bool = False

    @property
    def kinds(self) -> str:
        """What a name may be, in words: ``field``, or ``badge, verdict, state or value``."""
        return f"{', '.join(self.ids)} or value" if self.is_condition else "field"


class Term(Struct, frozen=True):
    """One comparison. ``field`` is empty for any text. ``values`` are alternatives: lower-case texts, or numbers in the
    field's unit.
    """

    field: str
    operator: Operator
    values: tuple[float | str, ...]
    negated: bool = False

    def holds_for(self, value: float | Sequence[str] | None, exactly: bool = False) -> bool | None:
        """Whether it holds for a number, or for one of several texts; None where that is not known.

        Numbers are equal as they are shown, rounded, unless ``exactly`` is asked for.
        """
        if value is None:
            return None
        if isinstance(value, (int, float)):
            holds = any(_compares(self.operator, value, float(bound), exactly) for bound in self.values)
        else:
            holds = _says(value, self.operator, self.values) is not (self.operator == "!=")
        return holds is not self.negated


class Expression(Struct, frozen=True):
    """Alternatives, one of which must hold with all of its terms. Without terms everything passes."""

    text: str = ""
    alternatives: tuple[tuple[Term, ...], ...] = ((),)

    def __bool__(self) -> bool:
        return any(self.alternatives)

    @property
    def terms(self) -> tuple[Term, ...]:
        return tuple(term for terms in self.alternatives for term in terms)

    def holds(self, answer: Callable[[Term], bool | None]) -> bool | None:
        """Whether it holds, given what each term says; None where that depends on something that is not known."""
        holds: bool | None = False
        for terms in self.alternatives:
            parts = [answer(term) for term in terms]
            if False in parts:
                continue
            if None not in parts:
                return True
            holds = None
        return holds


def parse_expression(text: str, vocabulary: Vocabulary) -> Expression:
    """The expression that a text means in a vocabulary. Raises ExpressionError with the place of the first mistake."""
    if len(text) > LONGEST:
        raise ExpressionError(f"a {vocabulary.what} has at most {LONGEST} characters", LONGEST)
    alternatives = _Parser(text, vocabulary).alternatives()
    # What a condition says stands in lists and messages: its spaces mean nothing.
    return Expression(" ".join(text.split()) if vocabulary.is_condition else text.strip(), alternatives)


def nearest(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """A hint for a name that does not exist, to be put after a message: the one that it resembles most, if any."""
    from difflib import get_close_matches

    # The dashes of options do not count as similarity.
    plain = {name.lstrip("-"): name for name in names}
    near = get_close_matches(name.lstrip("-"), list(plain), 1)
    return f"; did you mean {plain[near[0]]}?" if near else f"; {otherwise}" if otherwise else ""


_ORDERS = {"<": lt, ">": gt, "<=": le, ">=": ge}


def _compares(operator: Operator, a: float, b: float, exactly: bool) -> bool:
    if operator in _ORDERS:
        return bool(_ORDERS[operator](a, b))
    is_equal = a == b or (not exactly and abs(a) >= 1 and round(a) == round(b))
    return is_equal is not (operator == "!=")


def _says(texts: Sequence[str], operator: Operator, wanted_texts: tuple[float | str, ...]) -> bool:
    """Whether one of the texts says one of what is wanted, which is in lower case.

    ``~`` looks inside the text; ``:`` and ``=`` want all of it or one of its words (``job:8821``).
    """
    for text in texts:
        lower = text.lower()
        within: str | list[str] = lower if operator == "~" else [lower, *lower.split()]
        for value in wanted_texts:
            if value in within:
                return True
    return False


class _Parser:
    """One text, read from left to right."""

    def __init__(self, text: str, vocabulary: Vocabulary) -> None:
        self._text, self._vocabulary = text, vocabulary
        self._named = re.compile(_NAMED % (r"\s*" if vocabulary.is_condition else ""))
        self._at = 0

    def alternatives(self) -> tuple[tuple[Term, ...], ...]:
        alternatives: list[list[Term]] = [[]]
        joined = self._vocabulary.is_condition
        while self._skip_spaces():
            alternatives[-1].append(self._term())
            if not joined or not self._skip_spaces():
                joined = False
                continue
            begin, word = self._at, self._word()
            if word.lower() not in ("and", "or"):
                raise ExpressionError(f"'and' or 'or' is missing before {word}", begin)
            if word.lower() == "or":
                alternatives.append([])
        if joined:
            raise ExpressionError(f"a {self._vocabulary.kinds} is missing", len(self._text))
        return tuple(map(tuple, alternatives))

    def _term(self) -> Term:
        negated = self._text[self._at] == "!"
        self._at += negated
        begin = self._at
        named = self._named.match(self._text, begin)
        if named is not None:
            self._at = named.end()
            return self._compared(named["name"].lower(), named["operator"], negated, begin)
        value = self._value("! needs a term after it" if negated else "a term is missing here")
        if not self._vocabulary.is_condition:
            return Term("", "~", (value.lower(),), negated)
        return self._identified(value, negated, begin)

    def _compared(self, name: str, operator: str, negated: bool, begin: int) -> Term:
        field = self._field(name, begin)
        # The place of a value that is missing is right behind its operator.
        if self._vocabulary.is_condition and self._text[self._at :].strip():
            self._skip_spaces()
        place = self._at
        value = self._value(f"{name}{operator} needs a value")
        like: Operator = "=" if operator == "==" else operator  # type: ignore[assignment]
        unit = self._vocabulary.units[field]
        if unit != "text":
            return Term(field, like, tuple(_number(part, unit, place) for part in value.split(",")), negated)
        if like in _ORDERS:
            raise ExpressionError(f"{name} is a text: use {name}:… or {name}~…", begin)
        quoted = self._text[place] in QUOTES
        words = (value.lower(),) if quoted else tuple(part for part in value.lower().split(",") if part)
        if not words:
            raise ExpressionError("a value is missing", place)
        for word in words:
            if field in self._vocabulary.ids and word not in self._vocabulary.ids[field]:
                raise ExpressionError(f"there is no {field} {word}{self._instead(field, word)}", begin)
        # A verdict matches by any of its words, however the diagnosis puts them.
        return Term(field, "~" if field in self._vocabulary.loose and like == ":" else like, words, negated)

    def _identified(self, word: str, negated: bool, begin: int) -> Term:
        """The term that a word without an operator means in a condition."""
        name = word.lower()
        if re.fullmatch(_NAME, word) is None or name in ("and", "or"):
            raise ExpressionError(f"{word} stands where a {self._vocabulary.kinds} must", begin)
        fields = [field for field, ids in self._vocabulary.ids.items() if name in ids]
        if len(fields) == 1:
            return Term(fields[0], ":", (name,), negated)
        if fields:
            forms = " or ".join(f"{field}:{name}" for field in fields)
            raise ExpressionError(f"{name} is a {' and a '.join(fields)}: write {forms}", begin)
        if self._field(name, begin) in self._vocabulary.ids:
            example = self._vocabulary.ids[name][0]
            raise ExpressionError(f"{name} needs a value, as in {name}:{example}", self._at)
        raise ExpressionError(f"{name} is a value: compare it, as in {name} > 50", self._at)

    def _field(self, name: str, begin: int) -> str:
        words = self._vocabulary
        field = words.aliases.get(name, name)
        return field if field in words.units else self._unknown(name, begin)

    def _unknown(self, name: str, begin: int) -> NoReturn:
        words = self._vocabulary
        if name in words.not_comparable:
            raise ExpressionError(f"{name} is {words.not_comparable[name]}", begin)
        names = [*words.aliases, *words.units]
        if words.is_condition:
            names += [identifier for ids in words.ids.values() for identifier in ids]
        raise ExpressionError(f"there is no {words.kinds} {name}{nearest(name, names, words.otherwise)}", begin)

    def _instead(self, field: str, value: str) -> str:
        """What may have been meant by a value that is not in the list of its field."""
        words = self._vocabulary
        other = next((other for other, ids in words.ids.items() if value in ids), None)
        hint = words.hints.get(field, "")
        if other is not None:
            return f"; {other}:{value} is one{f'. {hint}' if hint else ''}"
        return nearest(value, words.ids[field], hint or words.otherwise)

    def _skip_spaces(self) -> bool:
        """Whether there is more behind the spaces."""
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._at < len(self._text)

    def _word(self) -> str:
        begin = self._at
        while self._at < len(self._text) and not self._text[self._at].isspace():
            self._at += 1
        return self._text[begin : self._at]

    def _value(self, missing: str) -> str:
        """A word, or what stands between quotes."""
        begin = self._at
        if begin >= len(self._text) or self._text[begin].isspace():
            raise ExpressionError(missing, begin)
        quote = self._text[begin]
        if quote not in QUOTES:
            return self._word()
        end = self._text.find(quote, begin + 1)
        if end < 0:
            raise ExpressionError(f"the quote {quote} is not closed", begin)
        if end == begin + 1:
            raise ExpressionError(missing, begin)
        self._at = end + 1
        return self._text[begin + 1 : end]


def _number(text: str, unit: Unit, position: int) -> float:
    try:
        return typed_number(text, unit)
    except ValueError as error:
        raise ExpressionError(str(error), position) from None
