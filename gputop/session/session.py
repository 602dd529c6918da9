"""A run being watched, one snapshot after the other: the same steps for the screen, a recording and a job.

Knows no source: it is handed what was measured. Imports what recording and remembering need only when they begin, so
that the first frame does not wait for it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.derived import POWER_BRAKE, THERMAL, throttle_words
from gputop.model.inspection import ProcessIdentity
from gputop.model.secret_marks import MASK
from gputop.model.snapshot import Event, EventKind, GpuSample, ProcessSample, Snapshot
from gputop.model.source import Source
from gputop.monitor import MOST_GPUS, Frame, Monitor, SmSources

if TYPE_CHECKING:
    from gputop.model.alert_board import AlertBoard
    from gputop.recording.recent_past import Memory, OlderFrames, Past
    from gputop.recording.recorder import Recorder


# Frames to events worth a line in a recording: what changed, was lost, slowed down or erred.
#
# They mark places in a recording to jump to; a replay derives its own again. Pure.

_SLOWED = THERMAL | POWER_BRAKE
"""Thermal slowdown and power brake; a power cap is how a busy GPU normally runs."""


class FrameEvents:
    """Takes frames in order and gives the events that each adds to those of its snapshot."""

    def __init__(self) -> None:
        self._verdicts: dict[str, tuple[str, str | None]] = {}
        self._standing: set[tuple[EventKind, str]] = set()
        """What holds of which GPU, by its UUID."""
        self._errors: dict[str, int] = {}
        self._sources = SmSources()

    def of(self, frame: Frame) -> list[Event]:
        """The events between the frame before and this one. Those that the source reported are not repeated."""
        t = frame.snapshot.t
        reported = {(event.kind, event.gpu) for event in frame.snapshot.events}
        events: list[Event] = []
        for gpu, diagnosis in zip(frame.snapshot.gpus, frame.diagnoses, strict=False):
            index = gpu.static.index
            events += [Event(t, kind, text, index) for kind, text in self._health(gpu)]
            events += self._verdict(t, index, diagnosis)
            if (switch := self._sources.switch(gpu)) is not None:
                events.append(Event(t, "mark", switch, index))
        if len(self._verdicts) > max(MOST_GPUS, len(frame.snapshot.gpus)):
            self._forget_all_but({gpu.static.uuid for gpu in frame.snapshot.gpus})
        return [event for event in events if (event.kind, event.gpu) not in reported]

    def _forget_all_but(self, uuids: set[str]) -> None:
        self._standing = {(kind, uuid) for kind, uuid in self._standing if uuid in uuids}
        for uuid in self._verdicts.keys() - uuids:
            del self._verdicts[uuid]
            self._errors.pop(uuid, None)
            self._sources.forget(uuid)

    def _verdict(self, t: float, gpu: int, diagnosis: GpuDiagnosis) -> list[Event]:
        now = verdict, flag = diagnosis.verdict, diagnosis.busy_not_working
        if self._verdicts.get(diagnosis.uuid) == now:
            return []
        self._verdicts[diagnosis.uuid] = now
        words = verdict if flag is None else f"{verdict} {flag}"
        return [Event(t, "verdict", words, gpu, verdict=verdict, flag=flag)]

    def _health(self, gpu: GpuSample) -> list[tuple[EventKind, str]]:
        uuid = gpu.static.uuid
        events: list[tuple[EventKind, str]] = []
        if self._begins("gpu_lost", uuid, holds=gpu.lost_reason is not None):
            events.append(("gpu_lost", gpu.lost_reason or ""))
        slowed = (gpu.throttle_reasons or 0) & _SLOWED
        if self._begins("throttle", uuid, holds=slowed != 0):
            events.append(("throttle", ", ".join(throttle_words(slowed))))
        if gpu.ecc_uncorrected is not None:
            before = self._errors.get(uuid)
            self._errors[uuid] = gpu.ecc_uncorrected
            if before is not None and gpu.ecc_uncorrected > before:
                events.append(("ecc", f"{gpu.ecc_uncorrected - before} new uncorrected memory errors"))
        return events

    def _begins(self, kind: EventKind, uuid: str, *, holds: bool) -> bool:
        """Whether a condition has begun to hold."""
        held = (kind, uuid) in self._standing
        (self._standing.add if holds else self._standing.discard)((kind, uuid))
        return holds and not held


# The run itself, and what looks at every frame of it.


class RunWatcher(Protocol):
    """What a feature adds to a run that is being watched: alerts, judged at every frame."""

    messages: deque[str]
    """Lines for the user that wait to be shown, the oldest first."""

    def take(self, frame: Frame) -> None:
        """Look at one more frame. Never waits."""

    def board(self) -> AlertBoard:
        """Where everything stands, for the findings page."""
        ...

    def close(self) -> None:
        """The run is over."""


def _rounding() -> Callable[[Snapshot], Snapshot]:
    from gputop.recording.rounding import rounded

    return rounded


class Session:
    """Gives a frame for each snapshot, and keeps what was asked for: the last minutes, a recording, or both."""

    def __init__(self, monitor: Monitor, earlier: Callable[[], Iterable[OlderFrames]] | None = None) -> None:
        """``earlier`` gives what came before the first snapshot that is remembered, where a source can tell that."""
        self.monitor = monitor
        self._earlier = earlier
        self._memory: Memory | None = None
        self._recorder: Recorder | None = None
        self._events: FrameEvents | None = None
        self._round: Callable[[Snapshot], Snapshot] | None = None
        self.alerts: RunWatcher | None = None
        """What looks at every frame besides, if there is anything."""

    def take(self, snapshot: Snapshot) -> Frame:
        """Take one more snapshot; return its frame. Never waits for a disk.

        Values are rounded as a recording or the memory holds them: a verdict at the edge of a threshold must be the
        same in a replay.
        """
        if self._round is not None:
            snapshot = self._round(snapshot)
        if self._memory is not None:
            self._memory.add(snapshot, self.monitor.judgement)
        frame = self.monitor.feed(snapshot)
        if frame.periods is not snapshot.periods:
            snapshot = replace(snapshot, periods=frame.periods)
        if self._recorder is not None and self._events is not None:
            snapshot = replace(snapshot, lasting=self.monitor.lasting())
            self._recorder.offer(snapshot, self._events.of(frame))
        if self.alerts is not None:
            self.alerts.take(frame)
        return frame

    def note(self, event: Event) -> None:
        """An event that no snapshot carries, such as a mark after the last one."""
        if self._recorder is not None:
            self._recorder.event(event)

    def remember(self) -> None:
        """Keep the last minutes from now on, the newest snapshot included."""
        from gputop.recording.recent_past import Memory

        self._memory = Memory()
        self._round = _rounding()
        if self.monitor.latest is not None:
            self._memory.add(self._round(self.monitor.latest.snapshot), lambda: None)

    def past(self) -> Past | None:
        """The last minutes, frozen; None where nothing is remembered."""
        if self._memory is not None and self._earlier is not None:
            # Not at the start: what may never be used must not delay the first frame.
            self._memory.begin_with(self._earlier())
            self._earlier = None
        return None if self._memory is None else self._memory.past()

    def record(self, recorder: Recorder) -> None:
        """Record what comes from now on. One recording at a time: the one before is no longer offered anything."""
        self._recorder, self._events = recorder, FrameEvents()
        self._round = _rounding()

    def stop_recording(self) -> Recorder | None:
        """End the recording, if one is under way. The recorder is the caller's again, to close and to ask."""
        recorder, self._recorder, self._events = self._recorder, None, None
        if self._memory is None:
            self._round = None
        return recorder

    @property
    def recorder(self) -> Recorder | None:
        """The recording under way."""
        return self._recorder


# Frames for this machine's own screen with the secrets on command lines, for users who set ``show_secrets``.
#
# Recordings, pictures and everything sent on use the masked frames; these are painted and forgotten.

CommandOf = Callable[[ProcessIdentity], str | None]
"""The command line of a process of this machine: None until it has been read, empty where it cannot be."""


class Revealed:
    """Replaces masked command lines by the real ones; the same frame gives the same object."""

    def __init__(self, command_of: CommandOf) -> None:
        self._command_of = command_of
        self._masked: Frame | None = None
        self._shown: Frame | None = None
        self._awaited: list[ProcessIdentity] = []

    def frame(self, masked: Frame) -> Frame:
        """The frame to paint. Commands that were not read yet come with a later call."""
        news = any(self._command_of(identity) is not None for identity in self._awaited)
        if masked is not self._masked or self._shown is None or news:
            self._masked = masked
            self._awaited = []
            processes = tuple(map(self._process, masked.snapshot.processes))
            self._shown = replace(masked, snapshot=replace(masked.snapshot, processes=processes))
        return self._shown

    def _process(self, process: ProcessSample) -> ProcessSample:
        if MASK not in (process.static.command or ""):
            return process
        identity = ProcessIdentity(process.pid, process.starttime)
        command = self._command_of(identity)
        if command is None:
            self._awaited.append(identity)
        return replace(process, static=replace(process.static, command=command)) if command else process


# Snapshots cut down to the GPUs that one job uses, from the job's own start on those GPUs.

HELD_FRAMES = 100
"""Frames kept until the job first uses a GPU, so that its start-up on that GPU is not lost."""


class OwnGpus:
    """``is_member`` says whether a process on a GPU is of the job, ``is_pid_member`` whether a pid is."""

    def __init__(self, is_member: Callable[[ProcessSample], bool], is_pid_member: Callable[[int], bool]) -> None:
        self._is_member = is_member
        self._is_pid_member = is_pid_member
        self._uuids: set[str] = set()
        self._held_back: deque[Snapshot] = deque(maxlen=HELD_FRAMES)

    @property
    def any(self) -> bool:
        """Whether the job has used a GPU yet."""
        return bool(self._uuids)

    def take(self, snapshot: Snapshot) -> list[Snapshot]:
        """The snapshots to use: none before the job has used a GPU, then those held back and this one, cut down."""
        used = {p.gpu for p in snapshot.processes if p.role == "gpu" and self._is_member(p)}
        first = not self._uuids
        self._uuids.update(gpu.static.uuid for gpu in snapshot.gpus if gpu.static.index in used)
        if not self._uuids:
            self._held_back.append(snapshot)
            return []
        earlier = [self._cut(held_back) for held_back in self._held_back] if first else []
        self._held_back.clear()
        return [*earlier, self._cut(snapshot)]

    def _cut(self, snapshot: Snapshot) -> Snapshot:
        gpus = tuple(gpu for gpu in snapshot.gpus if gpu.static.uuid in self._uuids)
        indices = {gpu.static.index for gpu in gpus}
        return replace(
            snapshot,
            gpus=gpus,
            processes=tuple(process for process in snapshot.processes if process.gpu in indices),
            events=tuple(event for event in snapshot.events if event.gpu is None or event.gpu in indices),
            steps=tuple(row for row in snapshot.steps if self._is_pid_member(row.pid)),
        )


# The loop of every run that is watched: wait for a source, take what is new.


class Arrivals:
    """The snapshots of one source as they come. ``wake`` ends a wait early; a caller's own event may set it, too."""

    def __init__(self, source: Source, wake: threading.Event | None = None) -> None:
        self.source = source
        self.wake = wake or threading.Event()

    def start(self) -> None:
        """Begin to measure. Raises what ``source.start`` raises."""
        self.source.start(self.wake.set)

    def new(self) -> Iterator[Snapshot]:
        """Every snapshot that was not taken yet. Never waits."""
        while (snapshot := self.source.poll()) is not None:
            yield snapshot

    def wait(self, most_s: float) -> Iterator[Snapshot]:
        """Wait until something is new, but at most for ``most_s`` seconds, and give what is new: it may be nothing.

        A signal handler sets only the flag that its run looks at: short waits let the run see it.
        """
        self.wake.wait(most_s)
        self.wake.clear()
        yield from self.new()
