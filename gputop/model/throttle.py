"""What holds a GPU's clocks down: the bits of NVML's nvmlClocksEventReason* and what they are called."""

from __future__ import annotations

IDLE = 0x1
APPLICATION_CLOCKS = 0x2
POWER_CAP = 0x4
HARDWARE_SLOWDOWN = 0x8
SYNC_BOOST = 0x10
SOFTWARE_THERMAL = 0x20
HARDWARE_THERMAL = 0x40
POWER_BRAKE = 0x80
DISPLAY_CLOCKS = 0x100

WORDS = {
    IDLE: "idle",
    APPLICATION_CLOCKS: "application clocks",
    POWER_CAP: "power cap",
    HARDWARE_SLOWDOWN: "hardware slowdown",
    SYNC_BOOST: "sync boost",
    SOFTWARE_THERMAL: "software thermal",
    HARDWARE_THERMAL: "hardware thermal",
    POWER_BRAKE: "power brake",
    DISPLAY_CLOCKS: "display clocks",
}
THERMAL = SOFTWARE_THERMAL | HARDWARE_THERMAL
NOT_THROTTLING = IDLE | APPLICATION_CLOCKS | DISPLAY_CLOCKS
"""Reasons that slow no work down: idle, or clocks that somebody chose."""


def throttle_words(mask: int) -> list[str]:
    """The reasons set in a mask that really slow a GPU down, in words."""
    return [word for bit, word in WORDS.items() if mask & bit & ~NOT_THROTTLING]
