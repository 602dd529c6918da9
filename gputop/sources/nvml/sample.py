"""One read's answers and the ladder's standing as a sample."""

from __future__ import annotations

from gputop.model.snapshot import GpuSample, GpuStatic
from gputop.sources.activity.bound import bound
from gputop.sources.activity.ladder import Standing
from gputop.sources.nvml.handle import Answers


def sample_of(static: GpuStatic, answers: Answers, standing: Standing, now: float, *, bounded: bool) -> GpuSample:
    """The sample of one read at monotonic time ``now``. ``bounded``: utilisation bounds SM activity on this device."""
    values, activity = answers.values, standing.activity
    low, high = bound(values.get("util_pct"), static.sm_count) if bounded else (None, None)
    if standing.source is not None:
        # A rung that merely missed a tick leaves a gap; one without an SM counter leaves the bound.
        lasting = activity is not None and standing.reason is not None
        return GpuSample(
            static,
            sm_source=standing.source,
            sm_window_s=activity.window_s if activity else None,
            sm_age_s=max(0.0, now - activity.t) if activity and activity.t is not None else None,
            sm_low_pct=low if lasting else None,
            sm_high_pct=high if lasting else None,
            sm_reason=standing.reason,
            unavailable=answers.missing,
            **values,
        )
    return GpuSample(
        static,
        sm_source="none" if high is None else "bound",
        sm_low_pct=low,
        sm_high_pct=high,
        sm_reason=standing.reason,
        unavailable=answers.missing,
        **values,
    )
