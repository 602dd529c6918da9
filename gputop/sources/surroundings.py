"""Describes places that limit measuring: WSL, Jetson, virtual GPUs.

Each sentence names the values that are measured there, those that are not, and the reason. Nothing here calls a
function of the driver.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection

from msgspec import Struct

from gputop.model.quantity import numbers
from gputop.model.source import SourceError
from gputop.sources.procfs import names_in, number_of, text_of

LIBRARY = "libnvidia-ml.so.1"
NO_DRIVER = f"no NVIDIA driver found ({LIBRARY} is missing)"
DEMO = "to look around without a GPU: gputop demo"
_INSTALL = "install the driver, or start the container with GPUs (docker run --gpus all)"
_WSL = (
    "under WSL the driver is that of Windows: install NVIDIA's driver there, not here; its library is then in "
    "/usr/lib/wsl/lib"
)
_JETSON = (
    "this is a Jetson, whose driver has no NVML before JetPack 7: tegrastats shows its load, and gputop measures "
    "nothing of it"
)
WSL = (
    "under WSL the driver of Windows answers: SM activity is at best a bound, for there are neither GPM nor counters, "
    "and no process can be named; what else it does not answer is n/a; on Linux itself all of it is measured"
)
_INTEGRATED = ("orin", "xavier", "tegra", "nvgpu")
"""Names of integrated GPUs whose drivers answer NVML in part: those before JetPack 7."""


def no_driver(proc: str = "/proc", sys: str = "/sys") -> str:
    """Return why there is no driver, and what to do."""
    bus_cards = cards(sys)
    others = [card for card in bus_cards if card.vendor in (AMD, INTEL)]
    if "nvidia,tegra" in text_of(f"{proc}/device-tree/compatible"):
        advice = _JETSON
    elif is_wsl(proc):
        advice = _WSL
    elif others and not any(card.vendor == NVIDIA for card in bus_cards):
        named = " and ".join(dict.fromkeys(map(card_name, others)))
        advice = f"this machine has {named}, and gputop measures NVIDIA's GPUs alone"
    else:
        advice = _INSTALL
    return f"{NO_DRIVER}: {advice}"


def check_library() -> None:
    """Raise SourceError where the driver's library cannot be loaded.

    No function of it is called.
    """
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        raise SourceError(f"{no_driver()}; {DEMO}") from None


def is_wsl(proc: str = "/proc") -> bool:
    """Whether this kernel is the one that Windows runs."""
    return "microsoft" in text_of(f"{proc}/sys/kernel/osrelease").lower()


def of_gpus(virtual: Collection[int], integrated: Collection[int], *, wsl: bool) -> list[str]:
    """Describe the limits of virtual and integrated GPUs, by index."""
    limits = [WSL] if wsl else []
    if virtual:
        limits.append(
            f"GPU {numbers(virtual)}: a virtual GPU: memory and processes are this machine's own, utilisation may be "
            "other machines' as well, and SM activity is counted by the host alone"
        )
    if integrated:
        limits.append(
            f"GPU {numbers(integrated)}: an integrated GPU whose driver answers NVML in part before JetPack 7: what is "
            "n/a here tegrastats may show"
        )
    return limits


def answers_in_part(name: str) -> bool:
    """Whether an integrated GPU's driver answers NVML only in part."""
    return any(word in name.lower() for word in _INTEGRATED)


# The graphics cards on the PCI bus, as the kernel's own files show them. Reading those wakes no card.
#
# A card whose power is managed at run time (``power/control`` is ``auto``) is switched off when it is not used: its
# ``power/runtime_status`` is then ``suspended`` (Documentation/ABI/testing/sysfs-devices-power of the kernel).

NVIDIA, AMD, INTEL = 0x10DE, 0x1002, 0x8086
VENDORS = {NVIDIA: "NVIDIA", AMD: "AMD", INTEL: "Intel"}
_DISPLAY, _ACCELERATOR = 0x03, 0x12
"""Base classes of the PCI code and ID assignment specification. AMD's Instinct cards are of the second one."""
NAMES = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")


class PciCard(Struct, frozen=True):
    """One graphics card or accelerator on the PCI bus.

    ``address`` is domain:bus:device.function in small letters.
    """

    address: str
    vendor: int
    device: int
    may_sleep: bool
    """Whether the kernel may switch it off at run time."""

    @property
    def id(self) -> str:
        """Return vendor and device, as lspci -n prints them: ``10de:2684``."""
        return f"{self.vendor:04x}:{self.device:04x}"


def cards(sys: str = "/sys") -> tuple[PciCard, ...]:
    """Return all cards in the order of their addresses.

    Read from the kernel's files, which wakes no card. Empty where the bus cannot be read.
    """
    folder = f"{sys}/bus/pci/devices"
    gpu_cards = []
    for address in names_in(folder):
        kind = number_of(f"{folder}/{address}/class", 16)
        if kind is None or kind >> 16 not in (_DISPLAY, _ACCELERATOR):
            continue
        vendor, device = number_of(f"{folder}/{address}/vendor", 16), number_of(f"{folder}/{address}/device", 16)
        if vendor is not None and device is not None:
            gpu_cards.append(PciCard(address, vendor, device, text_of(f"{folder}/{address}/power/control") == "auto"))
    return tuple(gpu_cards)


def kernel_address(bus_id: str | None) -> str | None:
    """Convert NVML's PCI address to the kernel's form.

    ``00000000:3B:00.0`` is ``0000:3b:00.0``.
    """
    domain, _, rest = (bus_id or "").lower().partition(":")
    try:
        return f"{int(domain, 16):04x}:{rest}" if rest.count(":") == 1 else None
    except ValueError:
        return None


def is_asleep(card: PciCard, sys: str = "/sys") -> bool:
    """Whether the kernel has switched the card off now.

    A card with ``power/control`` ``auto`` is switched off when unused: its ``power/runtime_status`` is then
    ``suspended`` (Documentation/ABI/testing/sysfs-devices-power of the kernel). An unreadable state counts as awake.
    """
    return card.may_sleep and text_of(f"{sys}/bus/pci/devices/{card.address}/power/runtime_status") == "suspended"


def card_name(card: PciCard, names: tuple[str, ...] = NAMES) -> str:
    """Return vendor and name from the system's PCI ids, else the id."""
    vendor = VENDORS.get(card.vendor, "")
    for path in names:
        try:
            with open(path, encoding="utf-8", errors="replace") as lines:
                name = _named(lines.read(), card)
        except OSError:
            continue
        if name:
            return f"{vendor} {name} [{card.id}]".strip()
    return f"{vendor} GPU [{card.id}]".strip()


def _named(text: str, card: PciCard) -> str | None:
    """Return a device's name from pci.ids.

    Vendors begin at the margin, their devices after a tab.
    """
    _, vendor_line, after = f"\n{text}".partition(f"\n{card.vendor:04x}  ")
    if not vendor_line:
        return None
    for line in after.splitlines()[1:]:
        if line[:1] not in ("\t", "#", ""):
            return None
        if line.startswith(f"\t{card.device:04x}  "):
            return line[7:].strip()
    return None
