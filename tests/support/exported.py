"""Pages of metrics as Prometheus' own client library reads them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from gputop.features.export.export_feed import ExportFeed
from gputop.features.export.metrics_page import PageChoice
from gputop.model.snapshot import GpuSample, GpuStatic, Machine, Snapshot
from gputop.monitor import Monitor
from gputop.session.session import Session
from gputop.sources.simulation.simulated import SimulatedSource

Labels = frozenset[tuple[str, str]]
Page = dict[str, dict[Labels, float]]


def read(text: str) -> Page:
    """Name → labels → value. Fails on a line that is no metric, and on a sample that stands twice."""
    found: Page = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            rows = found.setdefault(sample.name, {})
            named = frozenset(sample.labels.items())
            assert named not in rows, (sample.name, named)
            rows[named] = sample.value
    return found


def value(page: Page, name: str, **labels: str) -> float | None:
    """The one sample of that name with these labels among its own; None where there is none."""
    wanted = frozenset(labels.items())
    found = [number for named, number in page.get(name, {}).items() if wanted <= named]
    assert len(found) <= 1, (name, labels, found)
    return found[0] if found else None


def gpu_of(index: int = 0, **values: object) -> GpuSample:
    """A GPU with these values and no other."""
    return GpuSample(GpuStatic(index, f"GPU-{index}", "NVIDIA H100"), **values)


def snapshot_of(t: float, *gpus: GpuSample, **more: object) -> Snapshot:
    """One moment of a node; without GPUs of one that is busy and does not work."""
    return Snapshot(
        t,
        Machine("n1"),
        gpus or (gpu_of(util_pct=90.0, sm_active_pct=20.0, sm_source="gpm"),),
        **more,
    )


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def feed(
    choice: PageChoice | None = None, clock: Clock | None = None, interval_s: float = 1.0
) -> ExportFeed:
    """A feed that has seen nothing."""
    return ExportFeed(
        Session(Monitor(interval_s, charts=False)), choice or PageChoice(), clock or Clock()
    )


def demo_feed(
    scenario: str | None = None, choice: PageChoice | None = None, clock: Clock | None = None
) -> ExportFeed:
    """A feed whose session has seen 60 s of a scenario's past."""
    source, session = (
        SimulatedSource(scenario, clock=lambda: 1_780_000_000.0),
        Session(Monitor(charts=False)),
    )
    for snapshot in source.past(60.0):
        session.take(snapshot)
    return ExportFeed(session, choice or PageChoice(), clock or Clock())
