"""``[[alert]]`` of the configuration: what each field may hold, read into alerts; its page of the help, and examples.
Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, get_args

from msgspec import Struct

from gputop.diagnosis.catalogue import OF_TRACES, badge_rows, verdict_rows
from gputop.diagnosis.rules.base import COLLECTING
from gputop.diagnosis.types import STATES, GpuDiagnosis
from gputop.model.alert_board import Per, Share
from gputop.model.derived import gap_pct
from gputop.model.expression import Expression, ExpressionError, Term, Vocabulary, nearest, parse_expression
from gputop.model.metrics import GPU_METRICS, Metric
from gputop.model.quantity import HOUR_S, is_number, typed_number
from gputop.model.snapshot import POD, GpuSample, ProcessSample, value
from gputop.model.text_table import table_rows

if TYPE_CHECKING:
    from gputop.output.document import Document

# The condition of an alert: ``badge:ecc``, ``temp_c > 85``, ``sm_occupancy_pct < 20 and util_pct > 50``. A term is a
# badge, a verdict or a state of the diagnosis, or a value of the GPU compared with a number.

Kind = Literal["badge", "verdict", "state"]
RETIRED = frozenset(("low_occupancy",))
"""Verdicts that are given no more: a condition may go on naming them, and is told that they no longer occur."""
_GAP_WORDS = "UTIL − SM in points: time in which the GPU was busy and its SMs were not"
GAP = Metric("gap_pct", "pct", "GAP", _GAP_WORDS, kind="ratio", low=0.0, high=100.0)


class Condition(Struct, frozen=True):
    """What must hold of a GPU."""

    expression: Expression

    @property
    def text(self) -> str:
        return self.expression.text

    def holds(self, gpu: GpuSample, diagnosis: GpuDiagnosis) -> bool | None:
        """Whether it is true of a GPU; None where that depends on something that is not known."""
        return self.expression.holds(lambda term: _answer(term, gpu, diagnosis))

    @property
    def retired(self) -> tuple[str, ...]:
        """The verdicts that it names and that no longer occur."""
        named = (value for term in self.expression.terms if term.field == "verdict" for value in term.values)
        return tuple(dict.fromkeys(str(name) for name in named if name in RETIRED))

    @property
    def retired_words(self) -> str:
        """That these no longer occur, in words; empty where there are none."""
        return f"{', '.join(self.retired)} no longer occurs: it is said as a note" if self.retired else ""

    @property
    def is_badges(self) -> bool:
        """Whether it consists of badges alone, which have their own delays already."""
        return all(term.field == "badge" for term in self.expression.terms)


def _answer(term: Term, gpu: GpuSample, diagnosis: GpuDiagnosis) -> bool | None:
    """Whether one term is true of a GPU; None where it is not known."""
    if term.field == "badge":
        return term.holds_for([badge.id for badge in diagnosis.badges if badge.about is None])
    if term.field not in ids():
        measured = gap_pct(gpu) if term.field == GAP.key else value(gpu, term.field)
        return term.holds_for(None if measured is None else float(measured), exactly=True)
    shown = diagnosis.verdict if term.field == "verdict" else diagnosis.state
    # A GPU that is not judged yet, or no more, is in none of the other verdicts and states for certain.
    unsure = shown not in term.values and (diagnosis.verdict == COLLECTING.id or shown == "unmeasured")
    return term.holds_for(None if unsure else [shown])


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


@lru_cache(maxsize=1)
def vocabulary() -> Vocabulary:
    """What a condition can ask of a GPU."""
    named: dict[str, Sequence[str]] = {**dict(ids().items()), "verdict": (*ids()["verdict"], *sorted(RETIRED))}
    bit_mask = "a bit mask: use the badges thermal, power_brake and power_capped"
    return Vocabulary(
        "condition",
        {**dict.fromkeys(named, "text"), **{key: metric.unit for key, metric in keys().items()}},
        "`gputop help alerts` lists what there is",
        ids=named,
        hints={
            "state": "in an alert it is a GPU's, such as state:starved, in a filter a process's, such as state:D",
            "verdict": "a filter's verdict: matches words, an alert's takes an id",
        },
        not_comparable={
            key: bit_mask if metric.unit == "flags" else "a text"
            for key, metric in GPU_METRICS.items()
            if key not in keys()
        },
        is_condition=True,
    )


def parse(text: str) -> Condition:
    """The condition that a text means. Raises ExpressionError."""
    return Condition(parse_expression(text, vocabulary()))


# The scope of an alert: each GPU alone, all GPUs of a job, or all GPUs of the node. Pure.

PER: tuple[Per, ...] = get_args(Per)
SHARES: tuple[Share, ...] = get_args(Share)
NODE = "node"
"""The group of a whole node, and of GPUs whose job is unknown."""


def jobs_by_gpu(processes: Iterable[ProcessSample]) -> Mapping[int, frozenset[str]]:
    """GPU index → the batch jobs, else the pods, that hold a context there."""
    jobs: dict[int, set[str]] = {}
    for process in processes:
        if process.role == "gpu" and process.gpu is not None:
            container = process.static.contained_in
            name = process.static.batch_job or (container if container is not None and container.kind == POD else None)
            if name is not None:
                jobs.setdefault(process.gpu, set()).add(name.words)
    return {gpu: frozenset(names) for gpu, names in jobs.items()}


def group_of(per: Per, uuid: str, jobs: frozenset[str]) -> str:
    """The group of a GPU. GPUs on which the same jobs share the chip are one group; those without a job are another."""
    if per == "gpu":
        return uuid
    return "job " + ", ".join(sorted(jobs)) if per == "job" and jobs else NODE


LEAST_AGAIN_S = 1.0
LONGEST_S = 30 * 86400.0
FOR_S = 60.0
"""How long a condition holds before its alert fires, unless badges alone decide it."""
AGAIN_S = HOUR_S
FIELDS: Mapping[str, str] = dict(
    table_rows("""
    name   its name: letters a-z, digits and -, at most 40, each name once
    when   the condition
    for    how long the condition must hold: 30s, 5m; by default 0s where badges alone decide, else 1m
    again  how long it is silent after it fired, for the same GPU, job or node; by default 1h
    per    gpu, job or node: for whom it acts once; by default a command with {gpu} and the like acts once a GPU, one
           with {job_id} once a job, any other once a node
    gpus   any or all: on which of a job's or node's GPUs the condition must hold; by default any, but all where a
           command with {job_id} acts on a job for more than a badge: a job is idle when all its GPUs are
    run    a program and its arguments, run without a shell; placeholders such as {host} stand in any argument
""")
)
GONE: Mapping[str, str] = {
    field: f'is gone: write run = ["apprise", "-t", "{{alert}} on {{host}}", "-b", "GPUs {{gpus}}", "{address}"]'
    for field, address in (("notify", "slack://…"), ("notify_file", "--config=FILE"))
}  # fmt: skip
"""Fields of before, each with what does the same."""
PLACEHOLDERS: Mapping[str, str] = dict(
    table_rows("""
    host     the machine's name
    gpu      the GPU's index
    uuid     the GPU's UUID
    pci      the GPU's PCI address
    alert    the alert's name
    verdict  the GPU's verdict
    level    the level of the verdict: green, yellow, red
    pid      the process on the GPU, where there is just one
    job_id   the batch job on the GPU, where there is just one
    gpus     the indices of all GPUs that it fires for, such as 0,1,2
""")
)
OF_ONE_GPU = ("gpu", "uuid", "pci", "verdict", "level", "pid")
"""Placeholders that have no value for several GPUs."""
PLACEHOLDER = re.compile(r"\{([A-Za-z_]+)\}")
_NAME = re.compile(r"[a-z0-9-]{1,40}")
_Word = TypeVar("_Word", bound=str)


class AlertError(Exception):
    """What is wrong with one alert, in one line. ``number`` counts from 0; ``field`` is empty where none is wrong."""

    def __init__(self, text: str, number: int, field: str, name: object = None) -> None:
        super().__init__(text, number, field, name)
        self.number, self.field = number, field

    def __str__(self) -> str:
        text, number, field, name = self.args
        subject = f"alert {name if isinstance(name, str) and _NAME.fullmatch(name) else number + 1}"
        return f"{subject}: {field}: {text}" if field else f"{subject}: {text}"


class Alert(Struct, frozen=True):
    """When to fire, and what to run then; without ``run`` it is shown only."""

    name: str
    when: Condition
    for_s: float
    again_s: float = AGAIN_S
    run: tuple[str, ...] = ()
    per: Per = "gpu"
    gpus: Share = "any"


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
            alerts[alert.name] = alert
        except AlertError as error:
            errors.append(error)
    return tuple(alerts.values()), errors


def faults(tables: Iterable[Mapping[str, Any]]) -> list[tuple[int, str, str]]:
    """What is wrong with each alert that cannot be read: its number from 0, the field or nothing, the words."""
    return [(error.number, error.field, str(error)) for error in read_alerts(tables)[1]]


class _Reader:
    """One table."""

    def __init__(self, number: int, table: Mapping[str, Any]) -> None:
        self._number, self._table = number, table

    def alert(self) -> Alert:
        for field in self._table:
            if field in GONE:
                self._refuse(field, GONE[field])
            if field not in FIELDS:
                self._refuse("", f"unknown field {field!r}{_nearest(field, FIELDS)}")
        name = self._text("name")
        if _NAME.fullmatch(name) is None:
            self._refuse("name", f"must consist of a-z, 0-9 and -, at most 40 characters, not {name!r}")
        try:
            when = parse(self._text("when"))
        except ExpressionError as error:
            self._refuse("when", str(error))
        command = self._command()
        per = self._per(command)
        return Alert(
            name,
            when,
            self._seconds("for", 0.0 if when.is_badges else FOR_S, 0.0),
            self._seconds("again", AGAIN_S, LEAST_AGAIN_S),
            command,
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

    def _command(self) -> tuple[str, ...]:
        command = self._table.get("run", ())
        if "run" in self._table and (
            not isinstance(command, (list, tuple)) or not command or not all(isinstance(w, str) and w for w in command)
        ):
            # The value is not quoted: it may hold a token.
            example = '["kubectl", "cordon", "{host}"]'
            self._refuse("run", f"must be a list of texts such as {example}: no shell takes one apart")
        if any("\0" in word for word in command):
            self._refuse("run", "holds a zero byte")
        for word in command:
            for name in PLACEHOLDER.findall(word):
                if name not in PLACEHOLDERS:
                    self._refuse("run", f"there is no placeholder {{{name}}}{_nearest(name, PLACEHOLDERS)}")
        if command and PLACEHOLDER.search(command[0]):
            self._refuse("run", "the program itself must not be a placeholder")
        return tuple(command)

    def _per(self, command: tuple[str, ...]) -> Per:
        """The scope in which the alert acts once: the one given, else what its command needs."""
        used = _placeholders(command)
        of_one = next((name for name in OF_ONE_GPU if name in used), None)
        scope = self._one_of("per", PER)
        if scope is None:
            if of_one is not None or not command:
                return "gpu"
            return "job" if "job_id" in used else "node"
        if scope != "gpu" and of_one is not None:
            self._refuse(
                "run", f"{{{of_one}}} stands for one GPU, and per = {scope!r} acts for several: write {{gpus}}"
            )
        return scope

    def _share(self, per: Per, acts_on_job: bool) -> Share:
        """On which of the GPUs the condition must hold."""
        share = self._one_of("gpus", SHARES)
        if share == "all" and per == "gpu":
            self._refuse("gpus", 'has no effect where the alert acts on one GPU at a time: set per = "job" or "node"')
        return share or ("all" if per == "job" and acts_on_job else "any")

    def _one_of(self, field: str, allowed: tuple[_Word, ...]) -> _Word | None:
        value = self._table.get(field)
        if value is not None and value not in allowed:
            self._refuse(field, f"must be one of {', '.join(allowed)}, not {value!r}")
        return value

    def _seconds(self, field: str, default: float, least: float) -> float:
        value = self._table.get(field)
        if value is None:
            return default
        seconds = float(value) if is_number(value) else -1.0
        if isinstance(value, str):
            with suppress(ValueError):
                seconds = typed_number(value.strip(), "s")
        if not least <= seconds <= LONGEST_S:
            self._refuse(field, f"must be a time such as 30s, 5m or 1h, from {least:g}s to 30d, not {value!r}")
        return seconds

    def _refuse(self, field: str, text: str) -> NoReturn:
        raise AlertError(text, self._number, field, self._table.get("name"))


def _placeholders(command: Iterable[str]) -> set[str]:
    return {name for word in command for name in PLACEHOLDER.findall(word)}


def _nearest(name: str, names: Iterable[str]) -> str:
    return nearest(name, names, f"there are {', '.join(names)}")


# The page of the help.

_WHAT = (
    "An alert is a table `[[alert]]` of the configuration file. `gputop record`, `run` and `export` fire it, "
    "the screen shows it and fires it with `--alerts`; a demo, a replay, a browser and everything else never "
    "do. One process of a user fires on a machine; when it ends the next one takes over, and knows what "
    "was fired. A changed file counts from the next start.",
    "`gputop config --init` writes examples, `gputop alerts` lists what is configured, `gputop alerts FILE` "
    "says what would have fired in a recording (exit status 0: nothing, 1: something), `gputop alerts --test "
    "NAME` fires one at once. `A` on the screen shows the state of each and how its command ended; `s` there "
    "silences one until gputop ends.",
)
_COMMANDS = (
    "The program is started without a shell, in a session of its own, in `/`, with PATH, HOME and LANG "
    "and no ambient capability. After 30 s its session is killed, and 5 s after gputop's own end; what has made "
    "itself a daemon by then goes on, and after a kill -9 of gputop the command runs to its own end. At most one "
    "command of an alert runs at a time. The first 4 kB of "
    "what it prints are kept, and a failure is reported once. Its stdin is a JSON object: the verdict "
    "with evidence and remedy, of several GPUs that of the first, and `gpus`, a list of them all; "
    "secrets masked.",
    "The configuration file and its folder must belong to you or root, and only their owner may write "
    "to them. A value that begins with `-` or holds anything but letters, digits and `. _ : / @ -`, "
    "and one that is missing, cancels the call.",
)


def alerts_page() -> Document:
    from gputop.output.document import page, section

    values = tuple((f"`{key}`", metric.definition, metric.unit) for key, metric in keys().items())
    names = tuple((f"`{kind}`", ", ".join(f"`{name}`" for name in ids()[kind])) for kind in ids())
    fields = tuple((f"`{field}`", text) for field, text in FIELDS.items())
    placeholders = tuple((f"`{{{name}}}`", text) for name, text in PLACEHOLDERS.items())
    return page(
        "Alerts",
        _WHAT,
        (
            section("Fields", (), ("field", "what it is"), fields),
            section(
                "Conditions",
                (
                    "Terms joined by `and` and `or`; `and` binds tighter. A term is a badge, a verdict or a state "
                    "(`badge:ecc`; the id alone where only one kind has it), or a value compared with a number: "
                    "`temp_c > 85`, `mem_used_bytes >= 10G`, `sm_occupancy_pct < 20 and util_pct > 50`. As in filters "
                    "(`gputop help filters`), `!` before a term is the opposite and a comma means or: `!badge:ecc`, "
                    "`state:starved,idle_allocated`. A state is the GPU's here, and a process's in filters. What is "
                    "not measured makes a comparison neither true nor false: it fires nothing and resolves nothing.",
                ),
                ("kind", "ids"),
                names,
            ),
            section(
                "Once a GPU, a job or a node",
                (
                    'With `per = "job"` an alert acts once for all GPUs of a job on this machine, and once for those '
                    'that belong to no known job; with `per = "node"` once for all GPUs. A job is the batch job, else '
                    "the pod, of the processes on a GPU; GPUs that several jobs share are a group of their own. "
                    '`gpus = "all"` waits until the condition has held on every GPU of the group. A GPU on which '
                    "a new job begins is judged afresh: the new job is not blamed for the old one's time. GPUs that "
                    "follow during the silence start no further action; `{gpus}` and the JSON list those that hold "
                    "when it fires. A job on several machines is judged on each of them by itself.",
                ),
            ),
            section("Values", (), ("value", "what it is", "unit"), values),
            section(
                "Commands",
                _COMMANDS,
                ("placeholder", "what stands in its place"),
                placeholders,
            ),
        ),
    )


# Example alerts for the configuration file that ``gputop config --init`` writes: all commented out.

EXAMPLES = """\
# Each alert is a table of its own, below everything else. A program gets PATH, HOME and LANG, what happened as JSON on
# its stdin, and 30 seconds. `gputop alerts FILE` says what would have fired in a recording, `gputop alerts --test NAME`
# fires one at once. `gputop record`, `run` and `export` fire alerts; the screen does with --alerts.

# A message on the desktop of the user with this number.
#[[alert]]
#name = "desktop"
#when = "state:busy_not_working"
#for = "5m"
#run = ["env", "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/{uid}/bus", "notify-send", "GPU {{gpu}}: {{verdict}}"]

# A chat, mail or pager by apprise (pipx install apprise), whose addresses carry tokens: in a file for you alone.
#[[alert]]
#name = "slack"
#when = "badge:thermal or badge:power_brake"
#run = ["apprise", "--config=~/.config/gputop/slack", "-t", "{{alert}} on {{host}}", "-b", "GPUs {{gpus}}"]

# Kubernetes: no new pods on a node with uncorrected memory errors or a GPU that has fallen off the bus.
#[[alert]]
#name = "cordon"
#when = "badge:ecc or xid = 79"
#run = ["kubectl", "cordon", "{{host}}"]

# Slurm: drain such a node.
#[[alert]]
#name = "drain"
#when = "badge:ecc or badge:lost or xid = 79"
#run = ["scontrol", "update", "nodename={{host}}", "state=drain", "reason=gputop:{{alert}}"]

# Slurm: requeue a job that has not used any of its GPUs for half an hour: once, not once a GPU. Each node knows its own
# GPUs alone: leave it out where jobs span nodes and one of them may rest while others work.
#[[alert]]
#name = "requeue-idle"
#when = "state:idle_allocated"
#for = "30m"
#again = "6h"
#run = ["scontrol", "requeue", "{{job_id}}"]

# Tell whoever develops the job that its kernels fill little of the GPU.
#[[alert]]
#name = "low-occupancy"
#when = "sm_occupancy_pct < 20 and util_pct > 50"
#for = "10m"
#again = "1d"
#run = ["logger", "-t", "gputop", "occupancy below 20 % on GPU {{gpu}}, process {{pid}}"]
"""


def examples(uid: int) -> str:
    """The examples for a user."""
    return EXAMPLES.format(uid=uid)
