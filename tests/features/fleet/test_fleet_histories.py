"""Histories in a real Prometheus: what vanishes is told apart, and time is blamed on whose it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gputop.features.fleet.address import address_of
from gputop.features.fleet.engine import Answer, Client, PromQuery, QueryError
from gputop.features.fleet.fleet_data import fleet_data
from gputop.features.fleet.fleet_frame import FleetFrame, fleet_frame
from gputop.features.fleet.prometheus_fleet import PrometheusFleet
from tests.features.fleet.conftest import counted
from tests.support.engines import backfill, missing, prometheus

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing("prometheus")), reason="no prometheus")]
END = 1_763_000_100.0
STEP_S = 15.0
GIB = 2.0**30
Series = dict[str, Callable[[float], float | None]]
"""Name and labels → the value at so many seconds before the end; None where there is none."""


def lines(series: Series, span_s: float, step_s: float = STEP_S) -> Iterator[str]:
    """A history as OpenMetrics text."""
    for name, value in series.items():
        for step in range(int(span_s / step_s), -1, -1):
            found = value(step * step_s)
            if found is not None:
                yield f"{name} {found:.9g} {END - step * step_s:.3f}\n"


def own(host: str, gpu: int, until: float = 0.0, **more: float) -> Series:
    """A GPU under gputop's names that works until so many seconds before the end."""
    labels = f'gpu="{gpu}",uuid="GPU-{host}-{gpu}",instance="{host}:9401",job="gputop"'
    values = {"gputop_gpu_utilization_ratio": 0.98, "gputop_gpu_sm_active_ratio": 0.9, "gputop_gpu_power_watts": 600.0}
    found: Series = {
        f"{name}{{{labels}}}": (lambda back, value=value: value if back >= until else None)  # type: ignore[misc]
        for name, value in {**values, **more}.items()
    }
    found[f'gputop_gpu_state{{{labels},state="working"}}'] = lambda back: 1.0 if back >= until else None
    found[f'gputop_gpu_state_seconds_total{{{labels},state="working"}}'] = lambda back: 9000.0 - max(back, until)
    return found


def host(name: str, up: Callable[[float], float | None] = lambda back: 1.0, late_for: float = 0.0) -> Series:
    """What an exporter says of itself."""
    labels = f'instance="{name}:9401",job="gputop"'
    return {
        f"up{{{labels}}}": up,
        f"gputop_up{{{labels}}}": lambda back: 0.0 if back < late_for else 1.0,
        f'gputop_host_info{{{labels},hostname="{name}"}}': lambda back: 1.0,
        f"gputop_last_sample_timestamp_seconds{{{labels}}}": lambda back: END - max(back, late_for),
    }


def dcgm(labels: str, util: float | Callable[[float], float | None], sm: float, memory_gib: float = 60.0) -> Series:
    """A GPU under dcgm-exporter's names; its host is in the labels."""
    share = util if callable(util) else lambda back: util
    return {
        f"DCGM_FI_DEV_GPU_UTIL{{{labels}}}": share,
        f"DCGM_FI_PROF_SM_ACTIVE{{{labels}}}": lambda back: None if share(back) is None else sm / 100.0,
        f"DCGM_FI_DEV_FB_USED{{{labels}}}": lambda back: None if share(back) is None else memory_gib * 1024.0,
        f"DCGM_FI_DEV_POWER_USAGE{{{labels}}}": lambda back: None if share(back) is None else 500.0,
    }


def gpu_of(name: str, gpu: int, more: str = "", instance: str = "") -> str:
    uuid = f"GPU-{instance or name}-{gpu}"
    return f'gpu="{gpu}",UUID="{uuid}",Hostname="{name}",instance="{instance or name}:9400",job="dcgm"{more}'


def up(*names: str, value: Callable[[float], float | None] = lambda back: 1.0) -> Series:
    """What an engine says of the scrapes of dcgm-exporters."""
    return {f'up{{instance="{name}:9400",job="dcgm"}}': value for name in names}


class Asked:
    """A fleet asked at the end of a history."""

    def __init__(self, url: str, select: str = "") -> None:
        self.client: Any = Client(address_of(url, {}))
        self.fleet = PrometheusFleet(self.client, url, select, lambda: END)
        self.fleet.settle()

    def frame(self, at: float = END) -> FleetFrame:
        return fleet_frame(self.fleet.ask(at))


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Callable[..., Asked]]:
    """Gives a fleet for a history, each with an engine of its own that runs until the test has ended."""
    running: list[tuple[Any, Asked]] = []

    def begin(series: Series, span_s: float = 7200.0, step_s: float = STEP_S, select: str = "") -> Asked:
        folder = tmp_path / str(len(running))
        backfill(folder, lines(series, span_s, step_s))
        server = prometheus(folder)
        url = server.__enter__()
        asked = Asked(url, select)
        running.append((server, asked))
        return asked

    yield begin
    for server, asked in running:
        asked.fleet.close()
        server.__exit__(None, None, None)


def merged(*parts: Mapping[str, Any]) -> Series:
    found: Series = {}
    for part in parts:
        found.update(part)
    return found


def test_a_hung_driver_and_a_lost_gpu_stay_in_the_fleet_and_are_named_first(ask: Callable[..., Asked]) -> None:
    quarter = 900.0
    lost = 'gpu="7",uuid="GPU-n20-7",instance="n20:9401",job="gputop"'
    series = merged(
        *(own("n20", gpu) for gpu in range(7)), own("n20", 7, quarter), host("n20"),
        {f"gputop_gpu_lost{{{lost}}}": lambda back: 1.0 if back < quarter else None,
         f"gputop_gpu_info{{{lost}}}": lambda back: 1.0},
        *(own("n21", gpu, quarter) for gpu in range(8)), host("n21", late_for=quarter),
        *(own("n22", gpu) for gpu in range(8)), host("n22"),
    )  # fmt: skip
    frame = ask(series).frame()
    assert counted(frame) == {"working": 15, "late": 8, "lost": 1}
    assert [(name, down.kind) for name, down in frame.read.down.items()] == [("n21", "late")]
    assert frame.read.down["n21"].since_s == pytest.approx(quarter)
    assert [(gpu.read.host, gpu.read.gpu) for gpu in frame.gpus if gpu.state == "lost"] == [("n20", "7")]
    data = fleet_data(frame)
    assert (data["hosts_down"], data["hosts_late"], data["hosts_gone"]) == (0, 1, [])


def test_down_and_gone_are_told_apart_by_whether_the_engine_still_scrapes(ask: Callable[..., Asked]) -> None:
    half = 1800.0
    series = merged(
        *(own(f"n{n}", gpu, half if n in (1, 2) else 0.0) for n in (1, 2, 3) for gpu in range(2)),
        host("n3"),
        # The first one is scraped and silent, the second one is no longer in any configuration.
        {'up{instance="n1:9401",job="gputop"}': lambda back: float(back >= half),
         'up{instance="n2:9401",job="gputop"}': lambda back: 1.0 if back >= half else None},
    )  # fmt: skip
    frame = ask(series).frame()
    assert counted(frame) == {"working": 2, "down": 2}
    assert set(frame.read.down) == {"n1:9401"} or set(frame.read.down) == {"n1"}
    (gone,) = frame.read.gone.values()
    assert gone.gpus == 2 and frame.total == 4
    assert [name.partition(":")[0] for name in frame.read.gone] == ["n2"]


def test_a_node_whose_driver_hung_before_anything_was_seen_is_late_and_not_nothing(ask: Callable[..., Asked]) -> None:
    frame = ask(host("n1", late_for=1e6)).frame()
    assert frame.read.down["n1"].kind == "late" and frame.total == 0


def test_a_gpu_that_fell_off_the_bus_under_dcgm_names_is_lost_for_a_day(ask: Callable[..., Asked]) -> None:
    three_hours = 10800.0
    series = merged(
        *(dcgm(gpu_of("n1", gpu), 98.0, 90.0) for gpu in range(3)),
        dcgm(gpu_of("n1", 3), lambda back: 98.0 if back >= three_hours else None, 90.0),
        up("n1"),
    )  # fmt: skip
    frame = ask(series, span_s=14400.0, step_s=60.0).frame()
    assert frame.counts["lost"] == 1 and frame.counts["working"] == 3
    assert [(gpu.read.host, gpu.read.gpu) for gpu in frame.gpus if gpu.state == "lost"] == [("n1", "3")]


def test_a_file_that_nobody_writes_any_more_is_a_dead_exporter_whatever_the_nodes_clock_says(
    ask: Callable[..., Asked],
) -> None:
    for wrong_by in (0.0, 7200.0, -7200.0):
        stamp = 'gputop_last_sample_timestamp_seconds{instance="n%d:9401",job="gputop"}'
        series = merged(
            *(own(f"n{n}", 0) for n in (1, 2)), host("n1"), host("n2"),
            {stamp % 1: lambda back, off=wrong_by: END - back + off,
             stamp % 2: lambda back, off=wrong_by: END - max(back, 300.0) + off},
        )  # fmt: skip
        frame = ask(series, span_s=3600.0).frame()
        assert list(frame.read.down) == ["n2"] and frame.read.down["n2"].kind == "down", wrong_by
        assert "nobody writes its file" in frame.read.down["n2"].reason


def test_a_gpu_that_a_job_holds_and_no_process_uses_is_told_with_its_owner(
    ask: Callable[..., Asked],
) -> None:
    labels = 'gpu="%d",uuid="GPU-n1-%d",instance="n1:9401",job="gputop"'
    pod, process = (
        f"gputop_{name}_info{{{labels},{more}}}"
        for name, more in (
            ("pod", 'k8s_namespace_name="ml",k8s_pod_name="llm-0"'), ("job", 'scheduler="slurm",job_id="7",user="ann"'),
        )
    )  # fmt: skip
    series = merged(host("n1"), *(own("n1", gpu) for gpu in range(3)))
    for gpu in range(3):
        del series[f'gputop_gpu_state{{{labels % (gpu, gpu)},state="working"}}']
        series[f'gputop_gpu_state{{{labels % (gpu, gpu)},state="idle"}}'] = lambda back: 1.0
        series[f'gputop_gpu_state_seconds_total{{{labels % (gpu, gpu)},state="idle"}}'] = lambda back: 9000.0 - back
    # The first one is given to a pod, the second one is, too, and a process of it is there; the third one is free.
    series |= {pod % (0, 0): lambda back: 1.0, pod % (1, 1): lambda back: 1.0, process % (1, 1): lambda back: 1.0}
    series |= merged(
        *(dcgm(gpu_of("n2", gpu, more), 0.0, 0.0, 0.4) for gpu, more in enumerate((',hpc_job="8"', ""))),
        up("n2"),
    )
    frame = ask(series).frame()
    states = {(gpu.read.host, gpu.read.gpu): gpu.state for group in frame.hosts for gpu in group.gpus}
    assert states == {
        ("n1", "0"): "allocated_unused", ("n1", "1"): "idle", ("n1", "2"): "idle", ("n2", "0"): "allocated_unused",
        ("n2", "1"): "idle",
    }  # fmt: skip
    (pod_group,) = [
        group for group in frame.jobs if group.counts.get("allocated_unused") and group.name.startswith("pod")
    ]
    assert (pod_group.name, pod_group.users, pod_group.hosts) == ("pod ml/llm-0", ("ml",), ("n1",))


def test_the_exporters_own_pod_is_no_job(ask: Callable[..., Asked]) -> None:
    target = ',pod="dcgm-exporter-x7x",namespace="gpu-operator",container="exporter"'
    series = merged(
        *(dcgm(gpu_of("n1", gpu, target), 98.0, 94.0 if gpu == 7 else 60.0) for gpu in range(8)),
        {f'up{{instance="n1:9400",job="dcgm"{target}}}': lambda back: 1.0},
    )
    frame = ask(series).frame()
    assert {gpu.job for gpu in frame.read.gpus} == {""} and not frame.stragglers
    named = merged(series, dcgm(gpu_of("n2", 0, f'{target},exported_pod="llm-0",exported_namespace="a"'), 98.0, 90.0))
    jobs = {(gpu.host, gpu.job, gpu.user) for gpu in ask(named).frame().read.gpus}
    assert jobs == {("n1", "", ""), ("n2", "pod a/llm-0", "a")}


def test_pods_of_one_name_in_two_namespaces_are_two_jobs(ask: Callable[..., Asked]) -> None:
    def pod(namespace: str) -> str:
        return f',exported_pod="trainer-worker-0",exported_namespace="{namespace}"'

    series = merged(
        *(dcgm(gpu_of("n1", gpu, pod("team-a")), 98.0, 68.0) for gpu in range(4)),
        dcgm(gpu_of("n1", 4, pod("team-b")), 98.0, 94.0),
    )
    frame = ask(series).frame()
    assert not frame.stragglers and {gpu.job for gpu in frame.read.gpus} == {
        "pod team-a/trainer-worker-0", "pod team-b/trainer-worker-0",
    }  # fmt: skip


def test_two_clusters_with_the_same_addresses_are_never_merged(ask: Callable[..., Asked]) -> None:
    def of(cluster: str, util: float, sm: float, label: str) -> Series:
        return merged(*(
            dcgm(gpu_of("node-1", gpu, label, "10.0.0.1").replace("GPU-10", f"GPU-{cluster}"), util, sm, util)
            for gpu in range(8)
        ))  # fmt: skip

    told = merged(of("a", 98.0, 90.0, ',cluster="a"'), of("b", 0.0, 0.0, ',cluster="b"'))
    frame = ask(told).frame()
    assert frame.counts["working"] == 8 and frame.counts["idle"] == 8 and frame.total == 16
    assert {group.name for group in frame.hosts} == {"a/node-1", "b/node-1"}
    assert not any("two machines" in problem for problem in frame.problems)
    same = merged(of("a", 98.0, 90.0, ""), of("b", 0.0, 0.0, ""))
    frame = ask(same).frame()
    assert frame.counts["working"] == 8 and frame.counts["idle"] == 8 and frame.total == 16
    assert any("two machines answer as node-1" in text and "--select" in text for text in frame.problems)


@pytest.mark.parametrize(
    "failing", ["quantile_over_time", "last_over_time(DCGM_FI_DEV_FB_USED", "SM_ACTIVE", "max_over_time(up"]
)
def test_a_question_that_fails_changes_no_state_and_makes_none_up(ask: Callable[..., Asked], failing: str) -> None:
    series = merged(
        *(dcgm(gpu_of("n1", gpu, ',hpc_job="1"'), 0.0, 0.0) for gpu in range(4)),
        *(dcgm(gpu_of("n2", gpu, ',hpc_job="2"'), 98.0, 90.0) for gpu in range(4)),
        *(dcgm(gpu_of("n3", gpu, ',hpc_job="3"'), lambda back: 98.0 if back > 600.0 else None, 90.0) for gpu in (0,)),
        {f'up{{instance="n{n}:9400",job="dcgm"}}': lambda back, n=n: float(n != 3 or back > 600.0) for n in (1, 2, 3)},
    )
    true = {"idle_allocated": 4, "working": 4, "down": 1}
    asked = ask(series)
    real, fails = asked.client.ask, [False]

    def failing_at_times(queries: Sequence[PromQuery]) -> list[Answer | QueryError]:
        found: list[Answer | QueryError] = real(queries)
        return [
            QueryError("503, the engine failed") if fails[0] and failing in query.promql else answer
            for query, answer in zip(queries, found, strict=True)
        ]

    asked.client.ask = failing_at_times
    assert counted(asked.frame()) == true
    fails[0] = True
    for _ in range(4):
        frame = asked.frame()
        assert counted(frame) == true, frame.problems
    anew = Asked(asked.fleet.source)
    real = anew.client.ask
    anew.client.ask = failing_at_times
    found = counted(anew.frame())
    assert not set(found) - {*true, "unmeasured", "lost"} and "starved" not in found and "idle" not in found
    anew.fleet.close()


def test_one_missed_scrape_leaves_sums_whole_and_what_is_missing_is_said(ask: Callable[..., Asked]) -> None:
    def late(n: int, back: float) -> float | None:
        return None if n < 3 and back < 15.0 else 98.0

    series = merged(
        *(dcgm(gpu_of(f"n{n}", 0), lambda back, n=n: late(n, back), 90.0) for n in range(9)),  # type: ignore[misc]
        {
            f'up{{instance="n{n}:9400",job="dcgm"}}': lambda back, n=n: float(late(n, back) is not None)
            for n in range(9)
        },
    )
    frame = ask(series).frame()
    assert frame.counts["working"] == 9 and frame.power[0] == pytest.approx(4500.0)


def test_a_pause_of_the_engine_makes_no_host_down(ask: Callable[..., Asked]) -> None:
    def seen(n: int, back: float) -> bool:
        # Stopped for over a minute; five of nine targets were scraped again since.
        return back > 75.0 or (n < 5 and back == 0.0)

    series = merged(
        *(dcgm(gpu_of(f"n{n}", 0), lambda back, n=n: 98.0 if seen(n, back) else None, 90.0) for n in range(9)),  # type: ignore[misc]
        {f'up{{instance="n{n}:9400",job="dcgm"}}': lambda back, n=n: 1.0 if seen(n, back) else None for n in range(9)},
    )
    frame = ask(series).frame()
    assert frame.counts["working"] == 9 and not frame.read.down and not frame.read.gone
