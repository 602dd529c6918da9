"""GPM pairs and the chain above them, with pynvml's functions replaced and time given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import nan
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from gputop.sources.activity.cross_check import bound
from gputop.sources.activity.fallback_chain import (
    FallbackChain,
    MeasuredActivity,
    SmReadFailed,
    Waiting,
)
from gputop.sources.nvml.gpm import METRICS, Gpm
from gputop.sources.nvml.handle import Handle


@dataclass
class Driver:
    """Plays GPM: samples are numbers counted upwards, metrics are what ``metrics`` says."""

    supported: bool = True
    metrics: dict[int, float] = field(default_factory=dict)
    returns: dict[int, int] = field(default_factory=dict)
    error: int | None = None
    held: list[object] = field(default_factory=list)
    taken: list[tuple[Any, ...]] = field(default_factory=list)
    pairs: int = 0
    refused: set[int] = field(default_factory=set)
    refusal: int = pynvml.NVML_ERROR_INVALID_ARGUMENT

    def alloc(self) -> Any:
        sample = pynvml.c_nvmlGpmSample_t()
        self.held.append(sample)
        return sample

    def take(self, *arguments: Any) -> None:
        if self.error is not None:
            raise pynvml.NVMLError(self.error)
        self.taken.append(arguments)

    def compute(self, pair: Any) -> None:
        self.pairs += 1
        if self.refused & {pair.metrics[slot].metricId for slot in range(pair.numMetrics)}:
            raise pynvml.NVMLError(self.refusal)
        for slot in range(pair.numMetrics):
            metric = pair.metrics[slot]
            metric.value = self.metrics.get(metric.metricId, 1.0)
            metric.nvmlReturn = self.returns.get(metric.metricId, 0)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    played = Driver()
    monkeypatch.setattr(
        pynvml,
        "nvmlGpmQueryDeviceSupport",
        lambda _: SimpleNamespace(isSupportedDevice=int(played.supported)),
    )
    monkeypatch.setattr(pynvml, "nvmlGpmSampleAlloc", played.alloc)
    monkeypatch.setattr(pynvml, "nvmlGpmSampleFree", played.held.remove)
    monkeypatch.setattr(pynvml, "nvmlGpmSampleGet", played.take)
    monkeypatch.setattr(pynvml, "nvmlGpmMigSampleGet", played.take)
    monkeypatch.setattr(pynvml, "nvmlGpmMetricsGet", played.compute)
    yield played


def gpm(interval_s: float = 1.0, mig: tuple[Any, int] | None = None) -> Gpm:
    return Gpm(Handle("handle"), interval_s, "hopper", mig)


def measured(value: object) -> MeasuredActivity:
    assert isinstance(value, MeasuredActivity), value
    return value


def test_the_value_exists_from_the_second_sample_with_its_window(driver: Driver) -> None:
    driver.metrics = {2: 7.75, 11: 64.0, 12: 32.0, 13: 16.0, 20: 2.0, 60: 3.0, 61: 4.0}
    sm_reader = gpm()
    assert sm_reader.read(10.0) == Waiting("collecting: needs two samples", kind="collecting")
    got = measured(sm_reader.read(11.5))
    assert got.values["sm_active_pct"] == 7.75
    assert got.values["pcie_tx_bytes_per_s"] == 2 * 1048576
    assert got.values["nvlink_rx_bytes_per_s"] == 3 * 1048576
    assert got.values["nvlink_tx_bytes_per_s"] == 4 * 1048576
    assert [got.values[f"fp{bits}_active_pct"] for bits in (64, 32, 16)] == [64.0, 32.0, 16.0]
    assert got.window_s == 1.5
    assert got.t == 11.5
    assert got.values.keys() == {key for key, _ in METRICS.values()}


def test_an_engine_that_never_works_while_its_multiprocessors_do_is_not_counted(
    driver: Driver,
) -> None:
    driver.metrics = {1: 0.0, 2: 50.0}
    reader = gpm()
    reader.read(1.0)
    got = measured(reader.read(2.0))
    assert (
        "graphics_active_pct" not in got.values
        and "does not count it" in got.missing["graphics_active_pct"]
    )


def test_two_samples_are_swapped_and_never_more_are_made(driver: Driver) -> None:
    sm_reader = gpm()
    for tick in range(6):
        sm_reader.read(float(tick))
    assert len(driver.held) == 2
    assert [sample for _, sample in driver.taken[:4]] == [driver.held[i] for i in (0, 1, 0, 1)]
    assert driver.pairs == 5


@pytest.mark.parametrize("bad", [nan, float("inf"), -1.0, 101.6, 4e9])
def test_an_impossible_sm_value_fails_and_drops_the_pair(driver: Driver, bad: float) -> None:
    sm_reader = gpm()
    sm_reader.read(1.0)
    driver.metrics = {2: bad}
    with pytest.raises(SmReadFailed) as failure:
        sm_reader.read(2.0)
    assert not failure.value.forever
    driver.metrics = {2: 50.0}
    assert isinstance(sm_reader.read(3.0), Waiting)
    assert measured(sm_reader.read(4.0)).values["sm_active_pct"] == 50.0


def test_rounding_above_a_hundred_is_a_hundred(driver: Driver) -> None:
    driver.metrics = {2: 100.4}
    sm_reader = gpm()
    sm_reader.read(1.0)
    assert measured(sm_reader.read(2.0)).values["sm_active_pct"] == 100.0


def test_each_metric_is_judged_by_its_own_return(driver: Driver) -> None:
    driver.metrics = {5: 40.0, 10: nan}
    driver.returns = {5: pynvml.NVML_ERROR_NOT_SUPPORTED}
    sm_reader = gpm()
    sm_reader.read(1.0)
    got = measured(sm_reader.read(2.0))
    assert got.missing["tensor_active_pct"] == "not supported by this GPU"
    assert "no number" in got.missing["dram_active_pct"]
    assert "tensor_active_pct" not in got.values


@pytest.mark.parametrize(
    ("name", "architecture", "why", "fix"),
    [
        ("NVIDIA A100-SXM4-80GB", "ampere", "Ampere has no GPM counters", "run dcgm-exporter"),
        ("NVIDIA GeForce RTX 4090", "ada", "Ada has no GPM counters", "start gputop with --perf"),
        ("NVIDIA GeForce GTX 1080", "pascal", "Pascal has no GPM counters", ""),
        (
            "NVIDIA GeForce RTX 5090",
            "blackwell",
            "no GPM counters of this Blackwell GPU",
            "start gputop with --perf",
        ),
        ("Orin (nvgpu)", "ampere", "Ampere has no GPM counters", ""),
        ("NVIDIA Graphics Device", None, "this GPU has no GPM counters", "run dcgm-exporter"),
    ],
)
def test_the_remedy_is_one_that_such_a_gpu_has(
    driver: Driver, name: str, architecture: str | None, why: str, fix: str
) -> None:
    driver.supported = False
    with pytest.raises(SmReadFailed) as failure:
        Gpm(Handle("handle"), 1.0, architecture, None, name).read(1.0)
    assert why in failure.value.reason
    assert failure.value.fix.startswith(fix) and bool(failure.value.fix) is bool(fix)


def test_a_mig_instance_is_sampled_through_its_parent(driver: Driver) -> None:
    gpm(mig=("parent", 7)).read(1.0)
    assert driver.taken[0][:2] == ("parent", 7)


def standing_chain(driver: Driver) -> FallbackChain:
    """A chain whose GPM has measured at times -2 and -1."""
    chain = FallbackChain([gpm()])
    chain.read(-2.0)
    assert chain.read(-1.0).activity is not None
    return chain


def test_three_bad_ticks_lead_down_and_two_seconds_later_up_again(driver: Driver) -> None:
    chain = standing_chain(driver)
    driver.error = pynvml.NVML_ERROR_TIMEOUT
    assert [chain.read(float(t)).source for t in (0, 1, 2, 3)] == ["gpm", "gpm", None, None]
    assert (
        chain.read(3.0).reason
        == "GPM: the driver timed out; run dcgm-exporter with DCGM_FI_PROF_SM_ACTIVE enabled"
    )
    driver.error = None
    taken = len(driver.taken)
    assert chain.read(3.9).source is None
    assert len(driver.taken) == taken
    assert chain.read(4.1).source is None
    assert len(driver.taken) == taken + 1
    assert measured(chain.read(5.1).activity).values["sm_active_pct"] == 1.0


def test_the_bound_is_what_utilisation_proves() -> None:
    assert bound(66, 132) == (0.5, 66.0)
    assert bound(8, None) == (None, 8.0)
    assert bound(0, 132) == (0.0, 0.0)
    assert bound(None, 132) == (None, None)


def test_a_driver_that_wants_another_structure_says_nothing_about_the_gpu_and_is_asked_again(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = pynvml.nvmlGpmQueryDeviceSupport

    def refuse(_: Any) -> Any:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)

    monkeypatch.setattr(pynvml, "nvmlGpmQueryDeviceSupport", refuse)
    chain = FallbackChain([gpm()])
    for second in range(10):
        standing = chain.read(float(second))
        assert standing.source is None and "another structure" in (standing.reason or "")
    monkeypatch.setattr(pynvml, "nvmlGpmQueryDeviceSupport", asked)
    chain.read(70.0)
    assert chain.read(71.0).source == "gpm"


@pytest.mark.parametrize("refused", [{8}, {8, 60, 61}])
@pytest.mark.parametrize(
    "code", [pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_NOT_SUPPORTED]
)
def test_a_driver_that_refuses_an_id_is_asked_again_without_it(
    driver: Driver, refused: set[int], code: int
) -> None:
    driver.refused, driver.refusal = refused, code
    reader = gpm()
    reader.read(0.0)
    first = measured(reader.read(1.0))
    assert first.values["sm_active_pct"] == 1.0
    assert set(first.missing) == {METRICS[metric][0] for metric in refused}
    assert set(first.missing.values()) == {"this driver does not know this counter"}
    asked = driver.pairs
    assert measured(reader.read(2.0)).missing == first.missing
    assert driver.pairs == asked + 1


def test_a_driver_that_refuses_every_id_is_asked_for_each_of_them_once(driver: Driver) -> None:
    driver.refused = set(METRICS)
    reader = gpm()
    for now in (0.0, 2.0):
        reader.read(now)
        with pytest.raises(SmReadFailed, match="not supported"):
            reader.read(now + 1.0)
    assert driver.pairs == 1 + len(METRICS) + 1
