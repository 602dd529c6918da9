"""Decides whether GPU counters may be read, and who else uses them.

The rule is the kernel module's (``_isDevProfilingPermitted`` in NVIDIA's open-gpu-kernel-modules): administrators
always; everybody where the module was configured so; and from driver 565 on a process with CAP_PERFMON. Nothing is
tried here: the answer of a session decides.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from gputop.sources.activity.counters.counter_libraries import driver_major
from gputop.sources.capabilities import PERFMON, SYS_ADMIN, Capabilities, capabilities
from gputop.sources.procfs import text_of

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
    """Rights known before anything is tried; ``allowed`` None is unknown."""

    admin_only: bool | None
    allowed: bool | None
    perfmon_counts: bool
    in_container: bool


def rights(
    driver: str | None, proc: str = "/proc", capability_sets: Capabilities | None = None
) -> Rights:
    """Read rights from the driver's parameters and this process's capabilities."""
    capability_sets = capabilities(proc) if capability_sets is None else capability_sets
    admin_only = _admin_only(proc)
    counts = (driver_major(driver) or 0) >= PERFMON_DRIVER
    by_right = capability_sets.has(SYS_ADMIN) or (counts and capability_sets.has(PERFMON))
    allowed = True if admin_only is False or by_right else None if admin_only is None else False
    return Rights(admin_only, allowed, counts, _in_container(proc))


def advice(counter_rights: Rights) -> tuple[str, ...]:
    """Return what to do where counters are denied, best first.

    Lines of text and commands.
    """
    if counter_rights.in_container:
        word = "PERFMON" if counter_rights.perfmon_counts else "SYS_ADMIN"
        return (f"Start the container with: docker run --cap-add={word} …",)
    alone = ("Start with the counter right only (not root):", f"  {WITH_PERFMON}")
    for_all = (
        "For all users, for good (NVIDIA's security bulletin 4738 says why it is off):",
        f"  {FOR_EVERYBODY}",
    )
    return (*alone, *for_all) if counter_rights.perfmon_counts else for_all


def shortest_fix(counter_rights: Rights) -> str:
    """Return the first command of the advice."""
    return advice(counter_rights)[:2][-1].strip()


def _admin_only(proc: str) -> bool | None:
    for line in text_of(f"{proc}/{PARAMETERS}").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "RmProfilingAdminOnly":
            return value.strip() != "0"
    return None


def _in_container(proc: str) -> bool:
    """Whether this is a container of the usual kinds.

    Rights are then given by whoever starts it. In a user namespace root is not root of the machine, and the kernel
    asks for the capability there.
    """
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return True
    return text_of(f"{proc}/self/uid_map").split()[:3] not in ([], ["0", "0", "4294967295"])
