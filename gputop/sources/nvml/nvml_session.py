"""Keeps one NVML session, read by one thread at a time.

A hanging call holds up one GPU, not the others: the watchdog calls ``supersede``, the hung GPU is set aside, and a new
thread goes on with the rest. The old thread hands its GPU back when the call returns. Never reads /proc.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from time import monotonic

import pynvml

from gputop.model.snapshot import Event, GpuSample
from gputop.model.source import SourceError, UsageError
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.nvml.gpu_device import Device, GpusReading, MoreSmReaders, Pass
from gputop.sources.nvml.gpu_inventory import GpuInventory, MayHang, kernel_gpus
from gputop.sources.nvml.gpu_sleep import Sleep
from gputop.sources.nvml.nvml_errors import cannot_start, reason
from gputop.sources.nvml.xid_watch import XidWatch
from gputop.sources.selection import MachineOptions, choose
from gputop.sources.surroundings import DEMO, is_wsl, limits_here
from gputop.system.worker import Retired

SOON_S = 1.0
"""How soon it is refreshed after a GPU was lost."""
COUNT_S = 0.9
"""How often the GPUs are counted: at each of ticks that are a second apart. One call, and two lists of the kernel."""
XID_ON_PARENT = "reported on the whole GPU"


class NvmlSession:
    """All GPUs of this machine through NVML.

    Threads take turns by ticket: only the newest ticket reads.
    """

    def __init__(self, options: MachineOptions, more_sm_readers: MoreSmReaders) -> None:
        self._options = options
        self._cuda_visible = os.environ.get("CUDA_VISIBLE_DEVICES") if options.visible else None
        self._look_at = self._count_at = float("-inf")
        self._sleep = Sleep(options.sys, lets_go=options.lets_sleep)
        self.inventory = GpuInventory(
            lambda index, parent, uuid: Device(index, options, more_sm_readers, parent, uuid),
            self._turn,
            lambda: kernel_gpus(options.proc),
            self._sleep,
        )
        self._chosen: tuple[Device, ...] = ()
        self.ready = False
        """Whether all GPUs were looked for and the choice is made."""
        self._not_chosen: str | None = None
        self._xids = XidWatch()
        self._xids_due = self._read_before = False
        self._lost_since: dict[int, float] = {}
        self._lock = Lock()
        self._is_wsl = is_wsl()
        self.ticket = 0
        self._pass = Pass()
        self._current: MayHang | None = None

    def look(self, ticket: int, t: float) -> None:
        """Find the GPUs and choose.

        The first time SourceError says that there is nothing to measure, UsageError that the choice is wrong; later
        both are states of the GPUs. Raises Retired after a hang.
        """
        inventory, now = self.inventory, monotonic()
        if inventory.stuck:
            return
        if self.ready and self._must_start_again():
            self._shut(ticket)
        before = inventory.handles()
        try:
            inventory.take(ticket, now, t)
        except pynvml.NVMLError as error:
            if not self.ready:
                raise cannot_start(error.value) from error
            for device in inventory.devices:
                if device.stale and not device.stuck and device.state != "asleep":
                    device.lose(reason(error.value), t)
        if not inventory.devices:
            raise SourceError(
                f"the NVIDIA driver shows no GPU: see nvidia-smi -L, or the container's GPU options; {DEMO}"
            )
        if not self.ready or inventory.handles() != before:
            self._choose()
        self._look_at = now + self._options.look_s
        self._count_at = now + COUNT_S

    def _must_start_again(self) -> bool:
        """Whether NVML must be restarted.

        True when all its GPUs are lost, or the kernel shows others. A reloaded driver has forgotten this session; and
        an open session prevents reloading or resetting the driver.
        """
        if not self.inventory.is_open or self._hangs():
            return False
        are_lost = bool(self._chosen) and all(device.state == "lost" for device in self._chosen)
        return are_lost or self.inventory.kernel_has_changed()

    def _hangs(self) -> bool:
        return (
            self.inventory.stuck
            or self._xids.stuck
            or any(device.stuck for device in self.inventory.devices)
        )

    def _choose(self) -> None:
        devices = self.inventory.devices
        self._not_chosen = None
        try:
            positions = choose(
                [device.static for device in devices], self._options.gpus, self._cuda_visible
            )
        except UsageError as error:
            # A GPU that has not been awake yet is known by its index alone.
            if not self.ready and not any(
                device.state == "asleep" and not device.times_found for device in devices
            ):
                raise
            positions, self._not_chosen = (), str(error)
        self._xids_due = True
        self._chosen, self.ready = tuple(devices[i] for i in positions), True

    def read(self, ticket: int, t: float) -> GpusReading:
        """Read all chosen GPUs and refresh the list when due.

        Raises Retired when another thread took over.
        """
        if self._is_look_due(ticket):
            self.look(ticket, t)
        events: list[Event] = []
        under_way = self._pass = Pass()
        # Watching for Xids begins with the second read: the first picture does not need it.
        if self._read_before and self.inventory.is_open and not self._xids.stuck:
            with self._turn(ticket, self._xids):
                if self._xids_due:
                    self._xids_due = False
                    self._xids.close()
                    whole = [
                        (d.static.uuid, d.handle.raw)
                        for d in self.inventory.whole
                        if d.times_found and not d.stale
                    ]
                    self._xids.open(whole, monotonic())
                xids = self._xids.poll(monotonic())
            indices = (
                {d.static.uuid: d.static.index for d in self.inventory.devices} if xids else {}
            )
            events += [
                Event(t, "xid", f"Xid {xid}", indices.get(uuid), xid=xid) for uuid, xid in xids
            ]
        has_refreshed = False
        for device in self._chosen:
            if device not in self._chosen:
                continue
            index = device.static.index
            sample = self._sample(ticket, device, t)
            is_news = sample.lost_reason is not None and index not in self._lost_since
            if is_news and device.parent is not None and not has_refreshed:
                # A destroyed MIG instance is not lost, so the list is refreshed before a loss is reported.
                has_refreshed = True
                self.look(ticket, t)
                if device not in self._chosen:
                    continue
            under_way.samples.append(sample)
            if sample.lost_reason is None:
                self._lost_since.pop(index, None)
            elif is_news:
                self._lost_since[index] = sample.lost_since or t
                self._look_at = min(self._look_at, monotonic() + SOON_S)
                events.append(Event(t, "gpu_lost", sample.lost_reason, index))
        self._read_before = True
        events += [Event(t, "gpu_lost", text, index) for index, text in self.inventory.departed]
        self.inventory.departed.clear()
        samples, hung = tuple(under_way.samples), tuple(under_way.hung)
        reading = GpusReading(t, samples, self._processes(), tuple(events), self._notices(), hung)
        self._let_sleep(
            ticket, used=bool(reading.processes) or any(gpu.util_pct for gpu in samples)
        )
        return reading

    def _is_look_due(self, ticket: int) -> bool:
        """Whether the list of GPUs is to be refreshed now.

        They are counted once a second, so that a new GPU is soon seen.
        """
        now, inventory = monotonic(), self.inventory
        has_slept = self._sleep.read()
        if has_slept or self._sleep.falls_asleep or now >= self._look_at:
            return True
        if now < self._count_at or not inventory.is_open:
            return False
        self._count_at = now + COUNT_S
        if self._hangs():
            return False
        return inventory.kernel_has_changed() or inventory.has_other_count(ticket)

    def _let_sleep(self, ticket: int, *, used: bool) -> None:
        """Close NVML where no GPU was used for long and all may sleep."""
        now = monotonic()
        if (
            not self.inventory.is_open
            or self._hangs()
            or not self._sleep.is_time_to_let_go(now, used=used)
        ):
            return
        self._shut(ticket)
        self._sleep.let_go(now)

    def progress(self) -> GpusReading:
        """Return the state of the current or last pass."""
        statics, samples = (
            tuple(device.static for device in self._chosen),
            tuple(self._pass.samples),
        )
        return GpusReading(
            0.0, samples, self._processes(), hung=tuple(self._pass.hung), chosen=statics
        )

    def ask_seldom(self, ticket: int, t: float) -> None:
        """Ask for values that no picture waits for, after a reading.

        Raises Retired as ``read`` does.
        """
        for device in self._chosen:
            if (
                device.stuck
                or (device.stale and self.inventory.stuck)
                or not device.asks_seldom(monotonic())
            ):
                continue
            with self._turn(ticket, device):
                device.ask_seldom(monotonic(), t)

    def _sample(self, ticket: int, device: Device, t: float) -> GpuSample:
        if device.stuck or (device.stale and self.inventory.stuck):
            self._pass.hung.append(device.static.index)
            return self._hung_sample(device if device.stuck else self.inventory, device, t)
        xid = (
            self._xids.state(device.static.uuid)
            if device.static.mig_parent is None
            else XID_ON_PARENT
        )
        with self._turn(ticket, device):
            return device.read(monotonic(), t, xid)

    def _processes(self) -> tuple[GpuProcess, ...]:
        return tuple(p for device in self._chosen if not device.stuck for p in device.processes)

    def _notices(self) -> tuple[str, ...]:
        troubled: dict[str, list[str]] = {}
        for device in self._chosen:
            if device.process_trouble is not None and device.state != "lost":
                troubled.setdefault(device.process_trouble, []).append(str(device.static.index))
        notices = [f"GPU {', '.join(on)}: no process list: {why}" for why, on in troubled.items()]
        notices += limits_here(
            [device.static.index for device in self._chosen if device.vgpu], wsl=self._is_wsl
        )
        if self._not_chosen is not None:
            notices.append(self._not_chosen)
        elif not self._chosen and self.ready:
            notices.append(
                f"CUDA_VISIBLE_DEVICES={self._cuda_visible} hides every GPU: leave out --visible to see them"
            )
        return tuple(notices)

    def _hung_sample(self, part: MayHang, device: Device, t: float) -> GpuSample:
        age = max(0.0, monotonic() - part.handle.call_since)
        # Many return after seconds: nothing that would end a running job is advised.
        remedy = "a driver that hangs for minutes shows in dmesg and ends with a reboot"
        why = (
            f"NVML call {part.handle.call or 'of this GPU'} has not returned for {age:.0f} s; "
            f"{remedy}"
        )
        return device.lost_sample(why, self._lost_since.get(device.static.index, t - age))

    def supersede(self, limit_s: float) -> int | None:
        """Set aside a part whose call hangs longer than ``limit_s``.

        Returns the ticket of the next thread, None when no call of a GPU hangs. Called from the watchdog's thread.
        """
        with self._lock:
            part = self._current
            if (
                part is None
                or part.handle.call is None
                or monotonic() - part.handle.call_since < limit_s
            ):
                return None
            if part is self.inventory and not self.inventory.devices:
                # At the start there is nothing else to read.
                return None
            part.stuck = True
            self._current = None
            self.ticket += 1
            return self.ticket

    @contextmanager
    def _turn(self, ticket: int, part: MayHang) -> Iterator[None]:
        """Run calls on one part.

        Raises Retired when this thread was superseded: it hands its part back and stops.
        """
        with self._lock:
            if ticket != self.ticket:
                raise Retired
            self._current = part
        try:
            yield
        finally:
            with self._lock:
                if ticket != self.ticket:
                    part.stuck = False
                    raise Retired
                self._current = None

    def close(self) -> None:
        """Free all samples and shut NVML down, unless a call hangs.

        Call it on the reading thread.
        """
        if self.inventory.is_open and not self._hangs():
            self._shut(self.ticket)

    def _shut(self, ticket: int) -> None:
        with self._turn(ticket, self._xids):
            self._xids.close()
        # Nothing can be done about a driver that cannot even be shut down.
        with suppress(pynvml.NVMLError):
            self.inventory.shut(ticket)
