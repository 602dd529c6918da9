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
from gputop.model.typed_number import typed_number

Operator = Literal[":", "~", "=", "!=", "<", ">", "<=", ">="]

LONGEST = 400
"""Characters of an expression; a longer one was pasted by mistake."""
QUOTES = "\"'"
_JOINT = re.compile(r"\s*(and|or)(?!\S)", re.IGNORECASE)
_TERM = re.compile(
    r"\s*(?P<negated>!?)(?:(?P<name>[A-Za-z_]\w*)\s*(?P<operator><=|>=|!=|==|[:~=<>])\s*)?"
    r"(?P<value>(?P<quote>[\"'])(?P<quoted>.*?)(?P=quote)|\S*)",
    re.DOTALL,
)
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

    subject: str
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
            holds = any(
                _compares(self.operator, value, float(bound), exactly) for bound in self.values
            )
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

    def is_met(self, answer: Callable[[Term], bool | None]) -> bool | None:
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
        raise ExpressionError(f"a {vocabulary.subject} has at most {LONGEST} characters", LONGEST)
    return Expression(text.strip(), _Parser(text, vocabulary).alternatives())


LONGEST_NAME = 100
"""Characters of a name that may resemble one of ours."""


def nearest(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return a hint with the most similar name.

    The hint is appended to an error message.
    """
    if len(name) > LONGEST_NAME:
        return f"; {otherwise}" if otherwise else ""
    from difflib import get_close_matches

    # The dashes of options do not count as similarity.
    plain = {name.lstrip("-"): name for name in names}
    near = get_close_matches(name.lstrip("-"), list(plain), 1, cutoff=0.7)
    return f"; did you mean {plain[near[0]]}?" if near else f"; {otherwise}" if otherwise else ""


_ORDERS = {"<": lt, ">": gt, "<=": le, ">=": ge}


def _compares(operator: Operator, a: float, b: float, exactly: bool) -> bool:
    if operator in _ORDERS:
        return bool(_ORDERS[operator](a, b))
    is_equal = a == b or (not exactly and abs(a) >= 1 and round(a) == round(b))
    return is_equal is not (operator == "!=")


def _matches(
    texts: Sequence[str], operator: Operator, wanted_texts: tuple[float | str, ...]
) -> bool:
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
    """Parser of one text, from left to right."""

    def __init__(self, text: str, vocabulary: Vocabulary) -> None:
        self._text, self._vocabulary = text, vocabulary

    def alternatives(self) -> tuple[tuple[Term, ...], ...]:
        alternatives: list[list[Term]] = [[]]
        joint, place = "", 0
        while self._text[place:].strip():
            if (word := _JOINT.match(self._text, place)) is not None:
                if joint or not alternatives[-1]:
                    raise ExpressionError(f"a term is missing before {word[1]}", word.start(1))
                joint, place = word[1], word.end()
                if joint.lower() == "or":
                    alternatives.append([])
                continue
            term = _TERM.match(self._text, place)
            assert term is not None, "it matches an empty text, too"
            alternatives[-1].append(
                self._term(term) if term["name"] is None else self._comparison(term)
            )
            joint, place = "", term.end()
        if joint:
            raise ExpressionError(f"a term is missing after {joint}", len(self._text))
        return tuple(map(tuple, alternatives))

    def _term(self, term: re.Match[str]) -> Term:
        """Return the search for a text. Raises ExpressionError."""
        value = _value(
            term, "! needs a term after it" if term["negated"] else "a term is missing here"
        ).lower()
        if self._vocabulary.searches:
            return Term("", "~", (value,), bool(term["negated"]))
        raise ExpressionError(self._without_operator(value), term.end("negated"))

    def _comparison(self, term: re.Match[str]) -> Term:
        """Return the comparison of a field. Raises ExpressionError."""
        words, name, negated = self._vocabulary, term["name"].lower(), bool(term["negated"])
        field, begin, place = words.aliases.get(name, name), term.start("name"), term.start("value")
        if field not in words.units:
            raise ExpressionError(self._unknown(name), begin)
        value = _value(term, f"{name}{term['operator']} needs a value")
        operator: Operator = "=" if term["operator"] == "==" else term["operator"]  # type: ignore[assignment]
        unit = words.units[field]
        if unit != "text":
            return Term(
                field,
                operator,
                tuple(_number(part, unit, place) for part in value.split(",")),
                negated,
            )
        if operator in _ORDERS:
            raise ExpressionError(f"{name} is a text: use {name}:… or {name}~…", begin)
        texts = (
            (value.lower(),)
            if term["quote"]
            else tuple(part for part in value.lower().split(",") if part)
        )
        if not texts:
            raise ExpressionError("a value is missing", place)
        for text in texts:
            if field in words.ids and text not in words.ids[field]:
                raise ExpressionError(
                    f"there is no {field} {text}{self._hint_for(field, text)}", begin
                )
        # A verdict matches by any of its words, in any order.
        return Term(
            field, "~" if field in words.loose and operator == ":" else operator, texts, negated
        )

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
        return (
            "there is no field "
            f"{name}{nearest(name, [*words.aliases, *words.units], words.otherwise)}"
        )

    def _hint_for(self, field: str, value: str) -> str:
        """Return a hint for a value that its field lacks."""
        words = self._vocabulary
        other = next((other for other, ids in words.ids.items() if value in ids), None)
        hint = words.hints.get(field, "")
        if other is not None:
            return f"; {other}:{value} is one{f'. {hint}' if hint else ''}"
        return nearest(value, words.ids[field], hint or words.otherwise)


def _value(term: re.Match[str], missing: str) -> str:
    """Return a term's word or quoted text. Raises ExpressionError."""
    value = term["quoted"] if term["quote"] else term["value"]
    if not value:
        raise ExpressionError(missing, term.start("value"))
    if not term["quote"] and value[0] in QUOTES:
        raise ExpressionError(f"the quote {value[0]} is not closed", term.start("value"))
    return str(value)


def _number(text: str, unit: Unit, position: int) -> float:
    try:
        return typed_number(text, unit)
    except ValueError as error:
        raise ExpressionError(str(error), position) from None
