"""Parse filters and alert conditions.

Processes, the rows of a fleet, and alerts share one language. Pure.

    expression = terms {"or" terms}
    terms      = term {["and"] term}
    term       = ["!"] (name operator value {"," value} | "some text" | word)
    operator   = ":" | "~" | "=" | "==" | "!=" | "<" | ">" | "<=" | ">="

``and`` binds tighter than ``or``, ``!`` negates a term, commas are alternatives, quotes keep spaces and make ``and``
and ``or`` ordinary words. Spaces may surround operators. A ``Vocabulary`` lists the fields; the caller hands in the
values. A value that was not measured satisfies neither a comparison nor its negation: the result is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any, Literal

from msgspec import Struct

from gputop.model.metrics import Unit
from gputop.model.quantity import typed_number

Operator = Literal[":", "~", "=", "!=", "<", ">", "<=", ">="]

LONGEST = 400
"""Characters of an expression; a longer one was pasted by mistake."""
QUOTES = "\"'"
_COMPARISON = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*(?P<operator><=|>=|!=|==|[:~=<>])\s*")
_NONE: Mapping[str, Any] = {}


class ExpressionError(Exception):
    """Malformed expression; the message is one line.

    ``position`` is the offset of the mistake.
    """

    def __init__(self, text: str, position: int) -> None:
        super().__init__(text, position)
        self.position = position

    def __str__(self) -> str:
        return f"{self.args[0]} (at column {self.position + 1})"


class Vocabulary(Struct, frozen=True):
    """The fields of an expression, and the hints for mistakes.

    ``units``: each field's unit, ``text`` for texts. ``ids``: the values of texts that are one of a list. ``loose``
    texts match by any of their words. ``hints`` follow a value that is not in its field's list, ``otherwise`` a name
    that resembles none, ``not_comparable`` a name that exists and cannot be compared. ``searches``: a word without an
    operator is searched for in any text; else it is a mistake.
    """

    what: str
    units: Mapping[str, Unit]
    otherwise: str
    aliases: Mapping[str, str] = _NONE
    ids: Mapping[str, Sequence[str]] = _NONE
    hints: Mapping[str, str] = _NONE
    not_comparable: Mapping[str, str] = _NONE
    loose: frozenset[str] = frozenset()
    searches: bool = True


class Term(Struct, frozen=True):
    """One comparison; an empty ``field`` searches any text.

    ``values`` are alternatives: lower-case texts, or numbers in the field's unit.
    """

    field: str
    operator: Operator
    values: tuple[float | str, ...]
    negated: bool = False

    def holds_for(self, value: float | Sequence[str] | None, exactly: bool = False) -> bool | None:
        """Return whether a number or a text satisfies the term.

        A sequence of texts satisfies the term if one of them does. None for an unknown value. Numbers are equal as they
        are shown, rounded, unless ``exactly`` is asked for.
        """
        if value is None:
            return None
        if isinstance(value, (int, float)):
            holds = any(_compares(self.operator, value, float(bound), exactly) for bound in self.values)
        else:
            holds = _matches(value, self.operator, self.values) is not (self.operator == "!=")
        return holds is not self.negated


class Expression(Struct, frozen=True):
    """Alternatives, each a list of terms that must all hold.

    Without terms every row passes.
    """

    text: str = ""
    alternatives: tuple[tuple[Term, ...], ...] = ((),)

    def __bool__(self) -> bool:
        return any(self.alternatives)

    @property
    def terms(self) -> tuple[Term, ...]:
        return tuple(term for terms in self.alternatives for term in terms)

    def holds(self, answer: Callable[[Term], bool | None]) -> bool | None:
        """Combine the results of the terms.

        None if the result depends on an unknown value.
        """
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
    """Parse an expression.

    Raises ExpressionError with the position of the first mistake.
    """
    if len(text) > LONGEST:
        raise ExpressionError(f"a {vocabulary.what} has at most {LONGEST} characters", LONGEST)
    return Expression(text.strip(), _Parser(text, vocabulary).alternatives())


def nearest(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return a hint with the most similar name.

    The hint is appended to an error message.
    """
    from difflib import get_close_matches

    # The dashes of options do not count as similarity.
    plain = {name.lstrip("-"): name for name in names}
    near = get_close_matches(name.lstrip("-"), list(plain), 1, cutoff=0.65)
    return f"; did you mean {plain[near[0]]}?" if near else f"; {otherwise}" if otherwise else ""


_ORDERS = {"<": lt, ">": gt, "<=": le, ">=": ge}


def _compares(operator: Operator, a: float, b: float, exactly: bool) -> bool:
    if operator in _ORDERS:
        return bool(_ORDERS[operator](a, b))
    is_equal = a == b or (not exactly and abs(a) >= 1 and round(a) == round(b))
    return is_equal is not (operator == "!=")


def _matches(texts: Sequence[str], operator: Operator, wanted_texts: tuple[float | str, ...]) -> bool:
    """Return whether any text matches a wanted lower-case text.

    ``~`` matches anywhere; ``:`` and ``=`` match the whole text or one of its words (``job:8821``).
    """
    for text in texts:
        lower = text.lower()
        within: str | list[str] = lower if operator == "~" else [lower, *lower.split()]
        for value in wanted_texts:
            if value in within:
                return True
    return False


class _Parser:
    """Recursive descent over one text, from left to right."""

    def __init__(self, text: str, vocabulary: Vocabulary) -> None:
        self._text, self._vocabulary = text, vocabulary
        self._at = 0

    def alternatives(self) -> tuple[tuple[Term, ...], ...]:
        alternatives: list[list[Term]] = [[]]
        joint = ""
        while self._skip_spaces():
            begin, word = self._at, self._word()
            if word.lower() not in ("and", "or"):
                self._at = begin
                alternatives[-1].append(self._term())
                joint = ""
                continue
            if joint or not alternatives[-1]:
                raise ExpressionError(f"a term is missing before {word}", begin)
            joint = word
            if word.lower() == "or":
                alternatives.append([])
        if joint:
            raise ExpressionError(f"a term is missing after {joint}", len(self._text))
        return tuple(map(tuple, alternatives))

    def _term(self) -> Term:
        negated = self._text[self._at] == "!"
        self._at += negated
        begin = self._at
        named = _COMPARISON.match(self._text, begin)
        if named is not None:
            self._at = named.end()
            return self._comparison(named["name"].lower(), named["operator"], negated, begin)
        value = self._value("! needs a term after it" if negated else "a term is missing here")
        if self._vocabulary.searches:
            return Term("", "~", (value.lower(),), negated)
        raise ExpressionError(self._without_operator(value.lower()), begin)

    def _comparison(self, name: str, operator: str, negated: bool, begin: int) -> Term:
        words = self._vocabulary
        field = words.aliases.get(name, name)
        if field not in words.units:
            raise ExpressionError(self._unknown(name), begin)
        place = self._at
        value = self._value(f"{name}{operator} needs a value")
        like: Operator = "=" if operator == "==" else operator  # type: ignore[assignment]
        unit = words.units[field]
        if unit != "text":
            return Term(field, like, tuple(_number(part, unit, place) for part in value.split(",")), negated)
        if like in _ORDERS:
            raise ExpressionError(f"{name} is a text: use {name}:… or {name}~…", begin)
        quoted = self._text[place] in QUOTES
        texts = (value.lower(),) if quoted else tuple(part for part in value.lower().split(",") if part)
        if not texts:
            raise ExpressionError("a value is missing", place)
        for text in texts:
            if field in words.ids and text not in words.ids[field]:
                raise ExpressionError(f"there is no {field} {text}{self._instead(field, text)}", begin)
        # A verdict matches by any of its words, in any order.
        return Term(field, "~" if field in words.loose and like == ":" else like, texts, negated)

    def _without_operator(self, word: str) -> str:
        """Return the error message for a word without an operator.

        Used if the vocabulary has no search in any text."""
        words = self._vocabulary
        if forms := [f"{field}:{word}" for field, ids in words.ids.items() if word in ids]:
            return f"{word} needs its kind: write {' or '.join(forms)}"
        if word in words.units:
            example = f"{word}:{words.ids[word][0]}" if word in words.ids else f"{word} > 50"
            return f"{word} needs an operator and a value, as in {example}"
        return self._unknown(word)

    def _unknown(self, name: str) -> str:
        """Return the message for an unknown field."""
        words = self._vocabulary
        if name in words.not_comparable:
            return f"{name} is {words.not_comparable[name]}"
        return f"there is no field {name}{nearest(name, [*words.aliases, *words.units], words.otherwise)}"

    def _instead(self, field: str, value: str) -> str:
        """Return a hint for a value that its field lacks."""
        words = self._vocabulary
        other = next((other for other, ids in words.ids.items() if value in ids), None)
        hint = words.hints.get(field, "")
        if other is not None:
            return f"; {other}:{value} is one{f'. {hint}' if hint else ''}"
        return nearest(value, words.ids[field], hint or words.otherwise)

    def _skip_spaces(self) -> bool:
        """Skip spaces; return whether text is left."""
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._at < len(self._text)

    def _word(self) -> str:
        begin = self._at
        while self._at < len(self._text) and not self._text[self._at].isspace():
            self._at += 1
        return self._text[begin : self._at]

    def _value(self, missing: str) -> str:
        """Read a word or a quoted text."""
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
