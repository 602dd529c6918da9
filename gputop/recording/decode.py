"""Lines of a recording to snapshots: columns mapped by name, every value checked, gaps made visible.

A line that is not what the format says is dropped and counted, never half believed. Values of a frame are checked
column by column at C speed, because a day of frames must be read in well under a minute.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, cast

from gputop.model.command_facts import not_a_loader, server_in
from gputop.model.secrets import masked_text
from gputop.model.snapshot import (
    COLLECTORS,
    EVENT_KINDS,
    GAP_INTERVALS,
    Event,
    GpuStatic,
    Machine,
    ProcessStatic,
    Snapshot,
)
from gputop.model.steps import StepRow
from gputop.model.text import clean_text
from gputop.recording.cells import FrameColumns
from gputop.recording.checks import checked, facts_of, layout_of, number, parse_line
from gputop.recording.format import (
    GPU_COLUMNS,
    GPU_FACTS,
    HOST_COLUMNS,
    MOST_GPUS,
    PROCESS_COLUMNS,
    PROCESS_FACTS,
    VERSION,
    Damage,
    RecordingError,
)
from gputop.recording.rows import Layouts, Rows
from gputop.recording.step_lines import step_rows

if TYPE_CHECKING:
    from gputop.recording.lens import Lens

_MOST_TIME = 1e11
_MOST_EVENTS = 256
_MOST_FACTS = 5120
_INTERVALS = (0.01, 86400.0)


class Decoder:
    """Takes lines in order and gives the snapshots that they make.

    ``damaged`` counts the lines that were dropped. Raises RecordingError for a recording of a newer format. What is
    read is seen through ``lens``, if there is one.
    """

    def __init__(self, lens: Lens | None = None) -> None:
        self._lens = lens
        self.damaged = 0
        self.frames = 0
        self.interval_s = 1.0
        self.trailing: list[Event] = []
        """Events since the last frame that were part of what was watched; they belong to the next frame."""
        self.derived: list[Event] = []
        """Events since the last frame that were concluded from frames, verdicts above all: a replay concludes anew."""
        self._machine: Machine | None = None
        self._gpus: tuple[GpuStatic, ...] = ()
        self._layouts: Layouts | None = None
        self._facts: dict[tuple[int, int | None], ProcessStatic] = {}
        self._jobs: dict[tuple[str | None, str], str] = {}
        self._job_numbers = count(1)
        self._rows = Rows()
        self._last_t: float | None = None
        self._restarted = False
        self._damage = False
        self._steps: tuple[StepRow, ...] = ()

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
        except Damage:
            self.damaged += 1
            self._damage = True
        return None

    def alone(self, read: FrameColumns) -> Snapshot | None:
        """The snapshot of a frame that was read already and follows none: it has no gap. None where it is damaged."""
        self._last_t = None
        try:
            return self._frame(read.rest, read)
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
        gpus = parsed.get("gpus", [])
        if not isinstance(gpus, list) or len(gpus) > MOST_GPUS:
            raise Damage("gpus are not a list")
        statics = tuple(_gpu_static(given, place) for place, given in enumerate(gpus))
        boot, host, driver = (checked(parsed.get(key), "text") for key in ("boot", "host", "driver"))
        interval = checked(parsed.get("interval"), "number")
        if self._machine is not None and boot != self._machine.boot_id:
            self._restarted = True
        self._machine = Machine(host or "unknown", boot, driver, "recorded")
        if interval is not None and _INTERVALS[0] <= interval <= _INTERVALS[1]:
            self.interval_s = float(interval)
        # The same GPUs keep the same objects, so that a consumer may compare them by identity.
        if statics != self._gpus:
            self._gpus = statics
        self._layouts = layouts
        self._facts.clear()
        self._learn(parsed.get("procs", []))

    def _learn(self, given: object) -> None:
        if not isinstance(given, list):
            raise Damage("procs are not a list")
        facts = self._facts
        for each in given:
            if not isinstance(each, dict):
                raise Damage("a process is not an object")
            pid, start = checked(each.get("pid"), "whole"), checked(each.get("starttime"), "whole")
            facts[(pid, start)] = self._static(facts_of(each, PROCESS_FACTS))
            if len(facts) > _MOST_FACTS:
                del facts[next(iter(facts))]

    def _static(self, facts: dict[str, str | None]) -> ProcessStatic:
        """Facts of a process. What the recording left unmasked is masked here, once missing facts are drawn."""
        command = facts["command"]
        if command is not None and facts["job_key"] is None:
            if len(self._jobs) > _MOST_FACTS:
                self._jobs.clear()
            facts["job_key"] = self._jobs.setdefault((facts["user"], command), f"recorded-{next(self._job_numbers)}")
            facts["server"] = facts["server"] or server_in(command.split())
            facts["why"] = facts["why"] or not_a_loader(command)
        return ProcessStatic(**{key: value and masked_text(value) for key, value in facts.items()})

    def _event(self, parsed: dict[str, Any]) -> None:
        kind, text = parsed.get("kind"), checked(parsed.get("text"), "text")
        if not isinstance(kind, str) or kind not in EVENT_KINDS:
            raise Damage("an event of an unknown kind")
        gpu = checked(parsed.get("gpu"), "whole")
        words = masked_text(text or "")
        if self._lens is not None:
            words = self._lens.text(words)
        event = Event(float(number(parsed.get("t"))), cast(Any, kind), words, gpu)
        events = self.derived if kind == "verdict" or parsed.get("derived") is True else self.trailing
        if len(events) < _MOST_EVENTS:
            events.append(event)

    def _frame(self, parsed: dict[str, Any], read: FrameColumns | None = None) -> Snapshot:
        """The snapshot of a line, or of columns and what else it says."""
        machine, layouts = self._machine, self._layouts
        if machine is None or layouts is None:
            raise Damage("a frame before any key")
        t = number(parsed.get("t"))
        if not 0.0 < t < _MOST_TIME:
            raise Damage("a time that cannot be")
        rows = self._rows
        try:
            columns = rows.columns(parsed, layouts, len(self._gpus)) if read is None else rows.of_columns(read, layouts)
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
        self._restarted = self._damage = False
        self.frames += 1
        steps, self._steps = self._steps, ()
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
        )
        return snapshot if self._lens is None else self._lens.snapshot(snapshot)

    def lost_end(self, t: float) -> tuple[Event, ...]:
        """The gap left by damage after the last frame, whose time is ``t``: no later frame carries it."""
        return (Event(t, "gap", "the recording is damaged after this"),) if self._damage else ()

    def _gap(self, t: float) -> Event | None:
        last = self._last_t
        if last is None:
            return Event(t, "gap", "the recording is damaged before this") if self._damage else None
        lost = t - last
        if self._restarted:
            return Event(t, "gap", "the machine was restarted")
        if lost <= 0.0:
            return Event(t, "gap", f"the clock was set back by {-lost:.0f} s")
        if self._damage:
            return Event(t, "gap", f"no data for {lost:.0f} s: the recording is damaged here")
        if lost > GAP_INTERVALS * self.interval_s:
            return Event(t, "gap", f"no data for {lost:.0f} s")
        return None


def _gpu_static(given: object, place: int) -> GpuStatic:
    facts = facts_of(given, GPU_FACTS)
    facts["index"] = place if facts["index"] is None else facts["index"]
    facts["uuid"] = facts["uuid"] or f"unknown-{place}"
    facts["name"] = facts["name"] or "unknown GPU"
    return GpuStatic(**facts)
