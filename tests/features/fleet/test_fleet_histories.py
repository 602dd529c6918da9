"""Histories in a real Prometheus: what vanishes is told apart, a GPU is one, and time is blamed on whose it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from gputop.features.fleet.deploy.questions import QUESTIONS
from gputop.features.fleet.judge.fleet_frame import FleetFrame, fleet_frame
from gputop.features.fleet.promql import rule_scope
from gputop.features.fleet.read.address import address_of
from gputop.features.fleet.read.engine import Answer, Client, PromQuery, labels_of
from gputop.features.fleet.read.prometheus_fleet import PrometheusFleet
from gputop.features.fleet.show.fleet_data import fleet_data
from tests.features.fleet.conftest import counted, failing_at_times
from tests.support.engines import backfill, missing, prometheus

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing("prometheus")), reason="no prometheus"),
]
END = 1_763_000_100.0
STEP_S = 15.0
Series = dict[str, Callable[[float], float | None]]
"""Name and labels → the value at so many seconds before the end; None where there is none."""


def always(back: float) -> float:
    return 1.0


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
    values = {
        "gputop_gpu_utilization_ratio": 0.98,
        "gputop_gpu_sm_active_ratio": 0.9,
        "gputop_gpu_power_watts": 600.0,
    }
    found: Series = {
        f"{name}{{{labels}}}": (lambda back, value=value: value if back >= until else None)  # type: ignore[misc]
        for name, value in {**values, **more}.items()
    }
    found[f'gputop_gpu_state{{{labels},state="working"}}'] = lambda back: (
        1.0 if back >= until else None
    )
    found[f'gputop_gpu_state_seconds_total{{{labels},state="working"}}'] = lambda back: (
        9000.0 - max(back, until)
    )
    return found


def host(name: str, up: Callable[[float], float | None] = always, late_for: float = 0.0) -> Series:
    """What an exporter says of itself."""
    labels = f'instance="{name}:9401",job="gputop"'
    return {
        f"up{{{labels}}}": up,
        f"gputop_up{{{labels}}}": lambda back: 0.0 if back < late_for else 1.0,
        f'gputop_host_info{{{labels},hostname="{name}"}}': always,
        f"gputop_last_sample_timestamp_seconds{{{labels}}}": lambda back: END - max(back, late_for),
    }


def dcgm(
    labels: str, util: float | Callable[[float], float | None], sm: float, memory_gib: float = 60.0
) -> Series:
    """A GPU under dcgm-exporter's names; its host is in the labels."""
    share = util if callable(util) else lambda back: util
    return {
        f"DCGM_FI_DEV_GPU_UTIL{{{labels}}}": share,
        f"DCGM_FI_PROF_SM_ACTIVE{{{labels}}}": lambda back: (
            None if share(back) is None else sm / 100.0
        ),
        f"DCGM_FI_DEV_FB_USED{{{labels}}}": lambda back: (
            None if share(back) is None else memory_gib * 1024.0
        ),
        f"DCGM_FI_DEV_POWER_USAGE{{{labels}}}": lambda back: None if share(back) is None else 500.0,
    }


def gpu_of(name: str, gpu: int, more: str = "", instance: str = "") -> str:
    uuid = f"GPU-{instance or name}-{gpu}"
    return f'gpu="{gpu}",UUID="{uuid}",Hostname="{name}",instance="{instance or name}:9400",job="dcgm"{more}'


def up(*names: str, value: Callable[[float], float | None] = always) -> Series:
    """What an engine says of the scrapes of dcgm-exporters."""
    return {f'up{{instance="{name}:9400",job="dcgm"}}': value for name in names}


class Asked:
    """A fleet asked at the end of a history."""

    def __init__(self, url: str, select: str = "") -> None:
        self.select, self.client = select, Client(address_of(url, {}))
        self.fleet = PrometheusFleet(self.client, url, select, lambda: END)
        self.fleet.settle()

    def frame(self, at: float = END) -> FleetFrame:
        return fleet_frame(self.fleet.ask(at))


def merged(*parts: Mapping[str, Any]) -> Series:
    found: Series = {}
    for part in parts:
        found.update(part)
    return found


JOB = ',hpc_job="77"'


def mig(
    name: str,
    gpu: int,
    number: int,
    profile: str,
    gr: float,
    sm: float,
    more: str = JOB,
    **util: float,
) -> Series:
    """An instance under dcgm-exporter's names, which has no utilisation, or one that is 0."""
    labels = gpu_of(
        name, gpu, f',GPU_I_ID="{number}"' + f',GPU_I_PROFILE="{profile}"' * bool(profile) + more
    )
    values = {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": gr, "DCGM_FI_PROF_SM_ACTIVE": sm, "DCGM_FI_DEV_FB_USED": 9000.0,
              "DCGM_FI_DEV_POWER_USAGE": 350.0, **util}  # fmt: skip
    return {
        f"{metric}{{{labels}}}": lambda back, value=value: value for metric, value in values.items()
    }  # type: ignore[misc]


def split(
    name: str, gpus: Iterable[int], profiles: Iterable[str] = ("1g.10gb",) * 7, **values: float
) -> Series:
    """GPUs that are split: their own rows go on beside those of the instances."""
    filled = {"gr": 0.98, "sm": 0.05, **values}
    found: Series = merged(*(mig(name, gpu, number, profile, **filled)  # type: ignore[arg-type]
                             for gpu in gpus for number, profile in enumerate(profiles, 7)))  # fmt: skip
    return merged(
        found,
        *({f"DCGM_FI_DEV_POWER_USAGE{{{gpu_of(name, gpu)}}}": lambda back: 350.0} for gpu in gpus),
    )


def own_job(name: str, gpus: int) -> Series:
    """GPUs under gputop's names that are busy and do not work, of a job."""
    found: Series = host(name)
    for gpu in range(gpus):
        labels = f'gpu="{gpu}",uuid="GPU-{name}-{gpu}",instance="{name}:9401",job="gputop"'
        one = own(name, gpu)
        for series in [series for series in one if "state" in series]:
            del one[series]
        one[f'gputop_gpu_state{{{labels},state="busy_not_working"}}'] = always
        one[f'gputop_gpu_state_seconds_total{{{labels},state="busy_not_working"}}'] = lambda back: (
            9000.0 - back
        )
        one[f'gputop_job_info{{{labels},scheduler="slurm",job_id="901",user="ann"}}'] = always
        found |= one
    return found


def addressed(series: Series, old: str, new: str) -> Series:
    return {
        name.replace(f'instance="{old}"', f'instance="{new}"'): value
        for name, value in series.items()
    }


def relabelled(series: Series, **labels: str) -> Series:
    more = "".join(f',{name}="{value}"' for name, value in labels.items())
    return {f"{name[:-1]}{more}}}": value for name, value in series.items()}


def job(name: str, gpus: int, number: str, sm: float, **more: str) -> Series:
    return relabelled(
        merged(*(dcgm(gpu_of(name, gpu, f',hpc_job="{number}"'), 98.0, sm) for gpu in range(gpus))),
        **more,
    )


def since(series: Series, begin: float, end: float = 0.0) -> Series:
    """The same from so many seconds before the end on, and until so many before it."""
    return {
        name: lambda back, value=value: value(back) if end <= back <= begin else None
        for name, value in series.items()
    }  # type: ignore[misc]


OLD = merged(*(dcgm(gpu_of("h0", gpu, ',hpc_job="901"'), 97.0, 9.0) for gpu in range(8)))
RENAMED = {
    name.replace('Hostname="h0"', 'Hostname="h0.example"'): value for name, value in OLD.items()
}
QUARTER, HALF, THREE_HOURS = 900.0, 1800.0, 10800.0
EXPORTER = ',pod="dcgm-exporter-x7x",namespace="gpu-operator",container="exporter"'


def held(index: int) -> Series:
    """Idle GPUs of a node: given to a pod, given to one with a process on it, and free."""
    labels = f'gpu="{index}",uuid="GPU-n1-{index}",instance="n1:9401",job="gputop"'
    series = {name: value for name, value in own("n1", index).items() if "state" not in name}
    series |= {f'gputop_gpu_state{{{labels},state="idle"}}': always,
               f'gputop_gpu_state_seconds_total{{{labels},state="idle"}}': lambda back: 9000.0 - back}  # fmt: skip
    if index < 2:
        series[f'gputop_pod_info{{{labels},k8s_namespace_name="ml",k8s_pod_name="llm-0"}}'] = always
    if index == 1:
        series[f'gputop_job_info{{{labels},scheduler="slurm",job_id="7",user="ann"}}'] = always
    return series


def clusters(*labels: str) -> Series:
    """Two hosts of one address, one working and one idle."""
    return merged(*(
        dcgm(gpu_of("node-1", gpu, label, "10.0.0.1").replace("GPU-10", f"GPU-{n}"), util, 0.9 * util, util)
        for n, (label, util) in enumerate(zip(labels, (98.0, 0.0), strict=True))
        for gpu in range(8)
    ))  # fmt: skip


def pods(namespace: str, gpus: Iterable[int], sm: float) -> Series:
    told = f',exported_pod="trainer-worker-0",exported_namespace="{namespace}"'
    return merged(*(dcgm(gpu_of("n1", gpu, told), 98.0, sm) for gpu in gpus))


def dead(wrong_by: float) -> Series:
    """A node whose file is not renewed, and one whose file is, with a clock that is wrong."""
    stamp = 'gputop_last_sample_timestamp_seconds{instance="n%d:9401",job="gputop"}'
    return merged(
        *(own(f"n{n}", 0) for n in (1, 2)), host("n1"), host("n2"),
        {stamp % 1: lambda back: END - back + wrong_by, stamp % 2: lambda back: END - max(back, 300.0) + wrong_by},
    )  # fmt: skip


def hosts_of_nine(
    seen: Callable[[int, float], bool], up_of: Callable[[bool], float | None]
) -> Series:
    """Nine hosts of which some samples are missing."""
    return merged(
        *(dcgm(gpu_of(f"n{n}", 0), lambda back, n=n: 98.0 if seen(n, back) else None, 90.0) for n in range(9)),  # type: ignore[misc]
        *(up(f"n{n}", value=lambda back, n=n: up_of(seen(n, back))) for n in range(9)),  # type: ignore[misc]
    )  # fmt: skip


def _state_of(frame: FleetFrame) -> dict[tuple[str, str], str]:
    return {(gpu.read.host, gpu.read.gpu): gpu.state for gpu in frame.gpus}


def _lost(frame: FleetFrame) -> list[tuple[str, str]]:
    return [gpu for gpu, state in _state_of(frame).items() if state == "lost"]


def _down(frame: FleetFrame) -> dict[str, str]:
    return {name.partition(":")[0]: down.kind for name, down in frame.read.down.items()}


def _jobs(frame: FleetFrame) -> set[str]:
    return {gpu.job for gpu in frame.read.gpus}


def ranks(*own_s: float) -> Series:
    """GPUs of one job whose steps all take a second; what a rank does not take for itself it waits for the others."""
    found: Series = host("s")
    for gpu, seconds in enumerate(own_s):
        labels = f'gpu="{gpu}",uuid="GPU-s-{gpu}",instance="s:9401",job="gputop"'
        found |= own("s", gpu) | {
            f'gputop_job_info{{{labels},scheduler="slurm",job_id="7",user="ann"}}': always
        }
        rank = f'{{gpu="{gpu}",rank="{gpu}",job_id="7",instance="s:9401",job="gputop"}}'
        for name, a_step in (("step", 1.0), ("step_wait", 1.0 - seconds)):
            found[f"gputop_{name}_seconds_count{rank}"] = lambda back: 9000.0 - back
            found[f"gputop_{name}_seconds_sum{rank}"] = lambda back, a_step=a_step: (
                a_step * (9000.0 - back)
            )  # type: ignore[misc]
    return found


class Case(NamedTuple):
    """A history, the GPUs by state that it ends with, and what else is to be seen there."""

    series: Series
    counts: dict[str, int]
    seen: Callable[[FleetFrame], object] = len
    wanted: object = None
    step_s: float = STEP_S
    span_s: float = 7200.0


LOST = 'gpu="7",uuid="GPU-n20-7",instance="n20:9401",job="gputop"'
CASES: Mapping[str, Case] = {
    "a hung driver and a lost GPU": Case(
        merged(*(own("n20", gpu) for gpu in range(7)), own("n20", 7, QUARTER), host("n20"),
               {f"gputop_gpu_lost{{{LOST}}}": lambda back: 1.0 if back < QUARTER else None,
                f"gputop_gpu_info{{{LOST}}}": always},
               *(own("n21", gpu, QUARTER) for gpu in range(8)), host("n21", late_for=QUARTER),
               *(own("n22", gpu) for gpu in range(8)), host("n22")),
        {"working": 15, "late": 8, "lost": 1},
        lambda frame: (_down(frame), frame.read.down["n21"].since_s, _lost(frame), fleet_data(frame)["hosts_late"]),
        ({"n21": "late"}, QUARTER, [("n20", "7")], 1)),
    "down is scraped and silent, gone is in no configuration": Case(
        merged(*(own(f"n{n}", gpu, HALF if n in (1, 2) else 0.0) for n in (1, 2, 3) for gpu in range(2)), host("n3"),
               {'up{instance="n1:9401",job="gputop"}': lambda back: float(back >= HALF),
                'up{instance="n2:9401",job="gputop"}': lambda back: 1.0 if back >= HALF else None}),
        {"working": 2, "down": 2},
        lambda frame: (_down(frame), [(name.partition(":")[0], gone.gpus) for name, gone in frame.read.gone.items()]),
        ({"n1": "down"}, [("n2", 2)])),
    "a driver that hung before anything was seen": Case(host("n1", late_for=1e6), {}, _down, {"n1": "late"}),
    "a GPU that fell off the bus under DCGM's names is lost for a day": Case(
        merged(*(dcgm(gpu_of("n1", gpu), 98.0, 90.0) for gpu in range(3)), up("n1"),
               dcgm(gpu_of("n1", 3), lambda back: 98.0 if back >= THREE_HOURS else None, 90.0)),
        {"working": 3, "lost": 1}, _lost, [("n1", "3")], 60.0, 14400.0),
    **{f"a dead exporter with a clock wrong by {wrong_by:g} s": Case(
        dead(wrong_by), {"working": 1, "down": 1}, lambda frame: (_down(frame), frame.read.down["n2"].reason[:25]),
        ({"n2": "down"}, "nobody writes its file an")) for wrong_by in (0.0, 7200.0, -7200.0)},
    "GPUs that a job holds and no process uses": Case(
        merged(host("n1"), *map(held, range(3)), up("n2"),
               *(dcgm(gpu_of("n2", gpu, more), 0.0, 0.0, 0.4) for gpu, more in enumerate((',hpc_job="8"', "")))),
        {"allocated_unused": 2, "idle": 3},
        lambda frame: (_state_of(frame)["n1", "0"], _state_of(frame)["n2", "0"],
                       {(group.name, group.users, group.hosts) for group in frame.jobs if "pod" in group.name}),
        ("allocated_unused", "allocated_unused", {("pod ml/llm-0", ("ml",), ("n1",))})),
    "an exporter's own pod is no job": Case(
        merged(*(dcgm(gpu_of("n1", gpu, EXPORTER), 98.0, 94.0 if gpu == 7 else 60.0) for gpu in range(8)),
               {f'up{{instance="n1:9400",job="dcgm"{EXPORTER}}}': always}),
        {"working": 8}, lambda frame: (_jobs(frame), frame.stragglers), ({""}, ())),
    "pods of one name in two namespaces": Case(
        merged(pods("team-a", range(4), 68.0), pods("team-b", (4,), 94.0)), {"working": 5},
        lambda frame: (_jobs(frame), frame.stragglers),
        ({"pod team-a/trainer-worker-0", "pod team-b/trainer-worker-0"}, ())),
    "two clusters with the same addresses": Case(
        clusters(',cluster="a"', ',cluster="b"'), {"working": 8, "idle": 8},
        lambda frame: ({group.name for group in frame.hosts}, frame.problems), ({"a/node-1", "b/node-1"}, ())),
    "two clusters that nothing tells apart": Case(
        clusters("", ""), {"working": 8, "idle": 8},
        lambda frame: ["two machines answer as node-1" in text and "--select" in text for text in frame.problems],
        [True]),
    "a pause of over a minute, after which five of nine targets were scraped again": Case(
        hosts_of_nine(lambda n, back: back > 75.0 or (n < 5 and back == 0.0), lambda seen: 1.0 if seen else None),
        {"working": 9}, lambda frame: (_down(frame), frame.read.gone), ({}, {})),
    "two exporters": Case(
        merged(own_job("h0", 8), RENAMED, up("h0")), {"busy_not_working": 8},
        lambda frame: ([group.name for group in frame.hosts], frame.power[0]), (["h0"], 4800.0)),
    "two addresses": Case(
        merged(OLD, addressed(OLD, "h0:9400", "10.0.0.1:9400")), {"busy_not_working": 8},
        lambda frame: ([group.name for group in frame.hosts], frame.power[0]), (["h0"], 4000.0)),
    "MIG": Case(
        merged(split("m", range(2)), *(dcgm(gpu_of("n", gpu, ',hpc_job="8"'), 98.0, 90.0) for gpu in range(8))),
        {"busy_not_working": 14, "working": 8},
        lambda frame: ({group.name: sum(gpu.read.power_w or 0.0 for gpu in group.gpus) for group in frame.hosts},
                       {gpu.read.util_pct for gpu in frame.gpus}, frame.hosts[0].gpus[0].read.gpu),
        ({"m": pytest.approx(700.0), "n": 4000.0}, {98.0}, "0/7")),
    "a GPU that was split is not lost": Case(
        merged(*(dcgm(gpu_of("a", gpu), 98.0, 90.0) for gpu in range(3)), up("a"),
               since(dcgm(gpu_of("a", 3), 98.0, 90.0), 1e9, 900.0), since(split("a", (3,)), 900.0)),
        {"working": 3, "busy_not_working": 7}),
    "one number in two clusters is two jobs": Case(
        merged(job("n1", 8, "901", 68.0, cluster="a"), job("n2", 1, "901", 94.0, cluster="b")), {"working": 9},
        lambda frame: ({group.name for group in frame.jobs}, frame.stragglers), ({"a/job 901", "b/job 901"}, ())),
    "a host that is slow as a whole": Case(
        merged(job("slow", 8, "5", 90.0), *(job(f"n{n}", 8, "5", 9.0) for n in range(3))),
        {"working": 8, "busy_not_working": 24},
        lambda frame: [(late.host, late.gpu, late.size, late.gpus) for late in frame.stragglers],
        [("slow", "", 8, 32)]),
    "a rank that the others wait for in every step": Case(
        ranks(0.6, 0.9, 0.6, 0.6), {"working": 4},
        lambda frame: [(late.gpu, late.by, late.value, late.median) for late in frame.stragglers],
        [("1", "own_step", pytest.approx(0.9, rel=0.01), pytest.approx(0.6, rel=0.01))]),
    "three hosts of which one is down": Case(
        merged(*(dcgm(gpu_of("n1", gpu, ',hpc_job="1"'), 0.0, 0.0) for gpu in range(4)),
               *(dcgm(gpu_of("n2", gpu, ',hpc_job="2"'), 98.0, 90.0) for gpu in range(4)), up("n1", "n2"),
               dcgm(gpu_of("n3", 0, ',hpc_job="3"'), lambda back: 98.0 if back > 600.0 else None, 90.0),
               up("n3", value=lambda back: float(back > 600.0))),
        {"idle_allocated": 4, "working": 4, "down": 1}),
}  # fmt: skip


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Asked]]:
    """Gives a fleet for a case; all are in one engine, each under a label of its own."""
    folder, running = tmp_path_factory.mktemp("engine"), []
    backfill(folder, (
        line
        for number, case in enumerate(CASES.values())
        for line in lines(relabelled(case.series, of=str(number)), case.span_s, case.step_s)
    ))  # fmt: skip
    with prometheus(folder) as url:

        def begun(name: str) -> Asked:
            running.append(Asked(url, f'of="{list(CASES).index(name)}"'))
            return running[-1]

        yield begun
        for asked in running:
            asked.fleet.close()


@pytest.mark.parametrize("name", CASES)
def test_a_history_ends_with_the_states_that_were_planted(
    ask: Callable[[str], Asked], name: str
) -> None:
    case, frame = CASES[name], ask(name).frame()
    assert counted(frame) == case.counts
    assert case.wanted is None or case.seen(frame) == case.wanted


@pytest.mark.parametrize(
    "failing",
    ["quantile_over_time", "last_over_time(DCGM_FI_DEV_FB_USED", "SM_ACTIVE", "max_over_time(up"],
)
def test_a_question_that_fails_changes_no_state_and_makes_none_up(
    ask: Callable[[str], Asked], failing: str
) -> None:
    asked, anew = (ask("three hosts of which one is down") for _ in range(2))
    true = counted(asked.frame())
    for one in (asked, anew):
        failing_at_times(one.client)[0] = failing
    for _ in range(4):
        frame = asked.frame()
        assert counted(frame) == true, frame.problems
    assert counted(anew.frame()).keys() <= {*true, "unmeasured", "lost"}


def test_the_question_on_steps_finds_the_rank_whose_own_part_is_longer(
    ask: Callable[[str], Asked],
) -> None:
    asked = ask("a rank that the others wait for in every step")
    texts = [
        QUESTIONS[id].promql(rule_scope("gputop", asked.select))
        for id in ("straggler_own_step", "straggler_step")
    ]
    own_steps, steps = asked.client.ask([PromQuery(text or "", END) for text in texts])
    assert isinstance(own_steps, Answer) and isinstance(steps, Answer) and not steps.rows, (
        "all steps take equal time"
    )
    (row,) = own_steps.rows
    assert labels_of(row.metric)["rank"] == "1" and row.value is not None
    assert float(row.value[1]) == pytest.approx(1.5, rel=0.01)
