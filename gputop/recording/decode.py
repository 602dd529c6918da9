"""Convert lines of a recording to snapshots with visible gaps.

A line that does not follow the format is dropped and counted, never half believed.
"""

from __future__ import annotations

from itertools import chain, repeat
from typing import Protocol

from msgspec.structs import force_setattr, replace

from gputop.model.quantity import count
from gputop.model.snapshot import (
    GAP_INTERVALS,
    UNKNOWN_PROCESS,
    Event,
    GpuSample,
    GpuStatic,
    Machine,
    ProcessStatic,
    Snapshot,
)
from gputop.recording.check import OtherFormat, decode_line
from gputop.recording.device_health import LOST_HEALTH, with_health
from gputop.recording.format import (
    VERSION,
    Damage,
    HealthLine,
    MachineLine,
    ProcessLine,
    RunFacts,
)

_MOST_EVENTS = 256
_MOST_PROCESSES = 5120
_UNNAMED = MachineLine(VERSION).hostname
_FRAME = b'{"k":"frame"'
_WITHOUT_HEALTH = (_FRAME, b'{"k":"process"', b'{"k":"event"', b'{"k":"run"')
"""Begins of lines that are none of health, whatever is damaged behind."""


_PROCESSES = b'"processes"'
_OURS = "gputop "
NO_PROCESSES = "the recording says nothing of processes"


def _completed(
    gpu: GpuSample, static: GpuStatic, health: GpuSample | None, *, has_processes: bool
) -> GpuSample:
    """A GPU with its facts and health, and the reason where its frame does not speak of processes."""
    if health is not None:
        gpu = with_health(gpu, health)
    if has_processes:
        return replace(gpu, static=static)
    return replace(gpu, static=static, unavailable={**gpu.unavailable, "processes": NO_PROCESSES})


class RecordingFilter(Protocol):
    """Changes recorded contents for readers: redaction, GPU selection, or both."""

    def snapshot(self, snapshot: Snapshot) -> Snapshot:
        """Return the frame as readers see it."""
        ...

    def text(self, text: str) -> str:
        """Return the text of an event as readers see it."""
        ...


class LineDecoder:
    """Decodes lines in order into snapshots.

    Raises RecordingError for a recording of another format: one that says so before its first machine line. Later such
    a line is damage. Readers see the contents through ``recording_filter``.
    """

    def __init__(
        self,
        recording_filter: RecordingFilter | None = None,
        *,
        from_start: bool = True,
        refuses_formats: bool = True,
    ) -> None:
        """Create a decoder.

        ``from_start``: the first line is the first of its file, so that lost frames can be counted.
        ``refuses_formats``: the first line is the first of the recording, so that it tells the format.
        """
        self._refuses_formats = refuses_formats
        self._filter = recording_filter
        self.damaged = 0
        """Dropped lines."""
        self.reason = ""
        """The fault of the first dropped line or member."""
        self._latest_reason = ""
        """The fault of the first one since the last frame."""
        self.trailing: list[Event] = []
        """Measured events since the last frame; they belong to the next."""
        self.run: RunFacts | None = None
        """The program that was recorded, once its line has been read."""
        self._head: MachineLine | None = None
        self._is_other_format = False
        """Whether the frames that follow belong to a machine line of another format."""
        self._machine = Machine("unknown")
        self._gpus: tuple[GpuStatic, ...] = ()
        self._facts: dict[tuple[int, int | None], ProcessStatic] = {}
        self._health: tuple[GpuSample, ...] = ()
        """The newest health of each GPU; empty where frames have it themselves, as those of 1.0."""
        self._last_t: float | None = None
        self._restarted = self._is_other = self._has_damage = False
        self._frames: int | None = 0 if from_start else None
        """Frames of the file so far; None while unknown."""
        self._lost_frames = 0

    def note_damage(self, reason: str) -> None:
        """Note lost data, so that the next frame carries a gap."""
        if not self._has_damage:
            self._latest_reason = reason
        self._health = (LOST_HEALTH,) * len(self._health)
        self._has_damage = True
        self.reason = self.reason or reason

    def feed(self, line: bytes) -> Snapshot | None:
        """Decode one line; return the snapshot it completes, if any."""
        try:
            value = decode_line(line)
            if isinstance(value, Snapshot):
                return self._frame(value, has_processes=_PROCESSES in line)
        except OtherFormat as error:
            if self._refuses_formats:
                raise
            self._drop(line, str(error))
            self._is_other_format |= not self._is_about_the_same(error)
            return None
        except Damage as damage:
            self._drop(line, str(damage))
            return None
        if isinstance(value, MachineLine):
            self._begin_member(value)
        elif isinstance(value, ProcessLine):
            self._facts[value.pid, value.starttime] = value.static
            if len(self._facts) > _MOST_PROCESSES:
                del self._facts[next(iter(self._facts))]
        elif isinstance(value, HealthLine):
            self._health = value.gpus
        elif isinstance(value, Event):
            self._event(value)
        elif isinstance(value, RunFacts):
            self.run = self._filtered_run(value)
        return None

    def _drop(self, line: bytes, reason: str) -> None:
        """Count a line that is left out."""
        self.damaged += 1
        health = self._health
        self.note_damage(reason)
        if line.startswith(_WITHOUT_HEALTH):
            self._health = health
        if self._frames is not None and line.startswith(_FRAME):
            self._frames += 1

    def _is_about_the_same(self, other: OtherFormat) -> bool:
        """Return whether a line of another format leaves the machine as it is.

        So does a stray line; where it names another machine or other GPUs, the frames after it are not of this one.
        """
        if other.version < VERSION:
            return True
        if other.head is None or self._head is None:
            return False
        is_same_machine = other.head.hostname in (self._head.hostname, _UNNAMED)
        return is_same_machine and other.head.gpus in (self._head.gpus, ())

    def _filtered_run(self, run: RunFacts) -> RunFacts:
        if self._filter is None:
            return run
        program = run.command.split(None, 1)[0].rpartition("/")[2] if run.command.split() else ""
        return replace(run, command=self._filter.text(program))

    def _begin_member(self, head: MachineLine) -> None:
        before = self._head
        if before is not None:
            self._restarted |= head.boot_id != before.boot_id
            self._is_other |= head.hostname != before.hostname
        if self._frames is not None:
            self._lost_frames += max(0, head.frames_before - self._frames)
        self._refuses_formats = self._is_other_format = False
        self._head, self._frames = head, head.frames_before
        self._machine = Machine(head.hostname, head.boot_id, head.driver, "recorded")
        # The same GPUs keep the same objects, so that consumers may compare them by identity.
        if head.gpus != self._gpus:
            self._gpus = head.gpus
        self._facts.clear()
        self._health = ()

    def _event(self, event: Event) -> None:
        is_measured = event.kind != "verdict" and not event.derived
        if is_measured and len(self.trailing) < _MOST_EVENTS:
            text = event.text if self._filter is None else self._filter.text(event.text)
            self.trailing.append(replace(event, text=text))

    def _frame(self, frame: Snapshot, *, has_processes: bool) -> Snapshot:
        """Complete a frame with facts from earlier lines.

        Without ``has_processes`` the frame says nothing of processes, not that there are none. Raises Damage.
        """
        if self._head is None:
            raise Damage("a frame before any machine line")
        if self._is_other_format:
            raise Damage("a frame of another format")
        if len(frame.gpus) > len(self._gpus):
            raise Damage("more GPUs than the machine line has")
        interval_s = self._head.interval_s
        gap = self._gap(frame.t, interval_s)
        events = tuple(self.trailing)
        # gputop itself leaves the key out where there is no process.
        tells_processes = has_processes or self._head.made_by.startswith(_OURS)
        for p in frame.processes:
            # In place: nobody else has these objects yet, and copies of 4096 take longer than decoding them.
            force_setattr(p, "static", self._facts.get((p.pid, p.starttime), UNKNOWN_PROCESS))
        snapshot = replace(
            frame,
            machine=self._machine,
            gpus=tuple(
                _completed(gpu, static, health, has_processes=tells_processes)
                for gpu, static, health in zip(
                    frame.gpus, self._gpus, chain(self._health, repeat(None)), strict=False
                )
            ),
            interval_s=interval_s,
            events=events if gap is None else (gap, *events),
        )
        self.trailing.clear()
        self._last_t = frame.t
        self._restarted = self._is_other = self._has_damage = False
        self._lost_frames = 0
        if self._frames is not None:
            self._frames += 1
        return snapshot if self._filter is None else self._filter.snapshot(snapshot)

    def lost_end(self, t: float) -> tuple[Event, ...]:
        """Return a gap event for damage after the last frame.

        ``t`` is the time of that frame.
        """
        if not self._has_damage:
            return ()
        why = self._latest_reason
        text = f"the recording is damaged after this: {why if self._filter is None else self._filter.text(why)}"
        return (Event(t, "gap", text, is_damage=True),)

    def _gap(self, t: float, interval_s: float) -> Event | None:
        """Return the gap since the last frame, if any.

        ``t`` is the time of the new frame.
        """
        last = self._last_t
        are = "is" if self._lost_frames == 1 else "are"
        lost = f": {count(self._lost_frames, 'frame')} {are} lost" if self._lost_frames else ""
        if last is None:
            text = f"the recording is damaged before this{lost}"
            return Event(t, "gap", text, is_damage=True) if self._has_damage else None
        seconds = t - last
        if self._is_other:
            # Without the machine's name: a redacted recording does not have it.
            return Event(t, "gap", "another machine from here on")
        if self._restarted:
            return Event(t, "gap", "the machine was restarted")
        if seconds == 0.0:
            return Event(t, "gap", "the clock stood still")
        if seconds < 0.0:
            back = f"{-seconds:.0f}" if seconds <= -1.0 else f"{-seconds:.3g}"
            return Event(t, "gap", f"the clock was set back by {back} s")
        if self._has_damage:
            text = f"no data for {seconds:.0f} s: the recording is damaged here{lost}"
            return Event(t, "gap", text, is_damage=True)
        if seconds > GAP_INTERVALS * interval_s:
            return Event(t, "gap", f"no data for {seconds:.0f} s")
        return None
