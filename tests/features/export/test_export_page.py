"""The page of metrics: names, values, what is absent, what only rises, and what never gets into a label."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import partial
from math import inf, nan
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.features.export.dcgm_families import dcgm_families
from gputop.features.export.export_command import MachineHost
from gputop.features.export.listen_address import ListenAddress, parse
from gputop.features.export.metrics_page import PageChoice
from gputop.features.export.pod_resources import PodContainer, pod_family
from gputop.features.export.scrape_server import names_loopback
from gputop.model.derived import HARDWARE_THERMAL, IDLE
from gputop.model.metrics import GPU_METRICS
from gputop.model.prometheus_names import gpu_series, host_series, process_series
from gputop.model.snapshot import Event, HostSample, Machine, ProcessSample, ProcessStatic, Snapshot
from gputop.model.source import UsageError
from gputop.model.steps import StepRow
from gputop.sources.simulation.life import slurm
from tests.support.exported import Clock, demo_feed, feed, gpu_of, read, snapshot_of, value


def test_a_name_follows_from_key_and_unit() -> None:
    names = {series.key: (series.name, dict(series.labels)) for series in gpu_series()}
    assert names["util_pct"] == ("gputop_gpu_utilization_ratio", {})
    assert names["sm_active_pct"] == ("gputop_gpu_sm_active_ratio", {})
    assert names["mem_used_bytes"] == ("gputop_gpu_memory_used_bytes", {})
    assert names["power_limit_w"] == ("gputop_gpu_power_limit_watts", {})
    assert names["energy_j"] == ("gputop_gpu_energy_joules_total", {})
    assert names["temp_c"] == ("gputop_gpu_temperature_celsius", {})
    assert names["sm_clock_mhz"] == ("gputop_gpu_clock_hertz", {"domain": "sm"})
    assert names["mem_clock_mhz"] == ("gputop_gpu_clock_hertz", {"domain": "memory"})
    assert names["pcie_rx_bytes_per_s"] == ("gputop_gpu_pcie_rx_bytes_per_second", {})
    assert names["ecc_corrected"] == (
        "gputop_gpu_ecc_errors_total",
        {"kind": "corrected", "counter": "aggregate"},
    )
    every = [
        (series.name, series.labels)
        for series in (*gpu_series(), *host_series(), *process_series())
    ]
    assert len(set(every)) == len(every)


def test_every_number_of_the_catalogue_is_exported_once_in_base_units() -> None:
    values = {key: 50 for key, metric in GPU_METRICS.items()}
    given = feed()
    given.take(snapshot_of(1.0, gpu_of(sm_source="gpm", **values)))
    page = read(given.page())
    for series in gpu_series():
        if series.key in GPU_METRICS:
            assert (
                value(page, series.name, gpu="0", **dict(series.labels)) == 50 / series.divisor
            ), series
    assert value(page, "gputop_gpu_utilization_ratio") == 0.5
    assert value(page, "gputop_gpu_clock_hertz", domain="sm") == 50e6
    left_out = set(values) - {series.key for series in gpu_series()}
    assert left_out == {
        "throttle_reasons", "xid", "pcie_gen_max", "pcie_width_max", "sm_clock_max_mhz", "mem_temp_max_c",
        "temp_slowdown_c",
    }  # fmt: skip


def test_no_label_of_ours_collides_with_those_of_a_scrape() -> None:
    for scenario in ("mig", "shared_gpu"):
        for rows in read(demo_feed(scenario, PageChoice(True)).page()).values():
            for labels in rows:
                assert not {name for name, _ in labels} & {
                    "job",
                    "instance",
                    "pod",
                    "namespace",
                    "container",
                    "node",
                }


def test_what_was_not_measured_is_absent_and_never_0() -> None:
    given = feed()
    given.take(
        snapshot_of(
            1.0,
            gpu_of(
                util_pct=90.0, sm_source="bound", sm_high_pct=90.0, temp_c=nan, power_limit_w=inf
            ),
        )
    )
    page = read(given.page())
    assert value(page, "gputop_gpu_sm_active_ratio") is None
    assert value(page, "gputop_gpu_power_watts") is None
    assert (
        value(page, "gputop_gpu_temperature_celsius") is None
        and value(page, "gputop_gpu_power_limit_watts") is None
    )
    assert value(page, "gputop_gpu_sm_high_ratio") == 0.9
    assert value(page, "gputop_sm_source", source="bound") == 1.0


def test_a_late_frame_drops_gauges_keeps_counters_and_says_so() -> None:
    clock = Clock()
    given = feed(clock=clock)
    for second in range(5):
        clock.now = float(second)
        given.take(snapshot_of(100.0 + second))
    fresh = read(given.page())
    assert value(fresh, "gputop_up") == 1.0
    assert value(fresh, "gputop_gpu_state_seconds_total", state="unmeasured") == 4.0
    # The driver hangs: snapshots go on, and repeat what was read before.
    for second in range(5, 8):
        clock.now = float(second)
        given.take(snapshot_of(100.0 + second, repeats=("nvml",)))
    late = read(given.page())
    assert value(late, "gputop_up") == 0.0
    assert not [
        name for name in late if name.endswith(("_ratio", "_watts", "_info")) and "_gpu_" in name
    ]
    assert value(late, "gputop_gpu_state_seconds_total", state="unmeasured") == 4.0
    assert value(late, "gputop_last_sample_timestamp_seconds") == 104.0
    # Nothing comes at all.
    clock.now = 60.0
    assert value(read(given.page()), "gputop_up") == 0.0


def test_whose_job_a_gpu_has_is_left_out_while_the_processes_are_not_read() -> None:
    clock = Clock()
    given = feed(clock=clock)
    holder = ProcessSample(
        4711, gpu=0, role="gpu", static=ProcessStatic("ml", batch_job=slurm(8821))
    )
    pages = []
    for second in range(8):
        clock.now = float(second)
        repeats = {"repeats": ("proc",)} if second > 3 else {}
        given.take(snapshot_of(100.0 + second, processes=(holder,), **repeats))
        pages.append(read(given.page()))
    assert value(pages[3], "gputop_job_info", job_id="8821") == 1.0
    assert (
        "gputop_job_info" not in pages[-1]
        and value(pages[-1], "gputop_gpu_utilization_ratio") == 0.9
    )


def test_what_nobody_has_foreseen_is_exported_as_down_said_once_and_gone_with_the_next_good_frame(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    given = feed(clock=clock)
    given.take(snapshot_of(100.0))
    for broken in ("gputop.monitor.Monitor.feed", "gputop.features.export.metrics_page._gpus"):
        with monkeypatch.context() as patched:
            patched.setattr(broken, lambda *_: 1 / 0)
            for _ in range(3):
                given.take(snapshot_of(101.0))
                assert value(read(given.page()), "gputop_up") == 0.0
        given.take(snapshot_of(102.0))
        assert value(read(given.page()), "gputop_up") == 1.0
    told = capfd.readouterr().err.splitlines()
    assert [line.partition(" (")[0] for line in told] == [
        "gputop: internal error: ZeroDivisionError: division by zero"
    ]


def test_a_node_without_gpus_is_exported_as_down() -> None:
    given = feed()
    assert value(read(given.page()), "gputop_up") == 0.0
    given.take(Snapshot(1.0, Machine("n1")))
    assert value(read(given.page()), "gputop_up") == 0.0


def test_counters_only_rise_also_when_the_clock_is_set_back() -> None:
    given = feed()
    seen = []
    for t in (100.0, 101.0, 102.0, 50.0, 51.0, 52.0):
        given.take(snapshot_of(t, gpu_of(util_pct=90.0, throttle_reasons=HARDWARE_THERMAL | IDLE)))
        page = read(given.page())
        seen.append(
            (
                sum(page["gputop_gpu_state_seconds_total"].values()),
                value(page, "gputop_gpu_throttle_seconds_total", reason="hardware_thermal"),
            )
        )
    assert seen[0] == (0.0, 0.0) and seen[2] == (2.0, 2.0) and seen[-1] == (4.0, 4.0)
    assert seen == sorted(seen)
    assert value(page, "gputop_gpu_throttle_seconds_total", reason="power_cap") == 0.0


def test_time_that_is_busy_and_not_working_is_counted_by_its_cause() -> None:
    given = feed()
    for second in range(60):
        given.take(snapshot_of(100.0 + second))
    page = read(given.page())
    lost = value(page, "gputop_gpu_state_seconds_total", state="busy_not_working")
    assert lost is not None and lost > 30.0
    assert value(page, "gputop_gpu_busy_not_working_seconds_total", cause="low_sm") == lost
    share = (value(page, "gputop_gpu_lost_seconds_total", cause="low_sm") or 0.0) / lost
    assert 0.5 < share < 1.0, (
        "of a second in which a GPU does not work, the part of the chip that is used is not lost"
    )
    assert value(page, "gputop_gpu_state", state="busy_not_working") == 1.0


@pytest.mark.slow
def test_a_straggler_is_one_gpu_on_the_page_as_in_the_diagnosis(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["export", "demo", "straggler", "--once"]) == 0
    badges = [
        line
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("gputop_gpu_badge{")
    ]
    assert [re.findall(r'gpu="(\d)".*badge="(\w+)"', line) for line in badges] == [
        [("2", "straggler")]
    ]
    assert main(["diagnose", "demo", "straggler", "--json"]) == 1
    gpus = json.loads(capsys.readouterr().out)["gpus"]
    levels = [[(badge["id"], badge["level"]) for badge in gpu["badges"]] for gpu in gpus]
    assert levels == [[("straggler", "yellow" if gpu["index"] == 2 else "info")] for gpu in gpus]


def test_xid_errors_are_counted_by_number() -> None:
    given = feed()
    given.take(snapshot_of(1.0))
    given.take(
        snapshot_of(
            2.0,
            events=(Event(2.0, "xid", "Xid 79", 0, xid=79), Event(2.0, "xid", "Xid 79", 0, xid=79)),
        )
    )
    given.take(snapshot_of(3.0, repeats=("nvml",)))
    assert value(read(given.page()), "gputop_gpu_xid_errors_total", xid="79") == 2.0


def test_an_instance_goes_by_its_own_label() -> None:
    page = read(demo_feed("mig").page())
    assert len({dict(labels).get("mig") for labels in page["gputop_gpu_memory_total_bytes"]}) == 3
    assert sorted(page["gputop_gpu_share"].values()) == pytest.approx([0.0, 3 / 7, 3 / 7], abs=1e-5)


def test_an_address_is_read_as_people_write_it() -> None:
    assert parse("127.0.0.1:9401") == ListenAddress("127.0.0.1", 9401)
    assert parse("[::1]:0") == ListenAddress("::1", 0) and parse("[::1]:0").is_loopback
    assert parse(":9401") == ListenAddress("", 9401) and not parse(":9401").is_loopback
    for wrong in ("9401", "a:b", "host:99999", "http://x:1", "::1:9401", ""):
        try:
            parse(wrong)
        except UsageError as error:
            assert "--listen" in str(error)
        else:
            raise AssertionError(wrong)
    assert (
        names_loopback("localhost:9401")
        and names_loopback("[::1]")
        and names_loopback("127.0.0.2:1")
    )
    assert (
        not names_loopback("evil.example")
        and not names_loopback("")
        and not names_loopback("localhost.evil:1")
    )


LEGACY = PageChoice(False, (partial(dcgm_families, "legacy"),))
NEWER = PageChoice(False, (partial(dcgm_families, "4.9"),))


def test_dcgms_names_carry_dcgms_units_in_each_generation() -> None:
    sample = gpu_of(
        util_pct=90.0, sm_active_pct=20.0, energy_j=2.0, mem_used_bytes=3.0 * 2**20, mem_total_bytes=5.0 * 2**20,
        sm_clock_mhz=1500.0, power_w=300.0, temp_c=60.0, sm_source="gpm",
    )  # fmt: skip
    pages = []
    for choice in (LEGACY, NEWER):
        given = feed(choice)
        given.take(snapshot_of(1.0, sample))
        pages.append(read(given.page()))
    for name, number in {
        "DCGM_FI_DEV_GPU_UTIL": 90.0, "DCGM_FI_PROF_SM_ACTIVE": 0.2, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 2000.0,
        "DCGM_FI_DEV_FB_USED": 3.0, "DCGM_FI_DEV_FB_FREE": 2.0, "DCGM_FI_DEV_SM_CLOCK": 1500.0,
        "DCGM_FI_DEV_POWER_USAGE": 300.0, "DCGM_FI_DEV_GPU_TEMP": 60.0,
    }.items():  # fmt: skip
        assert value(pages[0], name, gpu="0", UUID="GPU-0", Hostname="n1") == number
    for name, number in {
        "DCGM_FI_DEV_GPU_UTIL_RATIO": 0.9, "DCGM_FI_PROF_SM_UTIL_RATIO": 0.2,
        "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL": 2.0, "DCGM_FI_DEV_FB_USED_BYTES": 3.0 * 2**20,
        "DCGM_FI_DEV_SM_CLOCK_HERTZ": 1.5e9,
    }.items():  # fmt: skip
        assert value(pages[1], name, gpu="0", hostname="n1") == number
        assert name not in pages[0]
    assert "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE" not in pages[0], "not measured: absent, never 0"


DASHBOARD_12239 = (
    'avg(DCGM_FI_DEV_GPU_TEMP{instance=~"${instance}", gpu=~"${gpu}"})',
    'sum(DCGM_FI_DEV_POWER_USAGE{instance=~"${instance}", gpu=~"${gpu}"})',
    'DCGM_FI_DEV_SM_CLOCK{instance=~"${instance}", gpu=~"${gpu}"} * 1000000',
    'DCGM_FI_DEV_GPU_UTIL{instance=~"${instance}", gpu=~"${gpu}"}',
    'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~"${instance}", gpu=~"${gpu}"}',
    'DCGM_FI_DEV_FB_USED{instance=~"${instance}", gpu=~"${gpu}"}',
    "label_values(DCGM_FI_DEV_GPU_TEMP, gpu)",
)
"""Queries of NVIDIA's dashboard (https://grafana.com/grafana/dashboards/12239); ``instance`` is the scrape's label."""
WRITTEN_ABOUT = (
    "DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE) * 100",
    "avg by (Hostname) (DCGM_FI_PROF_SM_ACTIVE) < 0.3 and avg by (Hostname) (DCGM_FI_DEV_GPU_UTIL) > 80",
    "rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[5m]) / 1000",
    "avg by (UUID, modelName) (DCGM_FI_PROF_GR_ENGINE_ACTIVE)",
    "DCGM_FI_DEV_MEM_COPY_UTIL + DCGM_FI_DEV_MEM_CLOCK + DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_PROF_SM_OCCUPANCY * on (gpu, device) DCGM_FI_PROF_DRAM_ACTIVE",
)
"""Queries with the further names that articles and runbooks on dcgm-exporter use."""


def test_dashboards_made_for_dcgm_exporter_find_their_series_and_labels() -> None:
    text = demo_feed(None, LEGACY).page()
    assert "_CONSUMPTION counter" not in text, "promtool: a counter's name ends in _total"
    page = read(text)
    names = set()
    for query in (*DASHBOARD_12239, *WRITTEN_ABOUT):
        names |= set(re.findall(r"DCGM_\w+", query))
    assert len(names) == 15
    for name in names:
        assert len(page.get(name, {})) == 8, f"{name}: one series for each GPU of the demo"
        for labels in page[name]:
            assert {"gpu", "UUID", "Hostname", "modelName", "device"} <= set(dict(labels))


def test_under_dcgms_names_an_instance_goes_by_its_parent() -> None:
    page = read(demo_feed("mig", LEGACY).page())
    theirs = {dict(labels).get("GPU_I_ID") for labels in page["DCGM_FI_DEV_FB_USED"]}
    assert len(theirs) == 3
    assert {dict(labels)["gpu"] for labels in page["DCGM_FI_DEV_FB_USED"]} == {"0"}


def test_an_export_without_the_option_has_none_of_dcgms_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["export", "demo", "ecc", "--once"]
    assert main(words) == 0
    assert "DCGM_" not in capsys.readouterr().out
    assert main([*words, "--dcgm-names", "4.9"]) == 0
    out = capsys.readouterr().out
    assert "DCGM_FI_DEV_GPU_UTIL_RATIO{" in out and "gputop_gpu_utilization_ratio{" in out


HEALTH = {
    "remapped_rows_corrected": ("gputop_gpu_remapped_rows_corrected_total", 5),
    "remapped_rows_uncorrected": ("gputop_gpu_remapped_rows_uncorrected_total", 2),
    "retired_pending": ("gputop_gpu_retired_pending", True),
    "ecc_corrected_per_s": ("gputop_gpu_ecc_corrected_per_second", 17700.0),
    "recovery_action": ("gputop_gpu_recovery_action", 4),
    "nvlink_count": ("gputop_gpu_nvlinks", 18),
    "nvlink_active": ("gputop_gpu_nvlink_active", 16),
    "module_power_w": ("gputop_gpu_module_power_watts", 912.5),
}
ROOM = {
    "load5": ("gputop_host_load5", 3.5),
    "load15": ("gputop_host_load15", 2.5),
    "swap_total_bytes": ("gputop_host_swap_total_bytes", 2.0**31),
    "uptime_s": ("gputop_host_uptime_seconds", 86400.5),
}


def ill_page() -> str:
    """A page of a GPU that has all health values, and of a host with its facts."""
    gpu = gpu_of(util_pct=90.0, **{key: given for key, (_, given) in HEALTH.items()})
    texts = replace(gpu, nvlink_down='3, "17"\n', xid_class="device", xid_action="reset")
    host = HostSample(**{key: given for key, (_, given) in ROOM.items()})
    made = feed()
    made.take(snapshot_of(1.0, texts, host=host))
    return made.page()


def test_a_devices_health_and_a_hosts_facts_are_read_back_in_their_units() -> None:
    page = read(ill_page())
    for name, given in HEALTH.values():
        assert value(page, name, gpu="0") == given, name
    for name, given in ROOM.values():
        assert value(page, name) == given, name


def test_health_that_was_not_measured_has_no_series() -> None:
    made = feed()
    made.take(snapshot_of(1.0, gpu_of(util_pct=90.0)))
    page = read(made.page())
    assert not {name for name, _ in (*HEALTH.values(), *ROOM.values())} & page.keys()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
@pytest.mark.parametrize("scenario", [None, "mig", "shared_gpu"])
def test_promtool_has_nothing_to_remark_on_a_page(scenario: str | None) -> None:
    pods = {f"GPU-{n}": [PodContainer("team", "train", "main")] for n in range(2)}
    given = demo_feed(scenario, PageChoice(True, (partial(pod_family, lambda: pods),)))
    many = feed(PageChoice(True, (partial(pod_family, lambda: pods),)))
    values = dict.fromkeys(GPU_METRICS, 50)
    event = Event(1.0, "xid", "Xid 79", 0, xid=79)
    steps = (StepRow(9, 3, None, "train", 4, 2.0, 0.5, 0.5, 0.5, 0.5),)
    many.take(snapshot_of(1.0, gpu_of(sm_source="gpm", **values), events=(event,), steps=steps))
    # dcgm-exporter's own label for the model is the one remark that its names leave.
    dcgm = [
        demo_feed(scenario, choice).page().replace("modelName=", "model_name=")
        for choice in (LEGACY, NEWER)
    ]
    for page in (given.page(), many.page(), ill_page(), *dcgm):
        done = subprocess.run(
            ["promtool", "check", "metrics"],
            input=page,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_host_is_the_machine_and_not_what_the_exporters_own_limits_leave(
    tmp_path: Path,
) -> None:
    (tmp_path / "meminfo").write_text(
        "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    400 kB\n"
    )
    (tmp_path / "stat").write_text("cpu  1 2\ncpu0 1\ncpu1 1\ncpu2 1\nintr 5\n")
    for process, interfaces in (("self", ("lo", "eth0")), ("1", ("lo", "ens3", "ib0"))):
        (tmp_path / process / "net").mkdir(parents=True)
        lines = "".join(f"  {name}: 1 2 3\n" for name in interfaces)
        (tmp_path / process / "net" / "dev").write_text(f"Inter-|   Receive\n face |bytes\n{lines}")
    own = HostSample(
        cpu_count=0.2, mem_total_bytes=128.0 * 2**20, mem_used_bytes=1.0, net_rx_bytes_per_s=5.0
    )
    given = replace(snapshot_of(1.0), host=own)
    host = MachineHost(str(tmp_path))(given).host
    assert (host.cpu_count, host.mem_total_bytes, host.mem_used_bytes) == (
        3.0,
        1000 * 1024.0,
        600 * 1024.0,
    )
    assert (
        host.net_rx_bytes_per_s is None
        and "network of its own" in host.unavailable["net_rx_bytes_per_s"]
    )
    shutil.copy(tmp_path / "self" / "net" / "dev", tmp_path / "1" / "net" / "dev")
    assert MachineHost(str(tmp_path))(given).host.net_rx_bytes_per_s == 5.0
    assert MachineHost(str(tmp_path / "nothing"))(given).host == own, (
        "what cannot be seen changes nothing"
    )
