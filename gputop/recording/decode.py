"""Lines of a recording to snapshots: columns mapped by name, every value checked, gaps made visible.

A line that is not what the format says is dropped and counted, never half believed. Values of a frame are checked
column by column at C speed, because a day of frames must be read in well under a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count, repeat
from typing import Any, Protocol, cast

from msgspec.structs import replace

from gputop.model.feeders import NEVER, not_a_loader, server_in, why_words
from gputop.model.quantity import clean_text
from gputop.model.secrets import masked_text
from gputop.model.serving import ServerRow
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
    Lasting,
    Machine,
    MainTime,
    ProcessSample,
    ProcessStatic,
    Snapshot,
)
from gputop.model.steps import StepPeriod, StepRow
from gputop.recording.encode import Encoder, event_line, frame_line
from gputop.recording.format import (
    GPU_COLUMNS,
    GPU_FACTS,
    HOST_COLUMNS,
    MEMBER_FRAMES,
    MOST_GPUS,
    MOST_PROCESSES,
    PROCESS_COLUMNS,
    PROCESS_FACTS,
    VERSION,
    Damage,
    Layout,
    RecordedTable,
    RecordingError,
    checked,
    facts_of,
    layout_of,
    number,
    parse_line,
    step_rows,
    words_of,
)
from gputop.recording.lines_beside_frames import RunFacts, lasting_rows, period_rows, run_facts, server_rows
from gputop.recording.typed_cells import event_parts, rule_in

# The rows of a frame to samples: checked columns, the reasons why values are missing, defaults for unknown columns.
#
# Whatever does not follow the format raises Damage, TypeError, ValueError, AttributeError or IndexError.

Facts = Mapping[tuple[int, int | None], ProcessStatic]
"""The facts of each process, by pid and start time."""
Columns = Sequence[Sequence[Any]]
Layouts = tuple[Layout, Layout, Layout]
"""Of host, GPUs and processes."""
_UNKNOWN_PROCESS = ProcessStatic()
_SM_SOURCE = next(i for i, c in enumerate(GPU_COLUMNS) if c.key == "sm_source")
_ROLE = next(i for i, c in enumerate(PROCESS_COLUMNS) if c.key == "role")
_PLACES = {c.path or c.key: i for i, c in enumerate(PROCESS_COLUMNS)}
_PARTS: Mapping[str, type[FeedTime | MainTime]] = {"feed": FeedTime, "main": MainTime}
_PROCESS_FIELDS: Sequence[int | tuple[type[FeedTime | MainTime], list[int]]] = [
    (part, [_PLACES[f"{name}.{state}"] for state in part.__struct_fields__])
    if (part := _PARTS.get(name)) is not None
    else _PLACES[name]
    for name in ProcessSample.__struct_fields__
    if name not in ("static", "unavailable")
]
"""Where each field of a process comes from: a column, or those of a part."""


class RowReader:
    """Remembers which texts are clean and which reasons the last frame gave: most frames say the same again."""

    def __init__(self) -> None:
        self._tables = RecordedTable(), RecordedTable(), RecordedTable()
        self._na: tuple[object, list[Mapping[str, str]], Mapping[str, str]] | None = None

    def columns(self, parsed: Mapping[str, Any], layouts: Layouts, gpus: int) -> list[Columns]:
        """The checked columns of host, GPUs and processes of a frame with so many GPUs at most; none without rows."""
        host, cards, processes = parsed.get("host", []), parsed.get("gpus", []), parsed.get("procs", [])
        # Without pids nothing is known of processes.
        tables = [] if host == [] else [host], cards, [] if layouts[2].sources[0][0] is None else processes
        return [
            [] if rows == [] else table.columns(rows, layout, most_rows)
            for table, rows, layout, most_rows in zip(
                self._tables, tables, layouts, (1, gpus, MOST_PROCESSES), strict=True
            )
        ]

    def reasons(self, reasons_by_row: object, count: int) -> tuple[Iterable[Mapping[str, str]], Mapping[str, str]]:
        """Why values are missing, for each GPU row and for the host. The same text as before is not read again."""
        if reasons_by_row is None:
            return repeat(NOTHING_MISSING, count), NOTHING_MISSING
        if self._na is None or self._na[0] != reasons_by_row or len(self._na[1]) != count:
            if not isinstance(reasons_by_row, dict) or count > MOST_GPUS:
                raise Damage("na is not an object")
            by_row = [words_of(reasons_by_row.get(str(row), {})) for row in range(count)]
            self._na = (reasons_by_row, by_row, words_of(reasons_by_row.get("host", {})))
        return self._na[1], self._na[2]

    def gpus(
        self, columns: Columns, layout: Layout, gpus: Sequence[GpuStatic], missing: Iterable[Mapping[str, str]]
    ) -> tuple[GpuSample, ...]:
        """The samples of a frame's GPUs, one for each of ``gpus``, with the reasons ``missing`` gives."""
        if not columns:
            return ()
        fills = _fills(columns, layout)
        fills[_SM_SOURCE] = [s if s in SM_SOURCES else "none" for s in _first(fills[_SM_SOURCE], columns)]
        return tuple(map(cast("Callable[..., GpuSample]", GpuSample), gpus, *fills, missing))

    def processes(
        self, columns: Columns, layout: Layout, facts: Facts, reasons_with_rows: object
    ) -> tuple[ProcessSample, ...]:
        """The samples of a frame's processes; ``reasons_with_rows`` lists reasons with the rows that they hold for."""
        pid, start = layout.sources[0][0], layout.sources[1][0]
        if not columns or pid is None:
            return ()
        if None in columns[pid]:
            raise Damage("a process without a pid")
        fills = _fills(columns, layout)
        fills[_ROLE] = [role if role in ROLES else "helper" for role in _first(fills[_ROLE], columns)]
        starts = columns[start] if start is not None else repeat(None)
        statics = [facts.get(identity, _UNKNOWN_PROCESS) for identity in zip(columns[pid], starts, strict=False)]
        missing: Iterable[Mapping[str, str]] = repeat(NOTHING_MISSING)
        if reasons_with_rows:
            by_row = [NOTHING_MISSING] * len(statics)
            for words, places in cast(Any, reasons_with_rows):
                reasons = words_of(words)
                for place in places:
                    by_row[place] = reasons
            missing = by_row
        return tuple(map(cast("Callable[..., ProcessSample]", ProcessSample), *_in_parts(fills), statics, missing))

    def host(self, columns: Columns, layout: Layout, missing: Mapping[str, str]) -> HostSample:
        """The sample of a frame's host."""
        if not columns:
            return HostSample(unavailable=missing)
        values = [default if place is None else columns[place][0] for place, default in layout.sources]
        return cast("Callable[..., HostSample]", HostSample)(*values, missing)


def _fills(columns: Sequence[Sequence[Any]], layout: Layout) -> list[Iterable[Any]]:
    """For each field of the class its column, or its default repeated."""
    return [repeat(default) if place is None else columns[place] for place, default in layout.sources]


def _in_parts(fills: Sequence[Iterable[Any]]) -> list[Iterable[Any]]:
    """The fills of a process's columns as those of its fields: the columns of one part become that part."""
    fields: list[Iterable[Any]] = []
    for source in _PROCESS_FIELDS:
        if isinstance(source, int):
            fields.append(fills[source])
        else:
            part, places = source
            there = any(not isinstance(fills[place], repeat) for place in places)
            fields.append(map(part, *[fills[place] for place in places]) if there else repeat(part()))
    return fields


def _first(fill: Iterable[Any], columns: Sequence[Sequence[Any]]) -> Iterable[Any]:
    """A fill cut to the number of rows: a default repeats without end."""
    return (value for value, _ in zip(fill, columns[0], strict=False))


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
        self._layouts: Layouts | None = None
        self._facts: dict[tuple[int, int | None], ProcessStatic] = {}
        self._jobs: dict[tuple[str | None, str], str] = {}
        self._job_numbers = count(1)
        self._rows = RowReader()
        self._last_t: float | None = None
        self._restarted = self._is_other = False
        self._damage = False
        self._steps: tuple[StepRow, ...] = ()
        self._servers: tuple[ServerRow, ...] = ()
        self._periods: tuple[StepPeriod, ...] = ()
        self._lasting: tuple[Lasting, ...] = ()

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
                self._learn(parsed.get("procs"))
            elif kind == "event":
                self._event(parsed)
            elif kind == "steps":
                self._steps = step_rows(parsed)
            elif kind == "servers":
                self._servers = server_rows(parsed)
            elif kind == "periods":
                self._periods = period_rows(parsed)
            elif kind == "lasting":
                self._lasting = lasting_rows(parsed)
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

    def alone(self, line: bytes) -> Snapshot | None:
        """The snapshot of a frame that follows none: it has no gap. None where it is damaged."""
        self._last_t, self._damage = None, False
        snapshot = self.feed(line)
        if snapshot is None:
            self.trailing.clear()
        return snapshot

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
        gpus = parsed.get("gpus", [])
        if not isinstance(gpus, list) or len(gpus) > MOST_GPUS:
            raise Damage("gpus are not a list")
        statics = tuple(_gpu_static(facts, place) for place, facts in enumerate(gpus))
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
        self._learn(parsed.get("procs", []))

    def _learn(self, processes: object) -> None:
        if not isinstance(processes, list):
            raise Damage("procs are not a list")
        facts = self._facts
        for facts_of_process in processes:
            if not isinstance(facts_of_process, dict):
                raise Damage("a process is not an object")
            pid, start = (
                checked(facts_of_process.get("pid"), "whole"),
                checked(facts_of_process.get("starttime"), "whole"),
            )
            facts[(pid, start)] = self._static(facts_of(facts_of_process, PROCESS_FACTS))
            if len(facts) > _MOST_FACTS:
                del facts[next(iter(facts))]

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
        rows = self._rows
        try:
            columns = rows.columns(parsed, layouts, len(self._gpus))
            count = len(columns[1][0]) if columns[1] else 0
            missing, host_missing = rows.reasons(parsed.get("na"), count)
            host = rows.host(columns[0], layouts[0], host_missing)
            gpus = rows.gpus(columns[1], layouts[1], self._gpus, missing)
            processes = rows.processes(columns[2], layouts[2], self._facts, parsed.get("na_procs"))
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
        steps, self._steps = self._steps, ()
        servers, self._servers = self._servers, ()
        periods, self._periods = self._periods, ()
        lasting, self._lasting = self._lasting, ()
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
            steps=steps,
            servers=servers,
            periods=periods,
            lasting=lasting,
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
    facts = facts_of(recorded, GPU_FACTS)
    facts["index"] = place if facts["index"] is None else facts["index"]
    facts["uuid"] = facts["uuid"] or f"unknown-{place}"
    facts["name"] = facts["name"] or "unknown GPU"
    return GpuStatic(**facts)


# Snapshots as a recording will give them back, for a monitor that runs beside the recorder.
#
# A verdict at the edge of a threshold must be the same live and in the replay, so what is recorded is rounded before it
# is diagnosed: its line is written and read back. The line is kept for the file and for the memory.


class Rounder:
    """Rounds the snapshots of one run, one after the other."""

    def __init__(self) -> None:
        self._encoder = Encoder()
        self._decoder = Decoder()
        self._frames = 0
        """Frames since encoder and decoder were last replaced: both remember every process they have seen."""

    def take(self, snapshot: Snapshot) -> tuple[Snapshot, bytes]:
        """The snapshot as it would be read back, but of its own machine and with what is only shown live; and its line.

        Raises RecordingError for one that no recording can hold.
        """
        encoder, decoder = self._encoder, self._decoder
        lines: list[bytes] = []
        if self._frames >= MEMBER_FRAMES or not encoder.fits(snapshot):
            lines, self._frames = encoder.key_lines(snapshot), 0
        self._frames += 1
        for line in (*lines, *encoder.introductions(snapshot), *map(event_line, snapshot.events)):
            decoder.feed(line)
        line = frame_line(snapshot)
        back = decoder.alone(line)
        if back is None:
            if snapshot.t < 0.0:
                raise RecordingError(
                    "this machine's clock is set before 1970, which no recording holds: set it to today"
                )
            raise RecordingError("a snapshot outside what can be recorded")
        return _live(back, snapshot), line


def _live(back: Snapshot, snapshot: Snapshot) -> Snapshot:
    """What is shown live and not recorded, beside what was read back."""
    return replace(
        back, machine=snapshot.machine, own=snapshot.own, steps=snapshot.steps, servers=snapshot.servers,
        periods=snapshot.periods,
        fabric_ports=snapshot.fabric_ports,
    )  # fmt: skip
