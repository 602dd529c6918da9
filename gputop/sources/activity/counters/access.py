"""Decides whether GPU counters may be read, and who else uses them.

The rule is the kernel module's (``_isDevProfilingPermitted`` in NVIDIA's open-gpu-kernel-modules): administrators
always; everybody where the module was configured so; and from driver 565 on a process with CAP_PERFMON. Nothing is
tried here: the answer of a session decides.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from time import CLOCK_BOOTTIME, CLOCK_MONOTONIC, clock_gettime

from msgspec import Struct

from gputop.model.extras import install
from gputop.sources.activity.counters.abi import HOST_LIBRARY, TARGET_LIBRARY
from gputop.sources.own_process import PERFMON, SYS_ADMIN, Capabilities, capabilities
from gputop.sources.procfs import names_in, text_of

# Where NVIDIA's performance libraries are on this machine, and whether they may be loaded.
#
# They come with the CUPTI wheel: an extra of gputop, or the one that PyTorch installs. Never taken from
# LD_LIBRARY_PATH, and never from where others may write: they are loaded by a process that may hold a capability.

WHEELS = {13: "cu13/lib", 12: "cuda_cupti/lib"}
"""CUDA's major version → where its wheel puts the libraries, under ``nvidia``."""
EXTRAS = {13: "perf", 12: "perf-cu12"}
LEAST_DRIVER = {13: 580, 12: 525}
"""The first driver of each CUDA major (its release notes)."""


class NoLibraries(Exception):
    """No usable libraries; ``fix`` is what would help."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason, fix)
        self.reason, self.fix = reason, fix


def find(driver: str | None, directory: str | None = None, roots: Iterable[str] | None = None) -> str:
    """Return the folder with both libraries for this driver.

    They come with the CUPTI wheel: an extra of gputop, or the one that PyTorch installs. Never taken from
    LD_LIBRARY_PATH, or from where others may write: their process may hold a capability. ``directory`` is named by the
    user. Raises NoLibraries.
    """
    if directory:
        if not _holds_both(Path(directory)):
            raise NoLibraries(f"no {HOST_LIBRARY} and {TARGET_LIBRARY} in {directory}", "name their folder: --perf-lib")
        return _checked(Path(directory))
    major = driver_major(driver)
    roots = _wheel_roots() if roots is None else roots
    path_of_cuda = {
        cuda: path for root in roots for cuda, rest in WHEELS.items() if _holds_both(path := Path(root, rest))
    }
    fitting = next(
        (cuda for cuda in WHEELS if cuda in path_of_cuda and (major is None or major >= LEAST_DRIVER[cuda])), None
    )
    if fitting is not None:
        return _checked(path_of_cuda[fitting])
    extra = install(EXTRAS[wanted_cuda(major)])
    if path_of_cuda:
        have = max(path_of_cuda)
        needs = f"which needs driver {LEAST_DRIVER[have]} (this is {driver})"
        raise NoLibraries(f"NVIDIA's counter libraries here are of CUDA {have}, {needs}", extra)
    raise NoLibraries("NVIDIA's counter libraries are not installed", extra)


def wanted_cuda(major: int | None) -> int:
    """Return the CUDA major whose wheel fits a driver."""
    return 13 if major is None or major >= LEAST_DRIVER[13] else 12


def driver_major(driver: str | None) -> int | None:
    """Return ``580`` of ``580.65.06``; None for other forms."""
    first = (driver or "").partition(".")[0]
    return int(first) if first.isascii() and first.isdigit() else None


def _wheel_roots() -> list[str]:
    spec = find_spec("nvidia")
    return list(spec.submodule_search_locations or ()) if spec is not None else []


def _holds_both(path: Path) -> bool:
    return (path / HOST_LIBRARY).is_file() and (path / TARGET_LIBRARY).is_file()


def _checked(path: Path) -> str:
    for part in (path, path / HOST_LIBRARY, path / TARGET_LIBRARY):
        real = part.resolve()
        facts = real.stat()
        if facts.st_mode & stat.S_IWOTH or facts.st_uid not in (0, os.getuid()):
            raise NoLibraries(
                f"{part} could be changed by other users, and is not loaded", f"chmod o-w {real}, or own it yourself"
            )
    return str(path.resolve())


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


def rights(driver: str | None, proc: str = "/proc", capability_sets: Capabilities | None = None) -> Rights:
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
    lines = []
    if counter_rights.perfmon_counts:
        lines += ["Start with the counter right only (not root):", f"  {WITH_PERFMON}"]
    return (
        *lines,
        "For all users, for good (NVIDIA's security bulletin 4738 says why it is off):",
        f"  {FOR_EVERYBODY}",
    )


def shortest_fix(counter_rights: Rights) -> str:
    """Return the advice in one line."""
    if counter_rights.in_container:
        return advice(counter_rights)[0]
    return WITH_PERFMON if counter_rights.perfmon_counts else FOR_EVERYBODY


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


# When the counters are left to others: profilers and DCGM, which need the same unit, and a laptop on battery.

NAMES = frozenset((
    "ncu", "ncu-ui", "nv-nsight-cu-cli", "nsys", "nsys-ui", "nsys-launcher", "nv-hostengine", "dcgm-exporter",
    "dcgmproftester",
))  # fmt: skip
"""Programs that use the profiling unit, by the name that the kernel keeps, of at most 15 characters."""
ALL_AGAIN_S = 30.0
"""How often every process is checked, since one may have become another program; in between only new ones are."""
BATTERY_S = 30.0
SUSPENDED_S = 1.0
_YOUNG_LOOKS = 3


class Others:
    """Finds programs that need the counters: profilers and DCGM.

    Also reports a laptop on battery. Each look costs one directory listing.
    """

    def __init__(self, proc: str = "/proc", power: str = "/sys/class/power_supply") -> None:
        self._proc, self._power = proc, power
        self._looked: dict[str, int] = {}
        self._named: dict[str, str] = {}
        self._all_at = self._battery_at = float("-inf")
        self._on_battery = False
        self._asleep_s = _asleep_s()

    def reason_to_wait(self, now: float) -> str | None:
        """Return why to leave the counters alone now, or None."""
        names = sorted(set(self._programs(now)))
        if names:
            return f"left to {', '.join(names)}, which needs the same counters"
        if now - self._battery_at >= BATTERY_S:
            self._battery_at, self._on_battery = now, _discharges(self._power)
        return "not on battery" if self._on_battery else None

    def slept(self) -> bool:
        """Whether the machine was suspended since the last call."""
        before, self._asleep_s = self._asleep_s, _asleep_s()
        return self._asleep_s - before > SUSPENDED_S

    def _programs(self, now: float) -> list[str]:
        if now - self._all_at >= ALL_AGAIN_S:
            self._all_at = now
            self._looked.clear()
        pids = [name for name in names_in(self._proc) if name.isdigit()]
        looked = self._looked
        self._looked = {}
        program_of_pid: dict[str, str] = {}
        for pid in pids:
            looks = looked.get(pid, 0)
            program = self._named.get(pid)
            # A known one is checked each time: its pid may belong to another process by now.
            if looks < _YOUNG_LOOKS or program is not None:
                looks += 1
                program = name if (name := text_of(f"{self._proc}/{pid}/comm")) in NAMES else None
            self._looked[pid] = looks
            if program is not None:
                program_of_pid[pid] = program
        self._named = program_of_pid
        return list(program_of_pid.values())


def _discharges(power: str) -> bool:
    for name in names_in(power):
        # A mouse has a battery, too: the machine's own supply has no device scope.
        scope, kind, status = (text_of(f"{power}/{name}/{what}") for what in ("scope", "type", "status"))
        if (scope, kind, status) == ("", "Battery", "Discharging"):
            return True
    return False


def _asleep_s() -> float:
    """Return how long the machine has been suspended since boot."""
    return clock_gettime(CLOCK_BOOTTIME) - clock_gettime(CLOCK_MONOTONIC)
