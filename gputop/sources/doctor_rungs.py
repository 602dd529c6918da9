"""The rungs in the doctor's report, and what the hardware counters need and whether it is here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputop.model.quantity import seconds
from gputop.model.sm import COUNTERS_DENIED
from gputop.model.snapshot import GpuSample
from gputop.sources.activity.counters.libraries import NoLibraries, find
from gputop.sources.activity.counters.rights import advice, rights

EACH_FIX = "look at the MIG instances, each has its own"


def rung(name: str, ok: bool, reason: str, fix: str | None = None) -> dict[str, Any]:
    """One rung of the report; ``fix`` counts only where it is not ``ok``."""
    return {"rung": name, "ok": ok, "reason": reason, "fix": None if ok else fix}


def is_split(gpu: GpuSample) -> bool:
    """Whether all work of this GPU happens in its MIG instances."""
    return bool(gpu.static.mig_enabled) and gpu.static.mig_parent is None


def counters_here(driver: str | None, proc: str = "/proc", perf_lib: str | None = None) -> dict[str, Any]:
    """What reading the hardware counters needs, and whether it is here. No counter is taken to find out.

    ``advice`` are the lines to show where counters are denied, commands among them as they are to be typed.
    """
    may = rights(driver, proc)
    library, missing, fix = None, None, None
    try:
        library = find(driver, perf_lib)
    except NoLibraries as none:
        missing, fix = none.reason, none.fix
    return {
        "library": library,
        "missing": missing,
        "fix": fix,
        "admin_only": may.admin_only,
        "allowed": may.allowed,
        "advice": [] if may.allowed else list(advice(may)),
    }


def counters_rung(gpu: GpuSample, counters: Mapping[str, Any]) -> dict[str, Any]:
    """The rung of one GPU, from what ``counters_here`` has found."""
    name = "counters"
    if gpu.static.mig_enabled or gpu.static.mig_parent is not None:
        fix = EACH_FIX if is_split(gpu) else "use GPM"
        return rung(name, False, "not read under MIG: they are of the whole GPU", fix)
    if gpu.sm_source == name and gpu.sm_active_pct is not None:
        return rung(name, True, f"measured over {seconds(gpu.sm_window_s or 0.0)}; no profiler can use them meanwhile")
    if counters["missing"] is not None:
        return rung(name, False, counters["missing"], counters["fix"])
    if counters["allowed"] is False:
        return rung(name, False, COUNTERS_DENIED, "see counters, below")
    return rung(name, False, "never taken unasked: no profiler can use them meanwhile", "gputop --perf")
