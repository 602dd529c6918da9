"""``[[alert]]`` of the configuration: what each field may hold, read into alerts. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NoReturn, TypeVar

from msgspec import Struct

from gputop.diagnosis.catalogue import OF_TRACES, badge_rows, verdict_rows
from gputop.diagnosis.rules.base import COLLECTING
from gputop.diagnosis.types import STATES, GpuDiagnosis
from gputop.model.alert_board import Per, Share
from gputop.model.derived import gap_pct
from gputop.model.metrics import GPU_METRICS, Metric, pct
from gputop.model.quantity import HOUR_S, SECONDS, typed_number
from gputop.model.snapshot import GpuSample, ProcessSample

# The condition of an alert: ``badge:ecc``, ``temp_c > 85``, ``sm_occupancy_pct < 20 and util_pct > 50``. Pure.
#
# Terms are joined by ``and`` and ``or``; ``and`` binds tighter. A term is a badge, a verdict or a state of the
# diagnosis
# (``badge:ID``; the id alone where only one kind has it), or a value of the GPU compared with a number. What was not
# measured makes a comparison neither true nor false.

LONGEST = 400
"""Characters of a condition."""
Kind = Literal["badge", "verdict", "state"]
KINDS: tuple[Kind, ...] = ("badge", "verdict", "state")
RETIRED = frozenset(("low_occupancy",))
"""Verdicts that are given no more: a condition may go on naming them, and is told that they no longer occur."""
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
    def retired(self) -> tuple[str, ...]:
        """The verdicts that it names and that no longer occur."""
        named = (term.name for terms in self.alternatives for term in terms if term.kind == "verdict")
        return tuple(dict.fromkeys(name for name in named if name in RETIRED))

    @property
    def retired_words(self) -> str:
        """That these no longer occur, in words; empty where there are none."""
        return f"{', '.join(self.retired)} no longer occurs: it is said as a note" if self.retired else ""

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
        "verdict": tuple(row.id for row in verdict_rows() if row not in OF_TRACES),
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
        raise ConditionError(f"there is no kind {kind}{_condition_nearest(kind, KINDS)}", column)
    known = ids()[kind]
    if name not in known and not (kind == "verdict" and name in RETIRED):
        other = next((other for other in KINDS if name in ids()[other]), None)
        if other is not None:
            hint = f"; {other}:{name} is one. A filter's verdict: matches words, an alert's takes an id"
            raise ConditionError(f"there is no {kind} {name}{hint}", column)
        if kind == "state" and len(name) == 1:
            hint = "; in an alert it is a GPU's, such as state:starved, in a filter a process's, such as state:D"
            raise ConditionError(f"there is no state {name}{hint}", column)
        raise ConditionError(f"there is no {kind} {name or 'without a name'}{_condition_nearest(name, known)}", column)
    return Term(kind, name)


def _bare(name: str, column: int) -> Term:
    of: list[Kind] = [kind for kind in KINDS if name in ids()[kind]]
    if name in RETIRED:
        of = ["verdict"]
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
    raise ConditionError(f"there is no value, badge, verdict or state {name}{_condition_nearest(name, every)}", column)


def _condition_nearest(name: str, known: tuple[str, ...] | list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else "; `gputop help alerts` lists what there is"


# The scope of an alert: each GPU alone, all GPUs of a job, or all GPUs of the node. Pure.

PER: tuple[Per, ...] = ("gpu", "job", "node")
SHARES: tuple[Share, ...] = ("any", "all")
NODE = "node"
"""The group of a whole node, and of GPUs whose job is unknown."""


def jobs_by_gpu(processes: Iterable[ProcessSample]) -> Mapping[int, frozenset[str]]:
    """GPU index → the batch jobs, else the pods, that hold a context there."""
    jobs: dict[int, set[str]] = {}
    for process in processes:
        if process.role == "gpu" and process.gpu is not None:
            name = process.static.job or _pod(process.static.container)
            if name is not None:
                jobs.setdefault(process.gpu, set()).add(name)
    return {gpu: frozenset(names) for gpu, names in jobs.items()}


def group_of(per: Per, uuid: str, jobs: frozenset[str]) -> str:
    """The group of a GPU. GPUs on which the same jobs share the chip are one group; those without a job are another."""
    if per == "gpu":
        return uuid
    return "job " + ", ".join(sorted(jobs)) if per == "job" and jobs else NODE


def _pod(container: str | None) -> str | None:
    return container if container is not None and container.startswith("pod ") else None


MOST_ALERTS = 64
LEAST_AGAIN_S = 1.0
LONGEST_S = 30 * 86400.0
FOR_S = 60.0
"""How long a condition holds before its alert fires, unless badges alone decide it."""
AGAIN_S = HOUR_S
FIELDS: Mapping[str, str] = MappingProxyType({
    "name": "its name: letters a-z, digits and -, at most 40, each name once",
    "when": "the condition",
    "for": "how long the condition must hold: 30s, 5m; by default 0s where badges alone decide, else 1m",
    "again": "how long it is silent after it fired, for the same GPU, job or node; by default 1h",
    "per": "gpu, job or node: for whom it acts once; by default a command with {gpu} and the like acts once a GPU, one "
    "with {job_id} once a job, any other once a node, and a notification is sent once a job",
    "gpus": "any or all: on which of a job's or node's GPUs the condition must hold; by default any, but all where a "
    "command with {job_id} acts on a job for more than a badge: a job is idle when all its GPUs are",
    "run": "a program and its arguments, run without a shell; placeholders such as {host} stand in any argument",
    "notify": "addresses for apprise, such as slack://… (needs the extra notify)",
    "notify_file": "a file with one such address a line, readable by its owner alone",
})  # fmt: skip
PLACEHOLDERS: Mapping[str, str] = MappingProxyType({
    "host": "the machine's name",
    "gpu": "the GPU's index",
    "uuid": "the GPU's UUID",
    "pci": "the GPU's PCI address",
    "alert": "the alert's name",
    "verdict": "the GPU's verdict",
    "level": "the level of the verdict: green, yellow, red",
    "pid": "the process on the GPU, where there is just one",
    "job_id": "the batch job on the GPU, where there is just one",
    "gpus": "the indices of all GPUs that it fires for, such as 0,1,2",
})  # fmt: skip
OF_ONE_GPU = ("gpu", "uuid", "pci", "verdict", "level", "pid")
"""Placeholders that have no value for several GPUs."""
PLACEHOLDER = re.compile(r"\{([A-Za-z_]+)\}")
_NAME = re.compile(r"[a-z0-9-]{1,40}")
_Word = TypeVar("_Word", bound=str)
_TIME = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([a-z]*)")


class AlertError(Exception):
    """What is wrong with one alert, in one line. ``number`` counts from 0; ``field`` is empty where none is wrong."""

    def __init__(self, text: str, number: int, field: str, name: object = None) -> None:
        who = f"alert {name}" if isinstance(name, str) and _NAME.fullmatch(name) else f"alert {number + 1}"
        super().__init__(f"{who}: {field}: {text}" if field else f"{who}: {text}")
        self.number, self.field = number, field
        self._given = (text, number, field, name)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle and copy would call the constructor with the finished words alone.
        return type(self), self._given


class Alert(Struct, frozen=True):
    """When to fire, and what to do then: run a program, notify, or both; with neither it is shown only."""

    name: str
    when: Condition
    for_s: float
    again_s: float = AGAIN_S
    run: tuple[str, ...] = ()
    notify: tuple[str, ...] = ()
    notify_file: str | None = None
    per: Per = "gpu"
    gpus: Share = "any"

    @property
    def notifies(self) -> bool:
        return bool(self.notify or self.notify_file)


def alerts_of(tables: Iterable[Mapping[str, Any]]) -> tuple[Alert, ...]:
    """The alerts that the configuration declares. Raises AlertError for the first mistake."""
    alerts, errors = read_alerts(tables)
    if errors:
        raise errors[0]
    return alerts


def read_alerts(tables: Iterable[Mapping[str, Any]]) -> tuple[tuple[Alert, ...], list[AlertError]]:
    """The alerts without a mistake, and the first mistake of each of the others."""
    alerts: dict[str, Alert] = {}
    errors: list[AlertError] = []
    for number, table in enumerate(tables):
        try:
            alert = _Reader(number, table).alert()
            if alert.name in alerts:
                raise AlertError("an alert before it has this name: names tell alerts apart", number, "name")
            if len(alerts) == MOST_ALERTS:
                raise AlertError(f"there may be at most {MOST_ALERTS} alerts", number, "")
            alerts[alert.name] = alert
        except AlertError as error:
            errors.append(error)
    return tuple(alerts.values()), errors


def objection(tables: Iterable[Mapping[str, Any]]) -> str | None:
    """What is wrong with the first alert that cannot be read; None where all can."""
    errors = read_alerts(tables)[1]
    return str(errors[0]) if errors else None


def faults(tables: Iterable[Mapping[str, Any]]) -> list[tuple[int, str, str]]:
    """What is wrong with each alert that cannot be read: its number from 0, the field or nothing, the words."""
    return [(error.number, error.field, str(error)) for error in read_alerts(tables)[1]]


class _Reader:
    """One table."""

    def __init__(self, number: int, table: Mapping[str, Any]) -> None:
        self._number, self._table = number, table

    def alert(self) -> Alert:
        for field in self._table:
            if field not in FIELDS:
                self._refuse("", f"unknown field {field!r}{_table_nearest(field, FIELDS)}")
        name = self._text("name")
        if _NAME.fullmatch(name) is None:
            self._refuse("name", f"must consist of a-z, 0-9 and -, at most 40 characters, not {name!r}")
        try:
            when = parse(self._text("when"))
        except ConditionError as error:
            self._refuse("when", str(error))
        file = self._text("notify_file") if "notify_file" in self._table else None
        if file is not None and not file.startswith(("/", "~/")):
            self._refuse("notify_file", f"must be a whole path, from / or ~/ on, not {file!r}")
        command, addresses = self._command(), self._texts("notify", '["slack://…"]')
        per = self._per(command, bool(addresses or file))
        return Alert(
            name,
            when,
            self._seconds("for", 0.0 if when.is_badges else FOR_S, 0.0),
            self._seconds("again", AGAIN_S, LEAST_AGAIN_S),
            command,
            addresses,
            file,
            per,
            self._share(per, "job_id" in _placeholders(command) and not when.is_badges),
        )

    def _text(self, field: str) -> str:
        if field not in self._table:
            self._refuse("", f"{field} is missing: {FIELDS[field]}")
        value = self._table[field]
        if not isinstance(value, str) or not value.strip():
            self._refuse(field, f"must be a text, not {value!r}")
        return value

    def _texts(self, field: str, example: str) -> tuple[str, ...]:
        value = self._table.get(field)
        if value is None:
            return ()
        # The value is not quoted: it may be an address with a token in it.
        if not isinstance(value, (list, tuple)) or not value or not all(isinstance(v, str) and v for v in value):
            self._refuse(field, f"must be a list of texts such as {example}")
        if any("\0" in text for text in value):
            self._refuse(field, "holds a zero byte")
        return tuple(value)

    def _command(self) -> tuple[str, ...]:
        command = self._texts("run", '["kubectl", "cordon", "{host}"]: no shell takes one apart')
        for word in command:
            for name in PLACEHOLDER.findall(word):
                if name not in PLACEHOLDERS:
                    self._refuse("run", f"there is no placeholder {{{name}}}{_table_nearest(name, PLACEHOLDERS)}")
        if command and PLACEHOLDER.search(command[0]):
            self._refuse("run", "the program itself must not be a placeholder")
        return command

    def _per(self, command: tuple[str, ...], notifies: bool) -> Per:
        """The scope in which the alert acts once: the one given, else what its command needs."""
        used = _placeholders(command)
        of_one = next((name for name in OF_ONE_GPU if name in used), None)
        given = self._one_of("per", PER)
        if given is None:
            if of_one is not None or not (command or notifies):
                return "gpu"
            return "job" if "job_id" in used or not command else "node"
        if given != "gpu" and of_one is not None:
            self._refuse(
                "run", f"{{{of_one}}} stands for one GPU, and per = {given!r} acts for several: write {{gpus}}"
            )
        return given

    def _share(self, per: Per, acts_on_job: bool) -> Share:
        """On which of the GPUs the condition must hold."""
        given = self._one_of("gpus", SHARES)
        if given == "all" and per == "gpu":
            self._refuse("gpus", 'has no effect where the alert acts on one GPU at a time: set per = "job" or "node"')
        return given or ("all" if per == "job" and acts_on_job else "any")

    def _one_of(self, field: str, known: tuple[_Word, ...]) -> _Word | None:
        value = self._table.get(field)
        if value is not None and value not in known:
            self._refuse(field, f"must be one of {', '.join(known)}, not {value!r}")
        return value

    def _seconds(self, field: str, default: float, least: float) -> float:
        value = self._table.get(field)
        if value is None:
            return default
        found = None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found = float(value)
        elif isinstance(value, str) and (match := _TIME.fullmatch(value.strip().lower())) and match[2] in SECONDS:
            found = float(match[1]) * SECONDS[match[2]]
        if found is None or not least <= found <= LONGEST_S:
            self._refuse(field, f"must be a time such as 30s, 5m or 1h, from {least:g}s to 30d, not {value!r}")
        return found

    def _refuse(self, field: str, text: str) -> NoReturn:
        raise AlertError(text, self._number, field, self._table.get("name"))


def _placeholders(command: Iterable[str]) -> set[str]:
    return {name for word in command for name in PLACEHOLDER.findall(word)}


def _table_nearest(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
