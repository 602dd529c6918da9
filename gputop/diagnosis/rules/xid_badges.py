"""Badges for hardware errors and Xids, with NVIDIA's action for each."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.diagnosis.rules.base import BadgeRule, Told
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.types import HARDWARE_ERROR, Badge, VerdictId
from gputop.model.xid_catalogue import (
    CHECK_LINK,
    FOLLOW_RECOVERY,
    MEMORY_RESET,
    REBOOT,
    RESET_GPU,
    RESTART_MACHINE,
    RESTART_THEN_RESET,
    XIDS,
    Xid,
)

GRAVEST_FIRST = (
    REBOOT,
    RESTART_MACHINE,
    CHECK_LINK,
    RESET_GPU,
    RESTART_THEN_RESET,
    MEMORY_RESET,
    FOLLOW_RECOVERY,
)
"""Actions in the order in which one makes the next needless; those without a place come last."""
USUALLY_THE_PROGRAM = "usually the program: see dmesg"
UNKNOWN_XID = "see NVIDIA's Xid catalogue and dmesg"


def _rank(xid: Xid) -> int:
    if xid.action in GRAVEST_FIRST:
        return GRAVEST_FIRST.index(xid.action)
    return len(GRAVEST_FIRST)


def _action_words(numbers: Sequence[int]) -> str:
    """Return the gravest action, and the Xid that asks for it; empty without any."""
    known = [number for number in dict.fromkeys(numbers) if number in XIDS]
    if not known:
        return ""
    gravest = min(known, key=lambda number: _rank(XIDS[number]))
    return f"{XIDS[gravest].action} (Xid {gravest}: {XIDS[gravest].what})"


def hardware_badge(errors: Sequence[str], xids: Sequence[int]) -> Badge | None:
    """Return the badge for hardware errors; ``xids`` are the Xids among them."""
    if not errors:
        return None
    badge = ECC.badge("; ".join(errors))
    action = _action_words(xids)
    if not action:
        return badge
    return Badge(badge.id, badge.level, badge.title, badge.evidence, action, sticky=True)


def xid_badge(words: Sequence[str], xids: Sequence[int]) -> Badge | None:
    """Return the badge for all other Xids."""
    if not words:
        return None
    causes = {XIDS[number].cause if number in XIDS else None for number in xids}
    if causes <= {"program"}:
        remedy = USUALLY_THE_PROGRAM
    else:
        others = [number for number in xids if number in XIDS and XIDS[number].cause != "program"]
        remedy = _action_words(others) or UNKNOWN_XID
    return Badge(XID.id, XID.level, XID.title, "; ".join(words), remedy, sticky=True)


def _tell_hardware(s: Signals, verdict: VerdictId) -> Told:
    return hardware_badge(s.errors, s.hardware_xids)


def _tell_xid(s: Signals, verdict: VerdictId) -> Told:
    return xid_badge(s.xids, s.other_xids)


ECC = BadgeRule(
    "ecc", HARDWARE_ERROR, "red",
    "a NEW uncorrected ECC error, row remap failed or pending, a page retirement pending, or an Xid of the device, its "
    "driver, its links or its memory for which NVIDIA's catalogue asks to do something; stays until acknowledged",
    _tell_hardware,
    "drain the node: nvidia-smi -q -d ECC,ROW_REMAPPER; reset or replace the GPU", alarm=True, sticky=True,
)  # fmt: skip

XID = BadgeRule(
    "xid", "Xid error", "yellow",
    "any other Xid error: usually the program's fault, or one without anything to do at once; stays until acknowledged",
    _tell_xid, USUALLY_THE_PROGRAM, alarm=True, sticky=True,
)  # fmt: skip
