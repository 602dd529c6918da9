"""Who may read a GPU's counters here, and the exact commands to allow it. Nothing is tried: a session's answer decides.

The rule is the kernel module's own (``_isDevProfilingPermitted`` in NVIDIA's open-gpu-kernel-modules): administrators
always; everybody where the module was told so; and from driver 565 on who holds CAP_PERFMON.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from gputop.sources.activity.counters.libraries import driver_major
from gputop.sources.capabilities import PERFMON, SYS_ADMIN, Capabilities, capabilities

PERFMON_DRIVER = 565
PARAMETERS = "driver/nvidia/params"
WITH_PERFMON = (
    'sudo env HOME="$HOME" LANG="$LANG" COLORTERM="$COLORTERM" XDG_RUNTIME_DIR="$XDG_RUNTIME_DIR" '
    "setpriv --reuid=$(id -u) --regid=$(id -g) --init-groups --inh-caps=+perfmon --ambient-caps=+perfmon "
    '"$(command -v gputop)" --perf'
)
"""Runs gputop as the user who types it, with the right to read counters and no other."""
FOR_EVERYBODY = (
    "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee /etc/modprobe.d/nvidia-profiling.conf"
    "   # then rebuild the initramfs (update-initramfs -u or dracut -f) and reboot"
)


class Rights(Struct, frozen=True):
    """What is known before anything is tried. ``allowed`` is None where this machine does not tell."""

    admin_only: bool | None
    allowed: bool | None
    perfmon_counts: bool
    in_container: bool


def rights(driver: str | None, proc: str = "/proc", held: Capabilities | None = None) -> Rights:
    """Read from the driver's parameters and this process's own capabilities."""
    held = capabilities(proc) if held is None else held
    admin_only = _admin_only(proc)
    counts = (driver_major(driver) or 0) >= PERFMON_DRIVER
    by_right = held.has(SYS_ADMIN) or (counts and held.has(PERFMON))
    allowed = True if admin_only is False or by_right else None if admin_only is None else False
    return Rights(admin_only, allowed, counts, _in_container(proc))


def advice(known: Rights) -> tuple[str, ...]:
    """What to do where counters are denied: lines of text and commands, best first."""
    if known.in_container:
        word = "PERFMON" if known.perfmon_counts else "SYS_ADMIN"
        return (f"Start the container with: docker run --cap-add={word} …",)
    lines = []
    if known.perfmon_counts:
        lines += ["Start with the counter right only (not root):", f"  {WITH_PERFMON}"]
    return (
        *lines,
        "For all users, for good (NVIDIA's security bulletin 4738 says why it is off):",
        f"  {FOR_EVERYBODY}",
    )


def shortest_fix(known: Rights) -> str:
    """The advice in one line, for a reason."""
    if known.in_container:
        return advice(known)[0]
    return WITH_PERFMON if known.perfmon_counts else FOR_EVERYBODY


def _admin_only(proc: str) -> bool | None:
    try:
        text = Path(proc, PARAMETERS).read_text(errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "RmProfilingAdminOnly":
            return value.strip() != "0"
    return None


def _in_container(proc: str) -> bool:
    """Whether this is a container of the usual kinds, where rights are given by who starts it."""
    return Path("/.dockerenv").exists() or Path("/run/.containerenv").exists() or _user_namespace(proc)


def _user_namespace(proc: str) -> bool:
    """Whether root here is not root of the machine: the kernel asks for the capability there."""
    try:
        words = Path(proc, "self/uid_map").read_text().split()
    except OSError:
        return False
    return words[:3] != ["0", "0", "4294967295"]
