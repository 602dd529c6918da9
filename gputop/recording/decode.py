"""Lines of a recording to snapshots: columns mapped by name, every value checked, gaps made visible.

A line that is not what the format says is dropped and counted, never half believed. Values of a frame are checked
column by column at C speed, because a day of frames must be read in well under a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, count, repeat
from math import hypot
from types import MappingProxyType
from typing import Any, Protocol, cast

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.feeders import NEVER, not_a_loader, server_in, why_words
from gputop.model.quantity import clean_text
from gputop.model.secrets import masked_text
from gputop.model.sm import SM_SOURCES
from gputop.model.snapshot import (
    COLLECTORS,
    EVENT_KINDS,
    GAP_INTERVALS,
    NOTHING_MISSING,
    ROLES,
    CgroupName,
    Event,
    FeedTime,
    GpuSample,
    GpuStatic,
    HostSample,
    Machine,
    MainTime,
    ProcessSample,
    ProcessStatic,
    Snapshot,
)
from gputop.recording.format import (
    GPU_COLUMNS,
    GPU_FACTS,
    HOST_COLUMNS,
    MOST,
    MOST_GPUS,
    MOST_PROCESSES,
    PROCESS_COLUMNS,
    PROCESS_FACTS,
    ROW_LINES,
    VERSION,
    Check,
    Damage,
    RecordedColumn,
    RecordingError,
    RunFacts,
    checked,
    event_parts,
    number,
    parse_line,
    rows_beside,
    rows_of,
    rule_in,
    run_facts,
)

# The rows of a frame to samples: checked columns, the reasons why values are missing, defaults for unknown columns.
#
# Whatever does not follow the format raises Damage, TypeError, ValueError, AttributeError or IndexError.

Facts = Mapping[tuple[int, int | None], ProcessStatic]
"""The facts of each process, by pid and start time."""
Columns = list[Sequence[Any]]
_UNKNOWN_PROCESS = ProcessStatic()
_MOST_REASONS = 128
_MOST_KNOWN_TEXTS = 4096
_WHOLE = frozenset({int, type(None)})
_FLAG = frozenset({bool, type(None)})


class Layout(Struct, frozen=True):
    """Where a recording's rows hold the columns of a class: a place for each, None for one that was not recorded.

    ``typed`` are the columns whose cells become values of several parts, each with what makes them.
    """

    width: int
    places: tuple[int | None, ...]
    typed: tuple[tuple[int, Callable[[Any], Any]], ...]


def layout_of(names: object, columns: Sequence[RecordedColumn]) -> Layout:
    """Where a recording's columns, by their names, go among the known ones. Raises Damage."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Damage("columns are not a list of names")
    place_of = {name: place for place, name in enumerate(names)}
    places = [place_of.get(c.key) for c in columns]
    typed: list[tuple[int, Callable[[Any], Any]]] = []
    for at, c in enumerate(columns):
        if c.typed is None:
            continue
        if places[at] is None and (place := place_of.get(c.typed.words)) is not None:
            # A recording from before the typed column was.
            places[at] = place
            typed.append((at, c.typed.value_of_words))
        else:
            typed.append((at, c.typed.read))
    return Layout(len(names), tuple(places), tuple(typed))


class RecordedTable:
    """The rows of one class, turned into checked columns. Remembers which texts are clean, not to read them again."""

    def __init__(self, columns: Sequence[RecordedColumn]) -> None:
        self._columns = columns
        kinds: tuple[Check, ...] = ("number", "whole", "flag", "text")
        self._places = [[at for at, column in enumerate(columns) if column.check == check] for check in kinds]
        self._texts: set[str | None] = {None}

    def columns(self, rows: object, layout: Layout, most_rows: int) -> Columns:
        """The columns of one to ``most_rows`` rows. Raises Damage or TypeError for cells of wrong kinds."""
        if not isinstance(rows, list) or not 0 < len(rows) <= most_rows:
            raise Damage("rows are not a list")
        if set(map(type, rows)) != {list} or set(map(len, rows)) != {layout.width}:
            raise Damage("rows do not fit the columns")
        cells = list(zip(*rows, strict=True))
        columns: Columns = [
            (c.default,) * len(rows) if place is None else cells[place]
            for place, c in zip(layout.places, self._columns, strict=True)
        ]
        if not self._sound(columns):
            columns = [
                column if c.typed is not None else [checked(value, c.check) for value in column]
                for column, c in zip(columns, self._columns, strict=True)
            ]
        for at, value_of in layout.typed:
            columns[at] = [None if cell is None else value_of(cell) for cell in columns[at]]
        return columns

    def _sound(self, columns: Columns) -> bool:
        """Whether every cell is of its kind, finite and small.

        All numbers are checked in one call: no magnitude exceeds the Euclidean norm, which refuses non-numbers.
        """
        numbers, wholes, flags, texts = (chain.from_iterable(columns[at] for at in places) for places in self._places)
        words = set(texts)
        if not words <= self._texts:
            if len(self._texts) > _MOST_KNOWN_TEXTS:
                self._texts = {None}
            self._texts.update(text for text in words if isinstance(text, str) and clean_text(text) == text)
            if not words <= self._texts:
                return False
        counts = list(wholes)
        if not (_WHOLE.issuperset(map(type, counts)) and _FLAG.issuperset(map(type, flags))):
            return False
        return hypot(*[v for v in chain(counts, numbers) if v is not None]) < MOST


def _place_of(key: str, columns: Sequence[RecordedColumn]) -> int:
    return next(at for at, column in enumerate(columns) if column.key == key)


_SM_SOURCE = _place_of("sm_source", GPU_COLUMNS)
_PID, _START, _ROLE = (_place_of(key, PROCESS_COLUMNS) for key in ("pid", "starttime", "role"))
_PARTS: Mapping[str, type[FeedTime | MainTime]] = {"feed": FeedTime, "main": MainTime}
_PATHS = {c.path or c.key: at for at, c in enumerate(PROCESS_COLUMNS)}
_PROCESS_FIELDS: Sequence[int | tuple[type[FeedTime | MainTime], list[int]]] = [
    (part, [_PATHS[f"{name}.{state}"] for state in part.__struct_fields__])
    if (part := _PARTS.get(name)) is not None
    else _PATHS[name]
    for name in ProcessSample.__struct_fields__
    if name not in ("static", "unavailable")
]
"""Where each field of a process comes from: a column, or those of a part."""


class FrameRows:
    """The rows of frames as samples. Remembers the reasons that the last frame gave: most frames say the same again."""

    def __init__(self) -> None:
        self._host, self._gpus, self._processes = (
            RecordedTable(HOST_COLUMNS),
            RecordedTable(GPU_COLUMNS),
            RecordedTable(PROCESS_COLUMNS),
        )
        self._last_reasons: tuple[object, list[Mapping[str, str]], Mapping[str, str]] | None = None

    def samples(
        self, parsed: Mapping[str, Any], layouts: tuple[Layout, Layout, Layout], gpus: Sequence[GpuStatic], facts: Facts
    ) -> tuple[HostSample, tuple[GpuSample, ...], tuple[ProcessSample, ...]]:
        """Of host, GPUs and processes, whose columns are laid out so."""
        host_layout, gpu_layout, process_layout = layouts
        cards = parsed.get("gpus", [])
        columns = [] if cards == [] else self._gpus.columns(cards, gpu_layout, len(gpus))
        missing, host_missing = self._reasons(parsed.get("na"), len(columns[0]) if columns else 0)
        if columns:
            columns[_SM_SOURCE] = [source if source in SM_SOURCES else "none" for source in columns[_SM_SOURCE]]
        host = HostSample(unavailable=host_missing)
        if (values := parsed.get("host", [])) != []:
            cells = [column[0] for column in self._host.columns([values], host_layout, 1)]
            host = cast("Callable[..., HostSample]", HostSample)(*cells, host_missing)
        return (
            host,
            tuple(map(cast("Callable[..., GpuSample]", GpuSample), gpus, *columns, missing)) if columns else (),
            self._process_samples(parsed, process_layout, facts),
        )

    def _process_samples(self, parsed: Mapping[str, Any], layout: Layout, facts: Facts) -> tuple[ProcessSample, ...]:
        rows = parsed.get("procs", [])
        # Without pids nothing is known of processes.
        if rows == [] or layout.places[_PID] is None:
            return ()
        columns = self._processes.columns(rows, layout, MOST_PROCESSES)
        if None in columns[_PID]:
            raise Damage("a process without a pid")
        columns[_ROLE] = [role if role in ROLES else "helper" for role in columns[_ROLE]]
        identities = zip(columns[_PID], columns[_START], strict=True)
        statics = [facts.get(identity, _UNKNOWN_PROCESS) for identity in identities]
        missing = [NOTHING_MISSING] * len(statics)
        for words, places in parsed.get("na_procs") or ():
            reasons = _reasons_of(words)
            for place in places:
                missing[place] = reasons
        fields = [
            columns[source] if isinstance(source, int) else map(source[0], *[columns[at] for at in source[1]])
            for source in _PROCESS_FIELDS
        ]
        return tuple(map(cast("Callable[..., ProcessSample]", ProcessSample), *fields, statics, missing))

    def _reasons(self, by_row: object, count: int) -> tuple[Iterable[Mapping[str, str]], Mapping[str, str]]:
        """Why values are missing, for each GPU row and for the host."""
        if by_row is None:
            return repeat(NOTHING_MISSING, count), NOTHING_MISSING
        last = self._last_reasons
        if last is None or last[0] != by_row or len(last[1]) != count:
            if not isinstance(by_row, dict):
                raise Damage("na is not an object")
            of_gpus = [_reasons_of(by_row.get(str(row), {})) for row in range(count)]
            self._last_reasons = last = by_row, of_gpus, _reasons_of(by_row.get("host", {}))
        return last[1], last[2]


def _reasons_of(reasons: object) -> Mapping[str, str]:
    """A map of reasons by key."""
    if not isinstance(reasons, dict) or len(reasons) > _MOST_REASONS:
        raise Damage("reasons are not an object of texts")
    if not all(isinstance(reason, str) for reason in reasons.values()):
        raise Damage("a reason is not a text")
    if not reasons:
        return NOTHING_MISSING
    return MappingProxyType({clean_text(key): clean_text(reason) for key, reason in reasons.items()})


def _facts_of(recorded: object, columns: Sequence[RecordedColumn]) -> dict[str, Any]:
    """Checked facts by key, None where missing. Raises Damage."""
    if not isinstance(recorded, dict):
        raise Damage("facts are not an object")
    return {c.key: _fact(recorded, c) for c in columns}


def _fact(recorded: Mapping[str, Any], column: RecordedColumn) -> Any:
    cell, typed = recorded.get(column.key), column.typed
    if typed is None:
        return checked(cell, column.check)
    words = recorded.get(typed.words)
    try:
        return typed.read(cell) if cell is not None else words and typed.value_of_words(words)
    except (TypeError, ValueError, AttributeError) as error:
        raise Damage(f"{column.key} of wrong parts") from error


# A filter for everything read from a recording: redaction, a choice of GPUs, or both.


class RecordingFilter(Protocol):
    """Changes what was recorded on its way to its readers."""

    def snapshot(self, snapshot: Snapshot) -> Snapshot:
        """The frame as it is to be seen."""
        ...

    def text(self, text: str) -> str:
        """Words of an event as they are to be seen."""
        ...


_MOST_TIME = 1e11
_MOST_EVENTS = 256
_MOST_FACTS = 5120
_INTERVALS = (0.01, 86400.0)


class Decoder:
    """Takes lines in order and gives the snapshots that they make.

    ``damaged`` counts the lines that were dropped. Raises RecordingError for a recording of a newer format. What is
    read is seen through ``recording_filter``, if there is one.
    """

    def __init__(self, recording_filter: RecordingFilter | None = None) -> None:
        self._filter = recording_filter
        self.damaged = 0
        self.frames = 0
        self.interval_s = 1.0
        self.trailing: list[Event] = []
        """Events since the last frame that were part of what was watched; they belong to the next frame."""
        self.derived: list[Event] = []
        """Events since the last frame that were concluded from frames, verdicts above all: a replay draws its own
        conclusions."""
        self.run: RunFacts | None = None
        """What ran, where the recording is that of a program and has been read to its end."""
        self._machine: Machine | None = None
        self._gpus: tuple[GpuStatic, ...] = ()
        self._layouts: tuple[Layout, Layout, Layout] | None = None
        self._facts: dict[tuple[int, int | None], ProcessStatic] = {}
        self._jobs: dict[tuple[str | None, str], str] = {}
        self._job_numbers = count(1)
        self._rows = FrameRows()
        self._last_t: float | None = None
        self._restarted = self._is_other = False
        self._damage = False
        self._beside: dict[str, Any] = {}
        """What the lines since the last frame say of the next one, by the snapshot's field."""

    def note_damage(self) -> None:
        """Note that something before the next frame was lost; that frame will carry a gap."""
        self._damage = True

    def feed(self, line: bytes) -> Snapshot | None:
        """The snapshot that this line completes, if it is a good frame."""
        try:
            parsed = parse_line(line)
            kind = parsed.get("k")
            if kind == "frame":
                return self._frame(parsed)
            if kind == "key":
                self._key(parsed)
            elif kind == "procs":
                self._learn(parsed)
            elif kind == "event":
                self._event(parsed)
            elif isinstance(kind, str) and kind in ROW_LINES:
                self._beside[kind] = rows_beside(kind, parsed)
            elif kind == "run":
                self.run = self._as_seen_through_filter(run_facts(parsed))
        except Damage:
            self.damaged += 1
            self._damage = True
        return None

    def _as_seen_through_filter(self, facts: RunFacts) -> RunFacts:
        if self._filter is None:
            return facts
        program = facts.command.split(None, 1)[0].rpartition("/")[2] if facts.command.split() else ""
        return replace(facts, command=self._filter.text(program))

    def alone(self, frame: dict[str, Any]) -> Snapshot | None:
        """The snapshot of what a frame's line holds, as if none came before. None where it is damaged."""
        self._last_t, self._damage = None, False
        try:
            return self._frame(frame)
        except Damage:
            self.trailing.clear()
            return None

    def _key(self, parsed: dict[str, Any]) -> None:
        version = parsed.get("v")
        if type(version) is not int or version < 1:
            raise Damage("no version")
        if version > VERSION:
            raise RecordingError(
                f"recorded in format {version}, this gputop reads format {VERSION}: update gputop to read it"
            )
        layouts = (
            layout_of(parsed.get("host_cols", []), HOST_COLUMNS),
            layout_of(parsed.get("gpu_cols", []), GPU_COLUMNS),
            layout_of(parsed.get("proc_cols", []), PROCESS_COLUMNS),
        )
        statics = tuple(_gpu_static(facts, at) for at, facts in enumerate(rows_of(parsed, "gpus", MOST_GPUS)))
        boot, host, driver = (checked(parsed.get(key), "text") for key in ("boot", "host", "driver"))
        interval = checked(parsed.get("interval"), "number")
        if self._machine is not None and boot != self._machine.boot_id:
            self._restarted = True
        if self._machine is not None and (host or "unknown") != self._machine.hostname:
            self._is_other = True
        self._machine = Machine(host or "unknown", boot, driver, "recorded")
        if interval is not None and _INTERVALS[0] <= interval <= _INTERVALS[1]:
            self.interval_s = float(interval)
        # The same GPUs keep the same objects, so that a consumer may compare them by identity.
        if statics != self._gpus:
            self._gpus = statics
        self._layouts = layouts
        self._facts.clear()
        self._learn(parsed)

    def _learn(self, parsed: dict[str, Any]) -> None:
        """Take what a line says of processes."""
        for recorded in rows_of(parsed, "procs", _MOST_FACTS):
            facts = _facts_of(recorded, PROCESS_FACTS)
            pid, start = (checked(recorded.get(key), "whole") for key in ("pid", "starttime"))
            self._facts[(pid, start)] = self._static(facts)
            if len(self._facts) > _MOST_FACTS:
                del self._facts[next(iter(self._facts))]

    def _static(self, facts: dict[str, Any]) -> ProcessStatic:
        """Facts of a process. What the recording left unmasked is masked here, once missing facts are drawn."""
        command = facts["command"]
        if command is not None and facts["job_key"] is None:
            if len(self._jobs) > _MOST_FACTS:
                self._jobs.clear()
            facts["job_key"] = self._jobs.setdefault((facts["user"], command), f"recorded-{next(self._job_numbers)}")
            facts["server"] = facts["server"] or server_in(command.split())
            if facts["why"] is None and (reason := not_a_loader(command)) is not None:
                facts["why"] = why_words(NEVER, reason)
        facts["rule"] = facts["rule"] or rule_in(facts["why"] or "")
        return ProcessStatic(**{key: value and _masked(value) for key, value in facts.items()})

    def _event(self, parsed: dict[str, Any]) -> None:
        kind, text = parsed.get("kind"), checked(parsed.get("text"), "text")
        if not isinstance(kind, str) or kind not in EVENT_KINDS:
            raise Damage("an event of an unknown kind")
        gpu = checked(parsed.get("gpu"), "whole")
        xid = checked(parsed.get("xid"), "whole")
        verdict, flag = (checked(parsed.get(key), "text") for key in ("verdict", "flag"))
        if xid is None and verdict is None:
            xid, verdict, flag = event_parts(kind, text or "")
        words = masked_text(text or "")
        if self._filter is not None:
            words = self._filter.text(words)
        event = Event(float(number(parsed.get("t"))), cast(Any, kind), words, gpu, xid, verdict, flag)
        events = self.derived if kind == "verdict" or parsed.get("derived") is True else self.trailing
        if len(events) < _MOST_EVENTS:
            events.append(event)

    def _frame(self, parsed: dict[str, Any]) -> Snapshot:
        """The snapshot of a line."""
        machine, layouts = self._machine, self._layouts
        if machine is None or layouts is None:
            raise Damage("a frame before any key")
        t = number(parsed.get("t"))
        if not 0.0 < t < _MOST_TIME:
            raise Damage("a time that cannot be")
        try:
            host, gpus, processes = self._rows.samples(parsed, layouts, self._gpus, self._facts)
            late = parsed.get("stale")
            stale = {clean_text(k): float(number(v)) for k, v in late.items()} if late else {}
            repeats = tuple(name for name in COLLECTORS if name in parsed.get("repeats", ()))
            notices = tuple(clean_text(text) for text in parsed.get("notices", ()))
        except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
            raise Damage("a frame of wrong types") from error
        events = tuple(self.trailing)
        gap = self._gap(t)
        self.trailing.clear()
        self.derived.clear()
        self._last_t = t
        self._restarted = self._is_other = self._damage = False
        self.frames += 1
        beside, self._beside = self._beside, {}
        snapshot = Snapshot(
            t=float(t),
            machine=machine,
            gpus=gpus,
            processes=processes,
            host=host,
            interval_s=self.interval_s,
            events=events if gap is None else (gap, *events),
            stale=stale,
            notices=notices,
            repeats=repeats,
            **beside,
        )
        return snapshot if self._filter is None else self._filter.snapshot(snapshot)

    def lost_end(self, t: float) -> tuple[Event, ...]:
        """The gap left by damage after the last frame, whose time is ``t``: no later frame carries it."""
        return (Event(t, "gap", "the recording is damaged after this", is_damage=True),) if self._damage else ()

    def _gap(self, t: float) -> Event | None:
        last = self._last_t
        if last is None:
            return Event(t, "gap", "the recording is damaged before this", is_damage=True) if self._damage else None
        lost = t - last
        if self._is_other:
            # Without its name, which a redacted recording does not tell.
            return Event(t, "gap", "another machine from here on")
        if self._restarted:
            return Event(t, "gap", "the machine was restarted")
        if lost == 0.0:
            return Event(t, "gap", "the clock stood still")
        if lost < 0.0:
            back = f"{-lost:.0f}" if lost <= -1.0 else f"{-lost:.3g}"
            return Event(t, "gap", f"the clock was set back by {back} s")
        if self._damage:
            return Event(t, "gap", f"no data for {lost:.0f} s: the recording is damaged here", is_damage=True)
        if lost > GAP_INTERVALS * self.interval_s:
            return Event(t, "gap", f"no data for {lost:.0f} s")
        return None


def _masked(fact: Any) -> Any:
    return masked_text(fact) if isinstance(fact, str) else CgroupName(masked_text(fact.kind), masked_text(fact.id))


def _gpu_static(recorded: object, place: int) -> GpuStatic:
    facts = _facts_of(recorded, GPU_FACTS)
    facts["index"] = place if facts["index"] is None else facts["index"]
    facts["uuid"] = facts["uuid"] or f"unknown-{place}"
    facts["name"] = facts["name"] or "unknown GPU"
    return GpuStatic(**facts)
