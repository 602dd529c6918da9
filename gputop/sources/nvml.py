"""The NVML session: opened once, kept open, read by one thread at a time.

A call that hangs holds up one GPU, not the others: the watchdog calls ``supersede``, the hung GPU is set aside, and a
new thread goes on with the rest. The old thread hands its GPU back when the call returns. Asks nothing of /proc.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import Protocol

import pynvml
from msgspec import Struct

from gputop.model.snapshot import Event, GpuSample, GpuStatic
from gputop.sources.activity.ladder import Rung
from gputop.sources.base import SourceError
from gputop.sources.collector import Retired
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.nvml_calls import Calls
from gputop.sources.nvml_device import Device, MoreRungs
from gputop.sources.nvml_errors import DEMO, cannot_start, printable
from gputop.sources.nvml_xid import XidWatch
from gputop.sources.selection import choose

XID_ON_PARENT = "reported on the whole GPU"


class Reading(Struct, frozen=True):
    """One pass over the chosen GPUs, at Unix time ``t``."""

    t: float
    gpus: tuple[GpuSample, ...]
    processes: tuple[GpuProcess, ...]
    events: tuple[Event, ...] = ()
    notices: tuple[str, ...] = ()


class _Part(Protocol):
    """Something whose calls may hang."""

    calls: Calls
    stuck: bool


def no_more_rungs(_gpu: GpuStatic) -> list[Rung]:
    return []


class NvmlSession:
    """All GPUs of this machine through NVML. Threads take turns by ticket: only the newest ticket reads."""

    def __init__(
        self,
        interval_s: float = 1.0,
        gpus: str | None = None,
        cuda_visible: str | None = None,
        more_rungs: MoreRungs = no_more_rungs,
    ) -> None:
        self.driver: str | None = None
        self.nvml_version: str | None = None
        self.devices: list[Device] = []
        self._interval_s = interval_s
        self._spec = gpus
        self._cuda_visible = cuda_visible
        self._more_rungs = more_rungs
        self._open = False
        self._whole = 0
        self._looked = 0
        self._chosen: tuple[Device, ...] | None = None
        self._xids = XidWatch()
        self._read_before = False
        self._lost_since: dict[int, float] = {}
        self._lock = Lock()
        self._ticket = 0
        self._current: _Part | None = None

    def open(self) -> None:
        """Start NVML and count the GPUs. Raises SourceError when there is nothing to measure."""
        try:
            if not self._open:
                pynvml.nvmlInit()
                self._open = True
            self._whole = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise cannot_start(error.value) from error
        self.driver = _version(pynvml.nvmlSystemGetDriverVersion)
        self.nvml_version = _version(pynvml.nvmlSystemGetNVMLVersion)
        if self._whole == 0:
            raise SourceError(
                f"the NVIDIA driver shows no GPU: see nvidia-smi -L, or the container's GPU options; {DEMO}"
            )
        self.devices = [Device(i, self._interval_s, self.driver, self._more_rungs) for i in range(self._whole)]

    @property
    def ticket(self) -> int:
        return self._ticket

    @property
    def ready(self) -> bool:
        """Whether all GPUs were looked for and the choice is made."""
        return self._chosen is not None

    def find(self, ticket: int, t: float) -> None:
        """Find every GPU and its MIG devices, then choose. Raises UsageError, and Retired after a hang."""
        while self._looked < self._whole:
            device = self.devices[self._looked]
            self._looked += 1
            with self._turn(ticket, device):
                device.find(monotonic(), t)
                slots = device.mig_slots()
            for slot in slots:
                child = Device(len(self.devices), self._interval_s, self.driver, self._more_rungs, device, slot)
                with self._turn(ticket, device):
                    child.find(monotonic(), t)
                self.devices.append(child)
        if self._chosen is None:
            positions = choose([device.static for device in self.devices], self._spec, self._cuda_visible)
            self._chosen = tuple(self.devices[i] for i in positions)

    def read(self, ticket: int, t: float) -> Reading:
        """Read all chosen GPUs. Raises Retired when another thread has taken over meanwhile."""
        events: list[Event] = []
        samples: list[GpuSample] = []
        # Watching begins with the second read: the first picture can do without.
        if self._read_before and not self._xids.stuck:
            with self._turn(ticket, self._xids):
                if not self._xids.opened:
                    self._xids.open((d.static.uuid, d.calls.handle) for d in self.devices[: self._whole] if d.found)
                seen = self._xids.poll(monotonic())
            indices = {d.static.uuid: d.static.index for d in self.devices} if seen else {}
            events += [Event(t, "xid", f"Xid {xid}", indices.get(uuid)) for uuid, xid in seen]
        for device in self._chosen or ():
            if device.stuck:
                sample = self._hung_sample(device, t)
            else:
                xid = self._xids.state(device.static.uuid) if device.static.mig_parent is None else XID_ON_PARENT
                with self._turn(ticket, device):
                    sample = device.read(monotonic(), t, xid)
            samples.append(sample)
            index = device.static.index
            if sample.lost_reason is None:
                self._lost_since.pop(index, None)
            elif index not in self._lost_since:
                self._lost_since[index] = sample.lost_since or t
                events.append(Event(t, "gpu_lost", sample.lost_reason, index))
        self._read_before = True
        return Reading(t, tuple(samples), self._processes(), tuple(events), self._notices())

    def _processes(self) -> tuple[GpuProcess, ...]:
        return tuple(p for device in self._chosen or () if not device.stuck for p in device.processes)

    def _notices(self) -> tuple[str, ...]:
        troubled: dict[str, list[str]] = {}
        for device in self._chosen or ():
            if device.process_trouble is not None and device.lost is None:
                troubled.setdefault(device.process_trouble, []).append(str(device.static.index))
        notices = [f"GPU {', '.join(on)}: no process list: {why}" for why, on in troubled.items()]
        if not self._chosen and self.ready:
            notices.append(
                f"CUDA_VISIBLE_DEVICES={self._cuda_visible} hides every GPU: leave out --visible to see them"
            )
        return tuple(notices)

    def _hung_sample(self, device: Device, t: float) -> GpuSample:
        age = max(0.0, monotonic() - device.calls.call_since)
        why = f"NVML call {device.calls.call or 'of this GPU'} has not returned for {age:.0f} s"
        return device.lost_sample(why, self._lost_since.get(device.static.index, t - age))

    def hung_s(self) -> float | None:
        """For how long the call in flight has not returned, in seconds; None when none is in flight."""
        part = self._current
        return None if part is None or part.calls.call is None else monotonic() - part.calls.call_since

    def supersede(self, limit_s: float) -> int | None:
        """Set the part aside whose call hangs for longer than ``limit_s``; the ticket for the thread that goes on.

        None when no call of a GPU hangs. Called from the watchdog's thread.
        """
        with self._lock:
            age, part = self.hung_s(), self._current
            if part is None or age is None or age < limit_s:
                return None
            part.stuck = True
            self._current = None
            self._ticket += 1
            return self._ticket

    def _turn(self, ticket: int, part: _Part) -> _Turn:
        return _Turn(self, ticket, part)

    def enter(self, ticket: int, part: _Part) -> None:
        """Begin calls on one part; Retired when this thread's time is over."""
        with self._lock:
            if ticket != self._ticket:
                raise Retired
            self._current = part

    def leave(self, ticket: int, part: _Part) -> None:
        """End calls on one part. A thread that was superseded hands its part back and stops."""
        with self._lock:
            if ticket != self._ticket:
                part.stuck = False
                raise Retired
            self._current = None

    def close(self) -> None:
        """Free all samples, then shut NVML down; on the reading thread. Left alone while any call hangs."""
        if not self._open or any(device.stuck for device in self.devices) or self._xids.stuck:
            return
        self._open = False
        self._xids.close()
        for device in self.devices:
            device.close()
        # Nothing is left to do for a driver that does not even let us go.
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


class _Turn:
    """``with`` around the calls on one part."""

    __slots__ = ("_part", "_session", "_ticket")

    def __init__(self, session: NvmlSession, ticket: int, part: _Part) -> None:
        self._session, self._ticket, self._part = session, ticket, part

    def __enter__(self) -> None:
        self._session.enter(self._ticket, self._part)

    def __exit__(self, *_: object) -> None:
        self._session.leave(self._ticket, self._part)


def _version(ask: Callable[[], str | bytes]) -> str | None:
    """A version in words; None where the driver does not tell, which is no reason not to measure."""
    try:
        return printable(str(ask()))
    except pynvml.NVMLError:
        return None
