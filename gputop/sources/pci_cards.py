"""Lists graphics cards on the PCI bus from the kernel's files."""

from __future__ import annotations

from contextlib import suppress

from msgspec import Struct

from gputop.sources.procfs import names_in, number_of, text_of

NVIDIA, AMD, INTEL = 0x10DE, 0x1002, 0x8086
VENDORS = {NVIDIA: "NVIDIA", AMD: "AMD", INTEL: "Intel"}
_DISPLAY, _ACCELERATOR = 0x03, 0x12
"""Base classes of the PCI code and ID assignment specification. AMD's Instinct cards are of the second one."""


class PciCard(Struct, frozen=True):
    """One graphics card or accelerator on the PCI bus.

    ``address`` is domain:bus:device.function in small letters.
    """

    address: str
    vendor: int
    device: int
    may_sleep: bool
    """Whether the kernel may switch it off at run time."""


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
        vendor, device = (
            number_of(f"{folder}/{address}/vendor", 16),
            number_of(f"{folder}/{address}/device", 16),
        )
        if vendor is not None and device is not None:
            gpu_cards.append(
                PciCard(
                    address, vendor, device, text_of(f"{folder}/{address}/power/control") == "auto"
                )
            )
    return tuple(gpu_cards)


def kernel_address(bus_id: str | None) -> str | None:
    """Convert NVML's PCI address to the kernel's form.

    ``00000000:3B:00.0`` is ``0000:3b:00.0``.
    """
    domain, _, rest = (bus_id or "").lower().partition(":")
    with suppress(ValueError):
        return f"{int(domain, 16):04x}:{rest}" if rest.count(":") == 1 else None
    return None


def is_asleep(card: PciCard, sys: str = "/sys") -> bool:
    """Whether the kernel has switched the card off now.

    A card with ``power/control`` ``auto`` is switched off when unused: its ``power/runtime_status`` is then
    ``suspended`` (Documentation/ABI/testing/sysfs-devices-power of the kernel). An unreadable state counts as awake.
    """
    return (
        card.may_sleep
        and text_of(f"{sys}/bus/pci/devices/{card.address}/power/runtime_status") == "suspended"
    )


def card_name(card: PciCard) -> str:
    """Return vendor and id of a card: ``NVIDIA GPU [10de:2684]``."""
    return f"{VENDORS.get(card.vendor, '')} GPU [{card.vendor:04x}:{card.device:04x}]".strip()
