"""Xid errors: whose fault each is, and what NVIDIA says to do.

The actions are those of NVIDIA's Xid catalogue for Ampere and newer GPUs, column "Immediate Action", shortened
(https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html): RESTART_APP is ``RESTART_PROGRAM``, RESET_GPU
``RESET_GPU``, RESTART_BM ``REBOOT``, IGNORE ``REPORT_IF_AGAIN``, the NVLink workflows ``CHECK_LINK``. For rows of
memory "GPU Memory Error Management" adds when a remapping takes effect
(https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/). The classes are ours. An Xid that is not in the table has
no class: nothing is guessed. 171 and 172 stand in the catalogue without an action.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

XidClass = Literal["program", "device", "memory"]
"""Usually the program's fault; the device's, its links' or its driver's; the device memory's."""

RESTART_PROGRAM = "look for a defect of the program, then restart it"
RESET_GPU = "drain the node and reset the GPU; report it where it comes again"
REBOOT = "reboot the node; report it where it comes again"
CHECK_LINK = "check the NVLink's fabric and cables, then reset the GPU"
FOLLOW_RECOVERY = "do what the recovery action says: reset the GPU, or reboot the node"
MEMORY_RESET = "reset the GPU when its jobs have ended, so that the row is remapped"
RESTART_THEN_RESET = "restart the program; reset the GPU when its jobs have ended"
REPORT_IF_AGAIN = "nothing at once; report it to NVIDIA where it comes again"
SEE_OTHER_LINK_ERRORS = "nothing for itself: look for the NVLink errors beside it"
RESTART_MACHINE = "restart the virtual machine, or the node"


class Xid(Struct, frozen=True):
    """One Xid: what happened, its class, and NVIDIA's action."""

    what: str
    cause: XidClass
    action: str


_PROGRAM: Mapping[int, str] = {
    13: "graphics engine exception: an illegal access or instruction of a kernel",
    31: "memory page fault: an illegal address of a kernel",
    43: "reset channel: the program's kernel was stopped",
    45: "preemptive cleanup: the program was ended, or another error came before",
    68: "video processor exception",
    69: "graphics engine class error",
}
_DEVICE: Mapping[int, tuple[str, str]] = {
    38: ("driver firmware error: its watchdog timed out", REPORT_IF_AGAIN),
    46: ("the GPU stopped processing", RESET_GPU),
    61: ("internal microcontroller breakpoint", RESET_GPU),
    62: ("internal microcontroller halt", RESET_GPU),
    74: ("NVLink error", CHECK_LINK),
    79: ("the GPU has fallen off the bus", REBOOT),
    109: ("context switch timed out", RESET_GPU),
    110: ("security fault", RESET_GPU),
    119: ("the GPU's system processor (GSP) timed out", RESET_GPU),
    120: ("error of the GPU's system processor (GSP)", RESET_GPU),
    136: ("link training failed", CHECK_LINK),
    137: ("NVLink fault of a remote access", SEE_OTHER_LINK_ERRORS),
    143: ("GPU initialisation failed", RESET_GPU),
    144: ("NVLink error: SAW", CHECK_LINK),
    145: ("NVLink error: RLW", CHECK_LINK),
    146: ("NVLink error: TLW", CHECK_LINK),
    147: ("NVLink error: TREX", SEE_OTHER_LINK_ERRORS),
    148: ("NVLink error: NVLPW_CTRL", SEE_OTHER_LINK_ERRORS),
    149: ("NVLink error: NETIR", CHECK_LINK),
    150: ("NVLink error: MSE", CHECK_LINK),
    151: ("key rotation error", RESTART_MACHINE),
    154: ("the GPU's recovery action has changed", FOLLOW_RECOVERY),
    155: ("NVLink error told by software", RESET_GPU),
    158: ("fatal timeout of the GPU", RESET_GPU),
}
_MEMORY: Mapping[int, tuple[str, str]] = {
    48: ("double bit ECC error", RESET_GPU),
    63: ("a page was retired, or a row is to be remapped", MEMORY_RESET),
    64: ("a page could not be retired, or a row not be remapped", RESET_GPU),
    92: ("high rate of corrected ECC errors", REPORT_IF_AGAIN),
    94: ("contained ECC error: the program that met it is ended", RESTART_THEN_RESET),
    95: ("uncontained ECC error", RESET_GPU),
    140: ("unrecovered ECC error", RESET_GPU),
    156: ("a part of the GPU was retired", RESET_GPU),
    157: ("a part of the GPU could not be retired", REPORT_IF_AGAIN),
    160: ("a channel of the memory was retired", REPORT_IF_AGAIN),
    161: ("a channel of the memory could not be retired", REPORT_IF_AGAIN),
    171: ("uncorrected DRAM error", REPORT_IF_AGAIN),
    172: ("uncorrected SRAM error", REPORT_IF_AGAIN),
}


def _catalogue() -> Mapping[int, Xid]:
    table = {number: Xid(what, "program", RESTART_PROGRAM) for number, what in _PROGRAM.items()}
    for number, (what, action) in _DEVICE.items():
        table[number] = Xid(what, "device", action)
    for number, (what, action) in _MEMORY.items():
        table[number] = Xid(what, "memory", action)
    return MappingProxyType(table)


XIDS = _catalogue()
"""Every known Xid by its number."""

RECOVERY_ACTIONS: Mapping[int, str] = MappingProxyType({
    0: "none",
    1: "reset the GPU",
    2: "reboot the node",
    3: "drain peer-to-peer traffic",
    4: "drain the GPU, then reset it",
    5: "recover the IMEX domain",
    6: "reset the GPU's bus",
    7: "reboot the system",
})  # fmt: skip
"""Recovery action in words (nvml.h, nvmlDeviceGpuRecoveryAction_t)."""


def recovery_words(action: int | None) -> str | None:
    """Return a recovery action in words; None without one."""
    if action is None:
        return None
    return RECOVERY_ACTIONS.get(action, f"action {action}, which this version does not know")
