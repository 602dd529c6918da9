"""The last hour without rules: judged from samples on real engines, exact whoever exports a GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gputop.features.fleet.deploy.questions import QUESTIONS
from gputop.features.fleet.fleet_reading import LastHour
from gputop.features.fleet.judge.fleet_frame import fleet_frame
from gputop.features.fleet.judge.state_rules import HOST_ADDRESS, HOST_LOST
from gputop.features.fleet.promql import rule_scope
from gputop.features.fleet.read.address import address_of
from gputop.features.fleet.read.engine import Answer, Client, PromQuery, labels_of
from gputop.features.fleet.read.prometheus_fleet import PrometheusFleet
from tests.features.fleet.conftest import engine_with
from tests.features.fleet.test_fleet_histories import (
    END,
    Series,
    dcgm,
    gpu_of,
    host,
    lines,
    merged,
    own,
    up,
)
from tests.support.engines import missing

ENGINES = ("prometheus", "victoria-metrics")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("engines")]
HALF = 1800.0


def _wasting(name: str, gpus: int, more: str = "", instance: str = "") -> Series:
    return merged(
        *(dcgm(gpu_of(name, gpu, more, instance), 98.0, 9.0) for gpu in range(gpus)),
        up(instance or name),
    )


def _own_wasting(name: str, gpus: int) -> Series:
    """The same GPUs under gputop's names, with the node's state and count."""
    series: Series = {}
    for gpu in range(gpus):
        labels = f'gpu="{gpu}",uuid="GPU-{name}-{gpu}",instance="{name}:9401",job="gputop"'
        series |= own(name, gpu)
        del series[f'gputop_gpu_state{{{labels},state="working"}}']
        series[f'gputop_gpu_state{{{labels},state="busy_not_working"}}'] = lambda back: 1.0
        series[f'gputop_gpu_lost_seconds_total{{{labels},cause="small_kernels"}}'] = lambda back: (
            90_000.0 - back
        )
        series[f'gputop_job_info{{{labels},scheduler="slurm",job_id="7",user="ann"}}'] = (
            lambda back: 1.0
        )
    return merged(series, host(name))


def _part(gpu: int, instance: int) -> Series:
    """A seventh of a GPU that is busy and does not work."""
    labels = gpu_of(
        "m0",
        gpu,
        f',GPU_I_ID="{instance}",GPU_I_PROFILE="1g.10gb",modelName="NVIDIA H100",hpc_job="5"',
    )
    return {
        f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}}}": lambda back: 0.98,
        f"DCGM_FI_PROF_SM_ACTIVE{{{labels}}}": lambda back: 0.09,
        f"DCGM_FI_DEV_FB_USED{{{labels}}}": lambda back: 9000.0,
    }


def _job_of_half(gpu: int, number: str, *, is_first: bool) -> Series:
    """A job that has a GPU for one half of the hour; its series ends with it."""

    def within(value: float) -> Callable[[float], float | None]:
        return lambda back: value if (back >= HALF) == is_first else None

    labels = gpu_of("h3", gpu, f',hpc_job="{number}"')
    return {
        f"DCGM_FI_DEV_GPU_UTIL{{{labels}}}": within(98.0),
        f"DCGM_FI_PROF_SM_ACTIVE{{{labels}}}": within(0.09 if is_first else 0.9),
        f"DCGM_FI_DEV_FB_USED{{{labels}}}": within(60_000.0),
    }


FLEET = merged(
    # Two exporters on one host, and one of them at two addresses.
    _own_wasting("h0", 8), _wasting("h0", 8, ',hpc_job="7"'),
    {name.replace("h0:9400", "h0.lan:9400"): value for name, value in _wasting("h0", 8, ',hpc_job="7"').items()},
    _wasting("h1", 8, ',hpc_job="901",cluster="a"', "a-h1"),
    *(dcgm(gpu_of("h1", gpu, ',hpc_job="901",cluster="b"', "b-h1"), 98.0, 90.0) for gpu in range(8)), up("b-h1"),
    *(_part(0, instance) for instance in range(7)), up("m0"),
    *(_job_of_half(gpu, number, is_first=number == "1") for gpu in range(2) for number in "12"), up("h3"),
    *(dcgm(gpu_of("h4", gpu), 0.0, 0.0, held) for gpu, held in enumerate((0.4, 40.0))), up("h4"),
    *(dcgm(gpu_of("h5", gpu, ',hpc_job="8"'), 60.0, 50.0) for gpu in range(2)), up("h5"),
)  # fmt: skip


@pytest.fixture(scope="module", params=ENGINES)
def hour(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LastHour]:
    if reason := missing(request.param):
        pytest.skip(reason)
    with engine_with(request.param, tmp_path_factory.mktemp("hours"), lines(FLEET, 4500.0)) as url:
        fleet = PrometheusFleet(Client(address_of(url, {}), 60.0), url, "", lambda: END)
        assert fleet.ask(END).hour.lost is None, "the first frame does not wait for the hour"
        hour = fleet.hour(END)
        assert hour is not None and fleet.ask(END).hour is hour
        yield hour
        fleet.close()


def test_hours_are_exact_by_job_and_state_and_of_the_job_that_had_the_gpu_then(
    hour: LastHour,
) -> None:
    assert (hour.source, hour.span_s) == ("samples", 3600.0)
    found: dict[tuple[str, str], float] = defaultdict(float)
    for lost in hour.lost or ():
        found[str(lost.job), lost.state] += lost.gpu_h
    wanted = {
        ("-/slurm 7", "busy_not_working"): 8.0, ("a/job 901", "busy_not_working"): 8.0,
        ("-/job 5", "busy_not_working"): 1.0, ("-/job 1", "busy_not_working"): 1.0, ("-/job 8", "starved"): 0.8,
        ("", "idle"): 1.0, ("", "idle_allocated"): 1.0,
    }  # fmt: skip
    named = {
        (job if "/" in job or not job else f"-/{job}", state): gpu_h
        for (job, state), gpu_h in found.items()
    }
    assert {key: gpu_h for key, gpu_h in named.items() if gpu_h > 0.05} == {
        key: pytest.approx(gpu_h, rel=0.007, abs=0.035) for key, gpu_h in wanted.items()
    }
    assert sum(found.values()) == pytest.approx(sum(wanted.values()), rel=0.007)


@pytest.mark.parametrize("name", ENGINES)
def test_two_writers_of_one_engine_double_no_hour(name: str, tmp_path: Path) -> None:
    if reason := missing(name):
        pytest.skip(reason)
    told = '{names="legacy",Hostname="h0",job_id="7"'
    text = [
        f"{series} {value} {END - 60.0 * minute - after:.3f}\n"
        for series, value in ((f'{HOST_LOST}{told},state="busy_not_working"}}', 8),
                              (f'{HOST_ADDRESS}{told},instance="h0:9400"}}', 8))
        for minute in range(69, -1, -1)
        for after in (21.0, 8.0)
    ]  # fmt: skip
    text += [f"{line} {END - back:.3f}\n" for back in range(600, -1, -15)
             for line in (f"DCGM_FI_DEV_GPU_UTIL{{{gpu_of('h0', 0)}}} 98",)]  # fmt: skip
    with engine_with(name, tmp_path, iter(text)) as url:
        fleet = PrometheusFleet(Client(address_of(url, {}), 60.0), url, "", lambda: END)
        fleet.ask(END)
        hour = fleet.hour(END)
        fleet.close()
    assert hour is not None and (hour.source, hour.span_s) == ("rules", 3600.0)
    assert sum(lost.gpu_h for lost in hour.lost or ()) == pytest.approx(8.0)


def test_a_host_that_starves_is_an_alert_and_an_idle_instance_is_none(tmp_path: Path) -> None:
    if reason := missing("prometheus"):
        pytest.skip(reason)
    part = ',GPU_I_ID="%d",GPU_I_PROFILE="3g.40gb",hpc_job="9"'
    series = merged(
        *(dcgm(gpu_of(name, gpu, ',hpc_job="7"'), 98.0 * (name != "a"), 91.0) for name in "abc" for gpu in range(4)),
        *(dcgm(gpu_of("x", gpu, ',hpc_job="8"'), 0.0 if gpu else 98.0, 91.0) for gpu in range(4)),
        *({f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{gpu_of('m', gpu, part % 1)}}}": lambda back, gpu=gpu: float(gpu > 0)}
          for gpu in range(4)),
    )  # fmt: skip
    with engine_with("prometheus", tmp_path, lines(series, 600.0)) as url:
        client = Client(address_of(url, {}))
        text = QUESTIONS["straggler_starved"].promql(rule_scope("legacy"))
        assert text is not None
        (answer,) = client.ask([PromQuery(text, END)])
        fleet = PrometheusFleet(client, url, "", lambda: END)
        frame = fleet_frame(fleet.ask(END))
        fleet.close()
    assert isinstance(answer, Answer)
    assert sorted(labels_of(row.metric)["Hostname"] for row in answer.rows) == ["a"] * 4
    (late,) = frame.stragglers
    assert (late.host, late.gpu, late.kind, late.others_wait) == ("a", "", "starved", False), (
        "others do SM 91"
    )
    assert not any("wait for" in group.verdict.text for group in frame.hosts)
