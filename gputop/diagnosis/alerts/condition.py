"""The condition of an alert: ``badge:ecc``, ``temp_c > 85``, ``sm_occupancy_pct < 20 and util_pct > 50``. Pure.

Terms are joined by ``and`` and ``or``; ``and`` binds tighter. A term is a badge, a verdict or a state of the diagnosis
(``badge:ID``; the id alone where only one kind has it), or a value of the GPU compared with a number. What was not
measured makes a comparison neither true nor false.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NoReturn

from msgspec import Struct

from gputop.diagnosis.catalogue import DATALOADER_WAIT, badge_rows, verdict_rows
from gputop.diagnosis.rules.gates import COLLECTING
from gputop.diagnosis.types import STATES, GpuDiagnosis
from gputop.model.derived import gap_pct
from gputop.model.metric import Metric, pct
from gputop.model.metrics import GPU_METRICS
from gputop.model.quantity import typed_number
from gputop.model.snapshot import GpuSample

LONGEST = 400
"""Characters of a condition."""
Kind = Literal["badge", "verdict", "state"]
KINDS: tuple[Kind, ...] = ("badge", "verdict", "state")
GAP = pct("gap_pct", "GAP", "UTIL − SM in points: time in which the GPU was busy and its SMs were not")
COMPARE: Mapping[str, Callable[[float, float], bool]] = MappingProxyType({
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b, "=": lambda a, b: a == b, "!=": lambda a, b: a != b,
})  # fmt: skip
_TOKEN = re.compile(r"<=|>=|==|!=|[<>=]|[^\s<>=!]+|.")
_WORD = re.compile(r"[A-Za-z_][\w-]*(?::[\w-]*)?")


class ConditionError(Exception):
    """What is wrong with a condition, in one line with its column, counted from 1."""

    def __init__(self, text: str, column: int) -> None:
        super().__init__(f"column {column}: {text}")
        self.column = column
        self._text = text

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle and copy would call the constructor with the finished words alone.
        return type(self), (self._text, self.column)


class Term(Struct, frozen=True):
    """One part of a condition: a diagnosis id of a ``kind``, or for the kind ``key`` a comparison with ``number``."""

    kind: Kind | Literal["key"]
    name: str
    operator: str = ""
    number: float = 0.0

    def holds(self, gpu: GpuSample, diagnosis: GpuDiagnosis) -> bool | None:
        """Whether the term is true of a GPU; None where it is not known."""
        if self.kind == "key":
            value = gap_pct(gpu) if self.name == GAP.key else getattr(gpu, self.name)
            return None if value is None else COMPARE[self.operator](float(value), self.number)
        if self.kind == "badge":
            return any(badge.id == self.name for badge in diagnosis.badges)
        shown = diagnosis.verdict if self.kind == "verdict" else diagnosis.state
        if shown == self.name:
            return True
        # A GPU that is not judged yet, or no more, is in none of the other verdicts and states for certain.
        return None if diagnosis.verdict == COLLECTING.id or shown == "unmeasured" else False


class Condition(Struct, frozen=True):
    """Alternatives: one of them must hold, with all of its terms."""

    text: str
    alternatives: tuple[tuple[Term, ...], ...]

    def holds(self, gpu: GpuSample, diagnosis: GpuDiagnosis) -> bool | None:
        """Whether it is true of a GPU; None where that depends on something that is not known."""
        known: bool | None = False
        for terms in self.alternatives:
            parts = [term.holds(gpu, diagnosis) for term in terms]
            if False in parts:
                continue
            if None not in parts:
                return True
            known = None
        return known

    @property
    def is_badges(self) -> bool:
        """Whether it consists of badges alone, which have their own delays already."""
        return all(term.kind == "badge" for terms in self.alternatives for term in terms)


@lru_cache(maxsize=1)
def keys() -> Mapping[str, Metric]:
    """The values of a GPU that can be compared with a number."""
    return {key: metric for key, metric in GPU_METRICS.items() if metric.unit not in ("text", "flags")} | {GAP.key: GAP}


@lru_cache(maxsize=1)
def ids() -> Mapping[Kind, tuple[str, ...]]:
    """What a diagnosis may say of a GPU, by kind."""
    return {
        "badge": tuple(row.id for row in badge_rows()),
        "verdict": tuple(row.id for row in verdict_rows() if row.id != DATALOADER_WAIT.id),
        "state": STATES,
    }


def parse(text: str) -> Condition:
    """The condition that a text means. Raises ConditionError."""
    if len(text) > LONGEST:
        raise ConditionError(f"a condition has at most {LONGEST} characters", LONGEST)
    words = [(match[0], match.start() + 1) for match in _TOKEN.finditer(text) if not match[0].isspace()]
    alternatives: list[list[Term]] = [[]]
    while words:
        alternatives[-1].append(_term(words))
        if not words:
            return Condition(" ".join(text.split()), tuple(map(tuple, alternatives)))
        word, column = words.pop(0)
        if word == "or":
            alternatives.append([])
        elif word != "and":
            raise ConditionError(f"'and' or 'or' is missing before {word}", column)
    raise ConditionError("a badge, a verdict, a state or a comparison is missing", len(text) + 1)


def _term(words: list[tuple[str, int]]) -> Term:
    """Remove one term from the front of the words."""
    word, column = words.pop(0)
    if _WORD.fullmatch(word) is None or word in ("and", "or"):
        raise ConditionError(f"{word} stands where a badge, a verdict, a state or a value must", column)
    kind, colon, name = word.partition(":")
    if colon:
        return _identified(kind, name, column)
    if words and words[0][0] in COMPARE:
        return _comparison(word, column, words)
    return _bare(word, column)


def _identified(kind: str, name: str, column: int) -> Term:
    if kind not in KINDS:
        raise ConditionError(f"there is no kind {kind}{_nearest(kind, KINDS)}", column)
    known = ids()[kind]
    if name not in known:
        raise ConditionError(f"there is no {kind} {name or 'without a name'}{_nearest(name, known)}", column)
    return Term(kind, name)


def _bare(name: str, column: int) -> Term:
    of = [kind for kind in KINDS if name in ids()[kind]]
    if len(of) > 1:
        raise ConditionError(
            f"{name} is a {' and a '.join(of)}: write {' or '.join(f'{k}:{name}' for k in of)}", column
        )
    if of:
        return Term(of[0], name)
    if name in keys():
        raise ConditionError(f"{name} is a value: compare it, as in {name} > 50", column + len(name))
    return _unknown(name, column)


def _comparison(name: str, column: int, words: list[tuple[str, int]]) -> Term:
    operator, at = words.pop(0)
    if not words:
        raise ConditionError(f"{name} {operator} needs a number", at + len(operator))
    text, place = words.pop(0)
    metric = keys().get(name)
    if metric is None:
        _unknown(name, column)
    try:
        return Term("key", name, operator, typed_number(text, metric.unit))
    except ValueError as error:
        raise ConditionError(str(error), place) from None


def _unknown(name: str, column: int) -> NoReturn:
    if name in GPU_METRICS:
        what = "a bit mask: use the badges thermal, power_brake and power_capped"
        raise ConditionError(f"{name} is {what if GPU_METRICS[name].unit == 'flags' else 'a text'}", column)
    every = [*keys(), *(name for kind in KINDS for name in ids()[kind])]
    raise ConditionError(f"there is no value, badge, verdict or state {name}{_nearest(name, every)}", column)


def _nearest(name: str, known: tuple[str, ...] | list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else "; `gputop help alerts` lists what there is"
