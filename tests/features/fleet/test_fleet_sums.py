"""A large fleet by the sums of its rules: on a real engine it says what asking for every GPU says."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.features.fleet.deploy.rules_file import recorded
from gputop.features.fleet.fleet_reading import (
    NO_JOB,
    Down,
    FleetError,
    FleetReading,
    GpuReading,
    HostShare,
    JobName,
    LastHour,
    Lost,
)
from gputop.features.fleet.fleet_run import MOST_GPUS, frame_once
from gputop.features.fleet.judge.fleet_frame import FleetFrame, GpuGroup, fleet_frame, worst_first
from gputop.features.fleet.judge.gpu_state import judged, lost_hours
from gputop.features.fleet.judge.state_rules import HOST_ADDRESS, HOST_STATES
from gputop.features.fleet.promql import ALL_NAMES, NAMES_LABEL
from gputop.features.fleet.read import last_hour
from gputop.features.fleet.read.address import address_of
from gputop.features.fleet.read.decode_labels import owner_of
from gputop.features.fleet.read.engine import Answer, Client, Engine, PromQuery, labels_of
from gputop.features.fleet.read.gpu_inventory import FleetInventory
from gputop.features.fleet.read.prometheus_fleet import PrometheusFleet
from gputop.features.fleet.read.recorded_hosts import (
    HostNames,
    RecordedHosts,
    lost_of,
    recorded_host,
    shares_of,
)
from gputop.features.fleet.read.screen_queries import DIALECT_LABEL, UP, FleetSchema
from gputop.features.fleet.read.simulated_fleet import STARTED, SimulatedFleet
from gputop.features.fleet.read.sized_fleet import SizedFleet
from gputop.features.fleet.show.fleet_data import fleet_csv, fleet_json
from gputop.features.fleet.show.fleet_screen import fleet_screen
from gputop.features.fleet.show.fleet_view import FleetView, drawn_hosts, parse, passes
from gputop.features.fleet.show.watch_thread import FleetWatch
from tests.features.fleet.conftest import counted, failing_at_times, text_of
from tests.support.engines import imported, missing, victoria
from tests.support.fleet_pages import past
from tests.support.scripted_engine import ScriptedClient

FLEET = SimulatedFleet(125)
on_engine = pytest.mark.skipif(bool(missing("victoria-metrics")), reason="no victoria-metrics")
JOB_1, JOB_2 = JobName("slurm", "1"), JobName("job", "2")


def fleet_at(url: str, most_gpus: int | None = None) -> PrometheusFleet | SizedFleet:
    return fleet_of(Client(address_of(url, {})), url, most_gpus)


def fleet_of(client: Any, source: str, most_gpus: int | None) -> PrometheusFleet | SizedFleet:
    """A fleet that is read GPU by GPU, or by sums where it has more GPUs than that."""
    if most_gpus is None:
        return PrometheusFleet(client, source, "", lambda: STARTED)
    return SizedFleet(client, source, "", lambda: STARTED, most_gpus=most_gpus)


def of_job(host: str, gpus: int, sm: float = 60.0, job: JobName = JOB_1) -> list[GpuReading]:
    return [GpuReading(host, str(i), util_pct=98.0, sm_active_pct=sm, job=job) for i in range(gpus)]


def evaluate(url: str, at: float, only: str = "") -> None:
    """Record what the rules record, at a Unix time: each rule sees what those before it recorded."""
    client = Client(address_of(url, {}), 60.0)
    rules = [(names, *rule) for names in ALL_NAMES for _, rows in recorded(names) for rule in rows]
    for names, name, expr in rules if not only else (rule for rule in rules if rule[1] == only):
        (answer,) = client.ask([PromQuery(expr, at)])
        assert isinstance(answer, Answer), (name, answer)
        lines = []
        for row in answer.rows:
            labels = {**labels_of(row.metric), NAMES_LABEL: names}
            text = ",".join(
                f'{key}="{value}"' for key, value in labels.items() if key != "__name__"
            )
            assert row.value is not None
            lines.append(f"{name}{{{text}}} {row.value[1]} {at:.3f}\n")
        if lines:
            imported(url, lines)
    client.close()


@pytest.fixture(scope="module")
def frames(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[FleetFrame, FleetFrame, FleetFrame]]:
    """The same moment GPU by GPU, by sums, and by sums with the GPUs of the rows in sight."""
    with victoria(tmp_path_factory.mktemp("engine")) as url:
        imported(url, past(FLEET, STARTED, 2700.0, 60.0))
        evaluate(url, STARTED - 1800.0, HOST_ADDRESS)
        evaluate(url, STARTED)
        whole = fleet_at(url, MOST_GPUS)
        summed = fleet_at(url, 100)
        whole.settle()
        every = fleet_frame(whole.ask(STARTED))
        assert whole.look(["node-001"], STARTED) is None and not every.read.shares
        sums = fleet_frame(summed.ask(STARTED))
        gpus = summed.look(drawn_hosts(sums, FleetView(), 40), STARTED)
        assert gpus is not None
        yield every, sums, fleet_frame(summed.ask(STARTED))
        whole.close()
        summed.close()


def _by_name(groups: tuple[GpuGroup, ...]) -> Mapping[str, GpuGroup]:
    return {group.name: group for group in groups}


@pytest.mark.slow
@on_engine
def test_counts_hosts_jobs_and_users_are_those_of_asking_for_every_gpu(
    frames: tuple[FleetFrame, FleetFrame, FleetFrame],
) -> None:
    every, sums, _ = frames
    assert sums.counts == every.counts and sums.total == every.total == 1000
    kinds = [{host: down.kind for host, down in frame.read.down.items()} for frame in (sums, every)]
    assert kinds[0] == kinds[1]
    for of in ("hosts", "jobs", "users"):
        ours, theirs = _by_name(getattr(sums, of)), _by_name(getattr(every, of))
        assert ours.keys() == theirs.keys(), of
        for name, group in theirs.items():
            mine = ours[name]
            # Whose the GPU is that is lost, its last sample says; what the rules record now does not.
            kept = [
                s
                for s, n in (*mine.counts.items(), *group.counts.items())
                if n and (s != "lost" or of == "hosts")
            ]
            assert all(mine.counts.get(s, 0) == group.counts.get(s, 0) for s in kept), (of, name)
            assert set(mine.jobs) == set(group.jobs) and set(mine.users) == set(group.users), (
                of,
                name,
            )
            if group.down is None and not any(
                mine.counts.get(state) for state in ("lost", "late", "down")
            ):
                for key in ("util_pct", "sm_active_pct", "gap_pct", "power_w"):
                    wanted = getattr(group, key)
                    assert getattr(mine, key) == (
                        wanted and pytest.approx(wanted, rel=1e-3, abs=0.2)
                    ), (of, name, key)


@pytest.mark.slow
@on_engine
def test_gpus_are_asked_for_only_where_they_are_in_sight_and_rows_keep_their_order(
    frames: tuple[FleetFrame, FleetFrame, FleetFrame],
) -> None:
    every, sums, looked = frames
    order = [group.name for group in sorted(sums.hosts, key=worst_first)]
    # Only a straggler, which sums do not show, rises.
    straggle = {group.name for group in looked.hosts if group.verdict.straggles}
    rest = [
        group.name for group in sorted(looked.hosts, key=worst_first) if group.name not in straggle
    ]
    assert rest == [name for name in order if name not in straggle] and len(straggle) < 5
    known = {group.name for group in looked.hosts if group.gpus}
    absent = set(every.read.down)
    assert (
        set(order[:40]) - absent <= known
        and len(known) < 100
        and not any(group.gpus for group in sums.hosts)
    )
    theirs = _by_name(every.hosts)
    for group in looked.hosts:
        if group.gpus and group.down is None:
            assert [gpu.state for gpu in group.gpus] == [
                gpu.state for gpu in theirs[group.name].gpus
            ], group.name
            assert group.verdict == theirs[group.name].verdict, group.name


def _reading(**more: Any) -> FleetReading:
    shares = (
        HostShare("n1", JOB_1, "ann", {"working": 8}, 98.0, 90.0, 4800.0),
        HostShare("n2", JOB_1, "ann", {"working": 4}, 50.0, 40.0, 2000.0),
        HostShare("n2", NO_JOB, "", {"idle": 4}, 0.0, 0.0, 300.0),
        HostShare("n3", JOB_2, "bob", {"starved": 6, "working": 1}, 50.0, 40.0, 2000.0),
    )
    return FleetReading(STARTED, "x", (), shares=shares, **more)


LOST = [Lost("n3", "", JOB_2, "bob", "starved", 3.0), Lost("n2", "", NO_JOB, "", "idle", 4.0)]


def test_groups_of_shares_have_sums_weighted_means_and_what_is_missing() -> None:
    down = {"n1": Down(60.0, "the exporter does not answer"), "n9": Down(None, "it hangs", "late")}
    frame = fleet_frame(_reading(hour=LastHour(LOST), missing={"n3": 1, "n9": 8}, down=down))
    assert counted(frame) == {
        "down": 8,
        "late": 8,
        "lost": 1,
        "idle": 4,
        "working": 5,
        "starved": 6,
    }
    hosts, jobs = _by_name(frame.hosts), _by_name(frame.jobs)
    assert hosts["n3"].verdict.text == "1 lost · 6 starved" and hosts["n9"].size == 8
    assert (hosts["n3"].waste_gpu_h, hosts["n2"].idle_gpu_h) == (3.0, 4.0)
    assert (
        jobs["slurm 1"].util_pct == pytest.approx((98.0 * 8 + 50.0 * 4) / 12)
        and jobs["slurm 1"].size == 12
    )
    assert jobs["slurm 1"].hosts == ("n1", "n2") and frame.jobs[-1].name == ""
    assert passes(parse("state:starved"), hosts["n3"]) and not passes(
        parse("state:starved"), hosts["n2"]
    )
    assert passes(parse("gpus>7"), hosts["n2"])
    (row,) = [row for row in frame.waste if row.job == "job 2"]
    assert row.gpu_h == 3.0 and row.gpus == 7
    text = text_of(fleet_screen(frame, FleetView(panel="stragglers"), 160, 48).rows)
    assert "no alert fires for one" in text and "no GPU holds" not in text, (
        "nobody looked at every job"
    )
    assert "sums of the rules" in text and "4 hosts" in text and "32 GPUs" in text


def test_a_part_of_a_job_has_no_straggler() -> None:
    gpus, shares = [*of_job("n1", 7), replace(of_job("n1", 1, 94.0)[0], gpu="7")], _reading().shares
    assert not fleet_frame(FleetReading(STARTED, "x", gpus, shares=shares)).stragglers
    frame = fleet_frame(FleetReading(STARTED, "x", [*gpus, *of_job("n2", 4)], shares=shares))
    assert [(one.host, one.gpu) for one in frame.stragglers] == [("n1", "7")]


def test_hosts_of_which_nothing_new_was_recorded_are_taken_from_the_frame_before_and_are_the_same() -> (
    None
):
    read = _reading(hour=LastHour(LOST), missing={"n3": 1})
    sums, some = fleet_frame(read), replace(read, gpus=of_job("n2", 4))
    looked = fleet_frame(some, sums)
    assert looked == fleet_frame(some) and looked.hosts[0] is sums.hosts[0]
    assert fleet_frame(read, looked) == sums, "GPUs that are no longer in sight are known no more"
    down = replace(read, down={"n1": Down(60.0, "it hangs", "late")})
    assert fleet_frame(down, sums) == fleet_frame(down)


def test_recorded_labels_name_owner_and_host_and_two_exporters_of_a_host_are_one() -> None:
    for told, owner in (
        ({"job_id": "7", "user": "ann", "scheduler": "slurm"}, ("slurm 7", "ann")), ({"job_id": "7"}, ("job 7", "")),
        ({"k8s_pod": "llm-0", "k8s_namespace": "ml"}, ("pod ml/llm-0", "ml")),
    ):  # fmt: skip
        assert owner_of(told) == owner
    labels = {"instance": "10.0.0.1:9401", "code": "2", "names": "gputop", "cluster": "a"}
    mine = recorded_host(labels)
    assert mine.quantity == "busy_not_working" and mine.host == "10.0.0.1"
    # The rules record each GPU under one exporter's names: of another one on the same host they have its other GPUs.
    rest, other, odd = (
        recorded_host({"Hostname": "n1", "code": code, "names": "legacy", "cluster": cluster})
        for code, cluster in (("1", "a"), ("1", "b"), ("99", "b"))
    )
    names = HostNames({("a", "10.0.0.1:9401"): "n1"}, (mine, rest))
    (share,) = shares_of([(mine, 6.0), (rest, 2.0)], names)
    assert share.host == "n1" and share.states == {"busy_not_working": 6, "working": 2}
    several = HostNames({}, (rest, other))
    shares = shares_of(
        [(rest, 8.0), (other, 4.0), (odd, 3.0), (other._replace(quantity="idle"), -1e300)], several
    )
    assert [(share.host, share.gpus) for share in shares] == [("a/n1", 8), ("b/n1", 4)]
    assert not lost_of([(odd, 5.0), (other, float("1e300"))], several)
    owned = [row._replace(quantity="starved", job=JobName("slurm", "901")) for row in (rest, other)]
    hours = lost_of([(row, 1.0) for row in owned], several)
    assert [lost.job for lost in hours] == ["a/slurm 901", "b/slurm 901"], (
        "each cluster counts its jobs from 1"
    )


def test_the_watch_reads_the_gpus_of_the_rows_in_sight_and_again_when_others_are() -> None:
    looked: list[tuple[str, ...]] = []

    class Large(SimulatedFleet):
        def ask(self, at: float | None = None) -> FleetReading:
            return _reading()

        def look(self, hosts: Sequence[str], at: float | None) -> Sequence[GpuReading]:  # type: ignore[override]
            looked.append(tuple(hosts))
            return [gpu for host in hosts for gpu in of_job(host, 1)]

    watch = FleetWatch(Large(20))
    told = threading.Event()
    watch.start(told.set)
    for hosts in (("n1",), ("n1", "n2")):
        watch.see(hosts, None)
        deadline = time.monotonic() + 20.0
        while {
            gpu.host for gpu in (watch.shown.frame.read.gpus if watch.shown.frame else ())
        } != set(hosts):
            assert time.monotonic() < deadline, looked
            told.wait(0.2)
            told.clear()
    watch.close()
    assert looked[0] in ((), ("n1",)) and looked[-1] == ("n1", "n2")


@pytest.mark.slow
@on_engine
def test_no_failed_question_and_no_rule_that_is_not_evaluated_makes_a_gpu_vanish(
    tmp_path: Path,
) -> None:
    small = SimulatedFleet(24)
    with victoria(tmp_path) as url:
        imported(url, past(small, STARTED, 2700.0, 60.0))
        plain = fleet_at(url, 10)
        plain.settle()
        read = plain.ask(STARTED)
        assert (
            not read.shares and len(read.gpus) >= 184 and plain.look(["node-001"], STARTED) is None
        )
        assert "one by one" in read.problems[-1] and "fleet deploy" in read.problems[-1], (
            "there are no rules yet"
        )
        plain.close()
        evaluate(url, STARTED - 1800.0, HOST_ADDRESS)
        evaluate(url, STARTED)
        client: Any = Client(address_of(url, {}))
        failing = failing_at_times(client)
        fleet = SizedFleet(client, url, "", lambda: STARTED, most_gpus=10)
        true = fleet_frame(fleet.ask(STARTED)).counts
        assert true["lost"] == 1 and true["late"] == 8
        # Each is in one question alone.
        labels = (
            "max without (back)", "ALERTS", "gputop:host:util", "gputop_host_info", "count by (instance) ({__name__",
        )  # fmt: skip
        for text in labels:
            failing[0] = text
            assert [fleet_frame(fleet.ask(STARTED)).counts for _ in range(2)] == [true] * 2, text
            anew = SizedFleet(client, url, "", lambda: STARTED, most_gpus=10)
            found = fleet_frame(anew.ask(STARTED))
            # Before it was ever answered a host that is down is not known to be.
            assert found.counts["lost"] <= 1 and found.counts["working"] >= true["working"], text
            assert text == labels[-1] or any("503" in problem for problem in found.problems)
        failing[0] = "gputop:host:gpus_in_state"
        with pytest.raises(FleetError, match="503"):
            fleet.ask(STARTED)
        failing[0] = ""
        # Ten minutes on exporters are still scraped, and no rule was evaluated: asked GPU by GPU.
        later = past(small, STARTED + 600.0, 540.0, 60.0)
        imported(url, [line for line in later if not line.startswith("gputop_gpu_lost")])
        frame = fleet_frame(fleet.ask(STARTED + 600.0))
        assert not frame.read.shares and frame.counts["working"] >= true["working"]
        client.close()


@pytest.mark.parametrize(
    "cluster", [{"cluster": "b"}, {}], ids=["silent in one cluster", "no cluster is named"]
)
def test_an_address_that_two_clusters_have_is_silent_in_its_own(cluster: dict[str, str]) -> None:
    address = {"instance": "10.0.0.1:9401"}

    def series(promql: str) -> list[tuple[dict[str, str], object]]:
        """Rules that record one address in two clusters, and a scrape that fails."""
        if "ALERTS" in promql:
            return [({DIALECT_LABEL: UP, **address, **cluster}, 0)]
        name = next((name for name in (HOST_STATES, HOST_ADDRESS) if promql.startswith(name)), None)
        told = {"__name__": name or "", "names": "gputop", "code": "1", **address}
        return [({**told, "cluster": each}, 8) for each in "ab" * bool(name)]

    read = RecordedHosts(Engine(ScriptedClient(series), "")).ask(None, "x", STARTED)  # type: ignore[arg-type]
    assert sorted(read.down) == (["b/10.0.0.1"] if cluster else ["a/10.0.0.1", "b/10.0.0.1"])


def test_a_gpu_in_sight_is_of_the_host_that_its_address_is_recorded_of_and_those_of_others_are_left_out() -> (
    None
):
    told = {DIALECT_LABEL: "legacy", "instance": "10.0.0.1:9400", "gpu": "0"}
    gpus = [
        ({**told, "UUID": "GPU-a", "cluster": "a", "Hostname": "n1"}, 1),
        ({**told, "UUID": "GPU-b", "cluster": "b", "Hostname": "n1.example"}, 1),
    ]
    client: Any = ScriptedClient(lambda _: gpus)
    inventory = FleetInventory(Engine(client, ""), {("b", "10.0.0.1:9400"): "b/n1"})
    inventory.schema = FleetSchema(("legacy",))
    inventory.identify(None, STARTED, looks_back=False)
    assert [(one.host, one.uuid) for one in inventory.identities.values()] == [("b/n1", "GPU-b")]


@pytest.mark.slow
@on_engine
def test_the_last_hour_is_what_the_rules_recorded_under_the_names_of_the_gpus(
    tmp_path: Path,
) -> None:
    small, minutes = SimulatedFleet(24), 3
    wanted: dict[str, float] = {}
    for gpu in small.ask(STARTED).gpus:
        gpu_h = lost_hours(judged(gpu)[0], gpu.util_pct, minutes / 60.0)
        if gpu_h > 0.0 and gpu.job and not gpu.is_lost:
            wanted[gpu.host] = wanted.get(gpu.host, 0.0) + gpu_h
    with victoria(tmp_path) as url:
        imported(url, past(small, STARTED, 2700.0, 60.0))
        for minute in range(minutes):
            evaluate(url, STARTED - 60.0 * minute)
        for fleet in (fleet_at(url), fleet_at(url, 10)):
            read, hour = fleet.ask(STARTED), fleet.hour(STARTED)
            assert (
                hour is not None
                and hour.lost is not None
                and hour.span_s == 60.0 * minutes
                and not hour.note
            )
            assert fleet.hour(STARTED) is hour, "once a minute"
            found: dict[str, float] = {}
            for lost in hour.lost:
                found[lost.host] = found.get(lost.host, 0.0) + lost.gpu_h * bool(lost.job)
            owners = {(of.host, of.job, of.user) for of in (*read.gpus, *read.shares)}
            assert {(lost.host, lost.job, lost.user) for lost in hour.lost} <= owners
            for host in set(wanted) - set(read.down):
                assert found[host] == pytest.approx(wanted[host], rel=0.1, abs=0.01), host
            again = fleet_frame(fleet.ask(STARTED))
            assert again.not_work_gpu_h == pytest.approx(sum(lost.gpu_h for lost in hour.lost))
            assert all(row.gpus for row in again.waste)
            fleet.close()


def _answering(value: str | None) -> Any:
    """An engine that answers every question with one series of this value, or with none."""
    told = {
        "instance": "n1:9400", "Hostname": "n1", "gpu": "0", "UUID": "GPU-1", "gputop_names": "legacy",
        "state": "idle", "code": "2", "names": "legacy", "hpc_job": "7", "alertname": "A",
    }  # fmt: skip
    return ScriptedClient(
        lambda of: [(told, value or 1)] if value or "modelName" in of else [], "gputop", "legacy"
    )


@pytest.mark.parametrize("most_gpus", [None, -1, 0])
@pytest.mark.parametrize("value", ["0", "-0", "NaN", "-1", "1e308"])
def test_no_count_of_an_engine_ends_an_output(value: str, most_gpus: int | None) -> None:
    fleet = fleet_of(_answering(value), "x", most_gpus)
    for _ in range(3):
        frame = frame_once(fleet, None)
        assert fleet_json(frame) and fleet_csv(frame) is not None
        fleet.look(["n1"], None)
        fleet.history("n1", STARTED)
        for panel in ("hosts", "jobs", "users", "stragglers", "waste", "alerts"):
            assert fleet_screen(frame, FleetView(panel=panel), 120, 40).rows


def test_where_the_last_hour_cannot_be_known_every_output_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(last_hour, "MOST_GPUS", -1)
    frame = frame_once(PrometheusFleet(_answering(None), "x", "", lambda: STARTED), None)
    assert "rules of `gputop fleet deploy`" in fleet_json(
        frame
    ) and '"not_work_gpu_h": null' in fleet_json(frame)
    for width in (80, 160):
        text = text_of(fleet_screen(frame, FleetView(panel="waste"), width, 40).rows)
        assert "rules of `gputop fleet deploy`" in text and "being read" not in text
