"""The sources of SM activity in doctor's report."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from typing import Any

from gputop.model.durations import seconds
from gputop.model.metrics import GPU_METRICS
from gputop.model.sm import COUNTERS_DENIED, MEASURED
from gputop.model.snapshot import GpuSample
from gputop.sources.activity.counters.access import advice, rights
from gputop.sources.activity.counters.counter_libraries import NoLibraries, find
from gputop.sources.activity.dcgm_exporter import FIX as EXPORTER_FIX
from gputop.sources.activity.dcgm_exporter import Exporter, entity_of
from gputop.sources.activity.fallback_chain import MeasuredActivity, SmReadFailed
from gputop.sources.activity.sm_remedies import NO_DCGM_FIX, dcgm_counts, sm_fix
from gputop.sources.nvml.gpu_device import SPLIT

EACH_FIX = "look at the MIG instances, each has its own"


Answer = tuple[bool, str, str | None]
"""Whether a source measures, why (not), and what would help."""


def source_rows(
    gpu: GpuSample,
    exporter: Exporter,
    dcgmi_uuids: Collection[str] | SmReadFailed,
    counters: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return one GPU's row of each source, the best first; ``counters`` is the result of ``counters_here``."""
    answers = {
        "gpm": _gpm(gpu), "dcgm-exporter": _exporter(gpu, exporter), "dcgmi": _dcgmi(gpu, dcgmi_uuids),
        "counters": _counters(gpu, counters), "bound": _bound(gpu), "none": (True, "always", None),
    }  # fmt: skip
    return [
        {"rung": name, "ok": ok, "reason": reason, "fix": fix}
        for name, (ok, reason, fix) in answers.items()
    ]


def counters_here(
    driver: str | None, proc: str = "/proc", perf_lib: str | None = None
) -> dict[str, Any]:
    """Check what the hardware counters need, without taking any.

    ``advice`` are the lines to show where counters are denied, commands among them as they are to be typed.
    """
    may = rights(driver, proc)
    found: dict[str, Any] = {"library": None, "missing": None, "fix": None}
    try:
        found["library"] = find(driver, perf_lib)
    except NoLibraries as none:
        found.update(missing=none.reason, fix=none.fix)
    told = [] if may.allowed else list(advice(may))
    return {**found, "admin_only": may.admin_only, "allowed": may.allowed, "advice": told}


def _counters(gpu: GpuSample, counters: Mapping[str, Any]) -> Answer:
    if gpu.static.mig_enabled or gpu.static.mig_parent is not None:
        fix = EACH_FIX if gpu.static.is_split else "use GPM"
        return False, "not read under MIG: they are of the whole GPU", fix
    if gpu.sm_source == "counters" and gpu.sm_active_pct is not None:
        return (
            True,
            f"measured over {seconds(gpu.sm_window_s or 0.0)}; no profiler can use them meanwhile",
            None,
        )
    if counters["missing"] is not None:
        return False, counters["missing"], counters["fix"]
    if counters["allowed"] is False:
        return False, COUNTERS_DENIED, "see counters, below"
    return False, "never taken unasked: no profiler can use them meanwhile", "gputop --perf"


def _gpm(gpu: GpuSample) -> Answer:
    if gpu.sm_source == "gpm" and gpu.sm_active_pct is not None:
        return True, f"measured over {seconds(gpu.sm_window_s or 0.0)}", None
    other = gpu.sm_source != "gpm" and gpu.sm_source in MEASURED
    in_use = "it gave nothing, so another source is in use" if other else None
    # The reasons of all sources, from the top.
    reasons, kind = (
        (gpu.sm_lack.reasons, gpu.sm_lack.kind) if gpu.sm_lack is not None else ((), None)
    )
    why = gpu.lost_reason or in_use or next(iter(reasons), "another source is in use")
    if gpu.static.is_split:
        fix = EACH_FIX
    elif gpu.lost_reason is not None:
        fix = "fix the GPU first"
    elif kind == "collecting":
        fix = "give the driver longer: --wait 1m"
    else:
        others = sm_fix(gpu.static.name, gpu.static.architecture)
        fix = "none on this GPU: GPM needs Hopper or newer, and a driver that answers" + (
            f"; {others}" if others else ""
        )
    return False, why, fix


def _exporter(gpu: GpuSample, exporter: Exporter) -> Answer:
    entity = entity_of(gpu.static)
    if gpu.static.is_split:
        return False, SPLIT, EACH_FIX
    if entity is None:
        return False, "the driver does not number this MIG instance", "use GPM"
    try:
        got = exporter.newest(entity, 0.0)
    except SmReadFailed as failure:
        begin = (
            f"start dcgm-exporter, then: {EXPORTER_FIX}"
            if dcgm_counts(gpu.static.name)
            else NO_DCGM_FIX
        )
        return False, failure.reason, failure.fix or begin
    whose = "this GPU" if entity[1] is None else "this MIG instance"
    if not isinstance(got, MeasuredActivity):
        return False, got.reason, EXPORTER_FIX
    if "sm_active_pct" in got.values:
        return True, f"exports SM activity of {whose}", None
    others = ", ".join(GPU_METRICS[key].label for key in got.values)
    return False, f"{got.missing['sm_active_pct']}; of {whose} only {others}", got.fix or None


def ask_dcgmi(may_ask: bool) -> Collection[str] | SmReadFailed:
    """Return the UUIDs known to dcgmi, or why it was not asked."""
    from gputop.sources.activity.dcgmi import FIX, NOT_INSTALLED, Dmon

    if shutil.which("dcgmi") is None:
        return SmReadFailed(NOT_INSTALLED, fix="use dcgm-exporter")
    if not may_ask:
        return SmReadFailed(
            "installed, but never used unasked: before Hopper it takes the profiling unit from ncu and nsys",
            fix="gputop --dcgmi",
        )
    try:
        return set(Dmon().discover().values())
    except SmReadFailed as failure:
        return failure
    except OSError as error:
        return SmReadFailed(f"cannot run dcgmi: {error.strerror}", fix=FIX)


def _dcgmi(gpu: GpuSample, dcgmi_uuids: Collection[str] | SmReadFailed) -> Answer:
    from gputop.sources.activity.dcgmi import INSTANCE

    if gpu.static.is_split:
        return False, SPLIT, EACH_FIX
    if gpu.static.mig_parent is not None:
        return False, INSTANCE, "use GPM or dcgm-exporter"
    if isinstance(dcgmi_uuids, SmReadFailed):
        return (
            False,
            dcgmi_uuids.reason,
            dcgmi_uuids.fix if dcgm_counts(gpu.static.name) else NO_DCGM_FIX,
        )
    if gpu.static.uuid not in dcgmi_uuids:
        return False, "dcgmi does not know this GPU", "use dcgm-exporter"
    return True, "dcgmi knows this GPU", None


def _bound(gpu: GpuSample) -> Answer:
    if gpu.static.mig_enabled:
        return False, "a MIG GPU's utilisation bounds nothing", "use GPM"
    if gpu.util_pct is None:
        why = gpu.lost_reason or gpu.unavailable.get("util_pct") or "no utilisation"
        return False, why, "needs utilisation from NVML"
    return True, f"SM activity is at most the utilisation, {gpu.util_pct:.0f} % now", None
