"""Badges for a broken device: what NVIDIA says to do comes first.

They are made of ``DeviceSigns`` and of the errors so far, so that a GPU that cannot be judged has them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gputop.diagnosis.rules.base import BadgeRule
from gputop.diagnosis.rules.xid_badges import XID, hardware_badge, xid_badge
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.types import DEVICE_BADGES, Badge, Level
from gputop.diagnosis.window.device_signs import (
    ECC_FOR_S,
    ECC_RATE,
    MOST_ROWS_OF_A_BANK,
    UNOWNED_BYTES,
    UNOWNED_S,
    DeviceSigns,
)
from gputop.diagnosis.window.hardware_health import Health
from gputop.model.quantity import count, memory
from gputop.model.xid_catalogue import RECOVERY_ACTIONS, recovery_words

_RECOVERY_REMEDIES = {
    1: "end its jobs, then reset it: nvidia-smi --gpu-reset -i {gpu}",
    2: "drain the node and reboot it",
    3: "end all jobs that use NVLink with this GPU; then do what the driver asks next",
    4: "let its jobs end and give it no new ones, then reset it: nvidia-smi --gpu-reset -i {gpu}",
    5: "recover the IMEX domain (nvidia-imex-ctl) before any other job uses it",
    6: "drain the node and reset the GPU's PCIe bus, or reboot",
    7: "drain the node and reboot the whole system (power cycle)",
}  # fmt: skip
assert set(_RECOVERY_REMEDIES) == set(RECOVERY_ACTIONS) - {0}


def _tell_recovery(signs: DeviceSigns, index: int) -> Badge | None:
    action = signs.recovery_action
    if action is None:
        return None
    template = _RECOVERY_REMEDIES.get(action, "see what nvidia-smi -q says under Recovery Action")
    line = f"the driver asks: {recovery_words(action)} (recovery action {action})"
    return Badge("recovery", "red", "recovery needed", line, template.format(gpu=index))


def _tell_corrected(signs: DeviceSigns, _index: int) -> Badge | None:
    errors = signs.corrected
    if errors is None:
        return None
    line = f"{errors.per_s:,.0f} corrected ECC errors a second for {ECC_FOR_S:.0f} s"
    if errors.in_life is not None:
        line += f" ({errors.in_life:,} in the GPU's life)"
    return Badge(CORRECTED_ECC.id, "yellow", CORRECTED_ECC.title, line, CORRECTED_ECC.remedy)


def _tell_rows(signs: DeviceSigns, _index: int) -> Badge | None:
    if not signs.rows:
        return None
    line = f"{count(signs.rows, 'row')} of the memory remapped"
    if signs.new_rows:
        line += f", {signs.new_rows} of them while watched"
    is_much = signs.new_rows > 0 or signs.rows >= MOST_ROWS_OF_A_BANK
    level: Level = "yellow" if is_much else "info"
    return Badge(REMAPPED_ROWS.id, level, REMAPPED_ROWS.title, line, REMAPPED_ROWS.remedy)


def _tell_links(signs: DeviceSigns, _index: int) -> Badge | None:
    links = signs.links
    if links is None:
        return None
    total = "" if links.total is None else f" of {links.total}"
    line = f"{links.number}{total} NVLinks down"
    if links.names:
        line += f": {links.names}"
    if not links.is_fault:
        line += " (or not connected)"
        return Badge(NVLINK_DOWN.id, "info", NVLINK_DOWN.title, line, "")
    return Badge(NVLINK_DOWN.id, "red", NVLINK_DOWN.title, line, NVLINK_DOWN.remedy)


def _tell_unowned(signs: DeviceSigns, index: int) -> Badge | None:
    if signs.unowned_bytes is None:
        return None
    line = f"{memory(signs.unowned_bytes)} in use, and no process holds them, after an Xid"
    remedy = f"{UNOWNED_MEMORY.remedy}: nvidia-smi --gpu-reset -i {index}; else reboot"
    return Badge(UNOWNED_MEMORY.id, "red", UNOWNED_MEMORY.title, line, remedy)


Tell = Callable[[DeviceSigns, int], Badge | None]


def _by_signals(tell: Tell) -> Callable[[Signals, str], Badge | None]:
    """Return the same for a GPU that is judged."""
    return lambda s, _verdict: tell(s.device, s.index)


RECOVERY = BadgeRule(
    "recovery", "recovery needed", "red",
    "the driver's recovery action is not none (as after Xid 154)",
    _by_signals(_tell_recovery), "what the driver asks for: reset the GPU, drain it first, or reboot the node",
    alarm=True,
)  # fmt: skip
CORRECTED_ECC = BadgeRule(
    "corrected_ecc", "many corrected memory errors", "yellow",
    f"more than {ECC_RATE:.0f} corrected ECC errors a second for {ECC_FOR_S:.0f} s",
    _by_signals(_tell_corrected),
    "drain the node when its jobs have ended, reset the GPU, and report it where the errors come again: nvidia-smi -q "
    "-d ECC,ROW_REMAPPER",
)  # fmt: skip
REMAPPED_ROWS = BadgeRule(
    "remapped_rows", "memory rows remapped", "yellow",
    f"rows of the memory were remapped while watched, or ≥ {MOST_ROWS_OF_A_BANK} in the GPU's life, so that a bank "
    "may have no spare row left; fewer: info",
    _by_signals(_tell_rows),
    "look whether a bank has spare rows left (nvidia-smi -q -d ROW_REMAPPER); report the GPU where none is",
    "yellow, info for fewer",
)  # fmt: skip
NVLINK_DOWN = BadgeRule(
    "nvlink_down", "NVLink down", "red",
    "NVLinks are down that were up before, or while others of the GPU are up (not of a card for a slot, whose bridges "
    "connect some of them), or all of them while an equal GPU beside it has some that are up; else info",
    _by_signals(_tell_links),
    "check the NVLink's cables and fabric (nvidia-smi nvlink -s; the fabric manager's log), then reset the GPU",
    "red, info where they may never have been connected",
)  # fmt: skip
UNOWNED_MEMORY = BadgeRule(
    "unowned_memory", "memory without an owner", "red",
    f"≥ {UNOWNED_BYTES / 2**30:.0f} GiB in use for {UNOWNED_S:.0f} s without a process, after an Xid",
    _by_signals(_tell_unowned), "the driver did not get it back; reset the GPU", alarm=True,
)  # fmt: skip

PRAISE = "healthy: "
"""How the evidence of a GPU begins with which nothing was found wrong."""


def without_praise(evidence: tuple[str, ...], badges: Sequence[Badge]) -> tuple[str, ...]:
    """Return evidence that calls no GPU healthy whose device is in trouble."""
    is_praised = bool(evidence) and evidence[0].startswith(PRAISE)
    if not is_praised:
        return evidence
    shown = {badge.id for badge in badges}
    if shown.isdisjoint((*DEVICE_BADGES, XID.id)):
        return evidence
    return (evidence[0].removeprefix(PRAISE), *evidence[1:])


def badges_without_verdict(health: Health, signs: DeviceSigns, index: int) -> list[Badge]:
    """Return the badges of a GPU that cannot be judged, in their order."""
    told = (
        _tell_recovery(signs, index),
        hardware_badge(health.errors, health.hardware_xids),
        _tell_unowned(signs, index),
        _tell_links(signs, index),
        _tell_corrected(signs, index),
        _tell_rows(signs, index),
        xid_badge(health.xids, health.other_xids),
    )
    return [badge for badge in told if badge is not None]
