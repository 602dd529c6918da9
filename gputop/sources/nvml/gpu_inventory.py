"""Finds GPUs and MIG devices, at the start and regularly after."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import pynvml

from gputop.model.clean_text import clean_text
from gputop.sources.nvml.gpu_device import Device
from gputop.sources.nvml.gpu_sleep import ASLEEP, RELEASED, Sleep
from gputop.sources.nvml.handle import Handle
from gputop.sources.pci_cards import PciCard, kernel_address
from gputop.sources.procfs import names_in

MOST_LEFT = 256
"""How many MIG devices that are gone would get their old number back."""
GONE = "gone: the driver no longer shows this GPU (unplugged, or taken from this container)"


class MayHang(Protocol):
    """Protocol of a part whose calls may hang."""

    handle: Handle
    stuck: bool


Turn = Callable[[int, MayHang], AbstractContextManager[None]]
MakeDevice = Callable[[int, Device | None, str | None], Device]


def kernel_gpus(proc: str = "/proc", dev: str = "/dev") -> frozenset[str]:
    """Return the kernel's names of GPUs, which change with the GPUs.

    NVML may count GPUs only when it starts, so a change is a reason to restart it.
    """
    return frozenset(names_in(f"{proc}/driver/nvidia/gpus")) | {
        name for name in names_in(dev) if name.startswith("nvidia") and name[6:].isdecimal()
    }


class GpuInventory:
    """Starts NVML, counts the GPUs and shuts NVML down.

    Every call into NVML is made in a turn (``turn(ticket, part)``), so that a hanging call costs only its GPU; an
    interrupted ``take`` is simply repeated. A GPU is known by its UUID. Its index is NVML's when it is first seen and
    stays while we run; NVML's own may move when a GPU comes or goes.
    """

    def __init__(
        self, make: MakeDevice, turn: Turn, shown: Callable[[], frozenset[str]], sleep: Sleep
    ) -> None:
        self.handle = Handle(None)
        self.stuck = False
        """Set by the session while a call on the driver as a whole does not return."""
        self.is_open = False
        self.driver: str | None = None
        self.nvml_version: str | None = None
        self.devices: list[Device] = []
        self.departed: list[tuple[int, str]] = []
        """(index of its GPU, text) of each MIG device that has gone; the reader removes them."""
        self._make = make
        self._turn = turn
        self._shown = shown
        self._sleep = sleep
        self._seen_shown: frozenset[str] = frozenset()
        self._count = -1
        self._slots: dict[int, Device] = {}
        self._indices: set[int] = set()
        self._index_of_left: dict[str, int] = {}

    @property
    def whole(self) -> list[Device]:
        """Return the devices that are whole GPUs."""
        return [device for device in self.devices if device.parent is None]

    def handles(self) -> tuple[tuple[int, int], ...]:
        """Return a value that changes with every handle or device."""
        return tuple((device.static.index, device.times_found) for device in self.devices)

    def kernel_has_changed(self) -> bool:
        """Whether the kernel shows other GPUs than at NVML's start."""
        return self._shown() != self._seen_shown

    def has_other_count(self, ticket: int) -> bool:
        """Whether the driver counts more or fewer GPUs than were found.

        False where it does not answer: the next look at the GPUs says why.
        """
        with self._turn(ticket, self):
            try:
                count: int = self.handle.run_bare("nvmlDeviceGetCount")
            except pynvml.NVMLError:
                return False
        return count != self._count

    def take(self, ticket: int, now: float, t: float) -> None:
        """Start NVML if needed and find new, lost or split GPUs.

        ``now`` is monotonic, ``t`` Unix time. NVML is left alone while all GPUs sleep, or fall asleep. Raises
        NVMLError when NVML does not start or count; errors of a single GPU stay with that GPU.
        """
        self._sleep.find()
        self._sleep.read()
        if not self.is_open and self._are_all_shown() and self._sleep.waits(now):
            for slot, card in enumerate(self._sleep.cards):
                why = ASLEEP if card.address in self._sleep.asleep else RELEASED
                self._device_of(slot, card).fall_asleep(why, card)
            return
        with self._turn(ticket, self):
            self._open()
        with self._turn(ticket, self):
            count = self.handle.run_bare("nvmlDeviceGetCount")
        whole = self.whole
        if count != self._count:
            # A GPU that comes or goes may cost all others their handles (NVML's text on nvmlDeviceDiscoverGpus).
            for device in whole:
                device.stale = True
        if self._sleep.asleep and len(self._sleep.cards) == count:
            self._walk_awake(ticket, t)
            self._count = count
        elif count != self._count or any(device.is_due for device in whole):
            self._walk(ticket, count, t)
            self._count = count
        for device in self.whole:
            self._take_instances(ticket, device, now, t)

    def shut(self, ticket: int) -> None:
        """Free all resources and shut NVML down.

        The driver can then be fixed or reloaded.
        """
        for device in self.devices:
            with self._turn(ticket, device):
                device.close()
        with self._turn(ticket, self):
            self.is_open = False
            self._count = -1
            self.handle.run_bare("nvmlShutdown")

    def _open(self) -> None:
        if self.is_open:
            return
        self.handle.run_bare("nvmlInit")
        self.is_open = True
        self._seen_shown = self._shown()
        self.driver = self._version("nvmlSystemGetDriverVersion")
        self.nvml_version = self._version("nvmlSystemGetNVMLVersion")

    def _version(self, name: str) -> str | None:
        """Return a version as text, None where the driver gives none."""
        try:
            return clean_text(str(self.handle.run_bare(name))).strip()
        except pynvml.NVMLError:
            return None

    def _walk(self, ticket: int, count: int, t: float) -> None:
        """Ask for the GPU at each of NVML's indices.

        A GPU that is gone is lost.
        """
        present = [self._meet(ticket, slot, t) for slot in range(count)]
        self._slots = dict(enumerate(present))
        for device in self.whole:
            if device in present or device.stuck:
                continue
            if device.times_found:
                device.lose(GONE, t)
            else:
                self._drop(device)

    def _are_all_shown(self) -> bool:
        """Whether this program may use every card of the bus.

        A container may be given some of them, or none.
        """
        files = [name for name in self._shown() if name.startswith("nvidia")]
        return not files or len(files) == len(self._sleep.cards)

    def _device_of(self, slot: int, card: PciCard) -> Device:
        """Return the device of a card.

        The one that had its address, else the one in its slot, unless that has another address.
        """
        by_address = {kernel_address(device.static.pci_bus_id): device for device in self.whole}
        device = by_address.get(card.address) or self._slots.get(slot)
        if device is None or kernel_address(device.static.pci_bus_id) not in (None, card.address):
            device = self._add(slot)
        self._slots[slot] = device
        return device

    def _walk_awake(self, ticket: int, t: float) -> None:
        """Find the GPUs that are awake by their addresses.

        NVML's indices do not say which GPU a call would wake.
        """
        for slot, card in enumerate(self._sleep.cards):
            device = self._device_of(slot, card)
            if card.address in self._sleep.asleep:
                device.fall_asleep(ASLEEP, card)
            elif device.is_due:
                self._find(ticket, device, card.address, t)

    def _meet(self, ticket: int, slot: int, t: float) -> Device:
        """Return the device at an index: known there, known elsewhere, or new."""
        device = self._slots.get(slot) or self._add(slot)
        self._slots[slot] = device
        uuid = self._find(ticket, device, slot, t)
        twin = next((d for d in self.whole if d is not device and d.static.uuid == uuid), None)
        if uuid is None or (twin is None and uuid == device.static.uuid):
            return device
        if uuid == device.static.uuid:
            self._drop(device)
        owner = twin or self._add(slot)
        self._slots[slot] = owner
        self._find(ticket, owner, slot, t)
        return owner

    def _find(self, ticket: int, device: Device, slot: int | str, t: float) -> str | None:
        if device.stuck:
            return None
        with self._turn(ticket, device):
            return device.find(slot, self.driver, t)

    def _take_instances(self, ticket: int, parent: Device, now: float, t: float) -> None:
        """Find a GPU's MIG devices and remove destroyed ones."""
        if parent.stuck or parent.state == "asleep":
            return
        with self._turn(ticket, parent):
            listed = parent.mig_devices(now, t)
        if listed is None:
            return
        unlisted = {
            device.static.uuid: device for device in self.devices if device.parent is parent
        }
        for uuid, slot in listed.items():
            device = unlisted.pop(uuid, None) or self._add(None, parent, uuid)
            if device.is_due:
                self._find(ticket, device, slot, t)
        for device in unlisted.values():
            if not device.stuck:
                with self._turn(ticket, device):
                    device.close()
                self.devices.remove(device)
                self._leave(device)
                self.departed.append(
                    (parent.static.index, f"MIG instance {device.static.mig_instance} is gone")
                )

    def _leave(self, device: Device) -> None:
        """Keep the number of a device that is gone.

        A recreated instance has another UUID, so the oldest numbers become free after many.
        """
        self._index_of_left[device.static.uuid] = device.static.index
        if len(self._index_of_left) > MOST_LEFT:
            self._indices.discard(self._index_of_left.pop(next(iter(self._index_of_left))))

    def _add(
        self, preferred: int | None, parent: Device | None = None, uuid: str | None = None
    ) -> Device:
        """Add a device with its old index, else the preferred, else the lowest."""
        index = self._index_of_left.pop(uuid, None) if uuid is not None else None
        if index is None and preferred not in self._indices:
            index = preferred
        if index is None:
            index = min(set(range(len(self._indices) + 1)) - self._indices)
        self._indices.add(index)
        device = self._make(index, parent, uuid)
        self.devices.append(device)
        return device

    def _drop(self, device: Device) -> None:
        """Forget a device that was never shown under its own name."""
        self.devices.remove(device)
        self._indices.discard(device.static.index)
