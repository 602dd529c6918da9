"""The graphics cards on the PCI bus, as the kernel's own files show them. Reading those wakes no card.

A card whose power is managed at run time (``power/control`` is ``auto``) is switched off when it is not used: its
``power/runtime_status`` is then ``suspended`` (Documentation/ABI/testing/sysfs-devices-power of the kernel).
"""

from __future__ import annotations

import os

from msgspec import Struct

NVIDIA, AMD, INTEL = 0x10DE, 0x1002, 0x8086
VENDORS = {NVIDIA: "NVIDIA", AMD: "AMD", INTEL: "Intel"}
_DISPLAY, _ACCELERATOR = 0x03, 0x12
"""Base classes of the PCI code and ID assignment specification. AMD's Instinct cards are of the second one."""
NAMES = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")


class PciCard(Struct, frozen=True):
    """One graphics card or accelerator. ``address`` is domain:bus:device.function in small letters."""

    address: str
    vendor: int
    device: int
    may_sleep: bool
    """Whether the kernel may switch it off at run time."""

    @property
    def id(self) -> str:
        """Vendor and device, as lspci -n prints them: ``10de:2684``."""
        return f"{self.vendor:04x}:{self.device:04x}"


def cards(sys: str = "/sys") -> tuple[PciCard, ...]:
    """All of them, in the order of their addresses; none where the bus cannot be read."""
    folder = f"{sys}/bus/pci/devices"
    try:
        addresses = sorted(os.listdir(folder))
    except OSError:
        return ()
    gpu_cards = []
    for address in addresses:
        kind = _hex(f"{folder}/{address}/class")
        if kind is None or kind >> 16 not in (_DISPLAY, _ACCELERATOR):
            continue
        vendor, device = _hex(f"{folder}/{address}/vendor"), _hex(f"{folder}/{address}/device")
        if vendor is not None and device is not None:
            gpu_cards.append(PciCard(address, vendor, device, _read(f"{folder}/{address}/power/control") == "auto"))
    return tuple(gpu_cards)


def is_asleep(card: PciCard, sys: str = "/sys") -> bool:
    """Whether the kernel has switched the card off now. What cannot be read is awake."""
    return card.may_sleep and _read(f"{sys}/bus/pci/devices/{card.address}/power/runtime_status") == "suspended"


def card_name(card: PciCard, names: tuple[str, ...] = NAMES) -> str:
    """The vendor and the name that the system's list of PCI ids gives the card, else the id alone."""
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
    """The name of a device in the format of pci.ids: vendors at the margin, their devices after a tab."""
    _, vendor_line, after = f"\n{text}".partition(f"\n{card.vendor:04x}  ")
    if not vendor_line:
        return None
    for line in after.splitlines()[1:]:
        if line[:1] not in ("\t", "#", ""):
            return None
        if line.startswith(f"\t{card.device:04x}  "):
            return line[7:].strip()
    return None


def _hex(path: str) -> int | None:
    try:
        return int(_read(path) or "", 16)
    except ValueError:
        return None


def _read(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return file.read(64).decode("ascii", "replace").strip()
    except OSError:
        return None
