"""Every exporter that people have: its page and its series in Prometheus give the same GPUs, each told once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import combinations

import pytest

from gputop.features.fleet.exporter_names import DIALECTS, exporter_of, known_uuid
from gputop.features.fleet.fleet_reading import GpuReading
from gputop.features.fleet.judge.fleet_frame import fleet_frame
from gputop.features.fleet.read.address import address_of
from gputop.features.fleet.read.direct_fleet import DirectFleet
from gputop.features.fleet.read.engine import Client
from gputop.features.fleet.read.host_link import HostLink, SshOptions
from gputop.features.fleet.read.prometheus_fleet import PrometheusFleet
from gputop.features.fleet.read.redacted_fleet import RedactedFleet
from gputop.features.fleet.read.scraped_host import ScrapedHost
from gputop.features.fleet.show.fleet_screen import fleet_screen
from gputop.features.fleet.show.fleet_view import FleetView
from gputop.model.redaction import Redactor
from tests.features.fleet.conftest import text_of
from tests.nvml.stand_in import Process, Scenario
from tests.support.engines import backfill, free_port, missing, prometheus
from tests.support.exporter_pages import DIALECT_OF, PAGES, UUIDS

GIB = 2.0**30
END = 1_764_406_800.0
HAS_SM = ("gputop", "legacy", "4.9")


def told(gpu: GpuReading) -> tuple[object, ...]:
    """What every exporter tells of a GPU."""
    used_gib = None if gpu.mem_used_bytes is None else round(gpu.mem_used_bytes / GIB, 3)
    power_w = None if gpu.power_w is None else round(gpu.power_w)
    return gpu.uuid, gpu.util_pct and round(gpu.util_pct, 3), power_w, used_gib


WANTED = [(UUIDS[0], 90.0, 400, 40.0), (UUIDS[1], 0.0, 70, 0.0)]


def page_of(name: str, page: str | None = None, host: str = "box") -> ScrapedHost:
    scraped = ScrapedHost(host)
    assert scraped.take(PAGES[name] if page is None else page, 1000.0) is None
    return scraped


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_every_exporter_gives_the_same_gpus(name: str) -> None:
    host = page_of(name)
    assert [told(gpu) for gpu in host.gpus] == WANTED
    first, second = host.gpus
    assert {gpu.host for gpu in host.gpus} == {"box"} and first.names == DIALECT_OF[name]
    if DIALECT_OF[name] in HAS_SM:
        assert (first.sm_active_pct, second.sm_active_pct) == (25.0, 0.0)
    else:
        assert (first.sm_active_pct, second.sm_active_pct) == (None, None)
    if name not in ("gputop", "nvidia_gpu_exporter, old"):
        assert [gpu.gpu for gpu in host.gpus] == [
            "0",
            "1",
        ] and first.model == "NVIDIA H100 80GB HBM3"
    detected = exporter_of(PAGES[name])
    assert detected is not None and detected.id == DIALECT_OF[name]


def test_a_job_or_user_that_an_exporter_names_is_on_its_gpu() -> None:
    assert [gpu.job for gpu in page_of("dcgm-exporter, old names").gpus] == ["pod ml/big-0", ""]
    assert [(gpu.job, gpu.user) for gpu in page_of("nvitop-exporter").gpus] == [
        ("", "ann"),
        ("", ""),
    ]


@pytest.mark.parametrize("name", ["all-smi", "all-smi, new labels", "nvitop-exporter"])
def test_who_runs_a_process_is_on_its_gpu(name: str) -> None:
    assert [(gpu.job, gpu.user) for gpu in page_of(name).gpus] == [("", "ann"), ("", "")]


@pytest.mark.parametrize("name", ["nvidia_gpu_exporter", "nvidia_gpu_exporter, old"])
def test_a_program_is_named_where_no_user_is_and_hidden_with_the_others(name: str) -> None:
    fleet = _direct({"box": PAGES[name]})
    shown, hidden = fleet.ask(), RedactedFleet(fleet, Redactor()).ask()
    fleet.close()
    assert [gpu.process for gpu in shown.gpus] == ["gpu_burn", ""]
    assert {gpu.process for gpu in hidden.gpus} == {"process1", ""}
    frame = fleet_frame(shown)
    page = fleet_screen(frame, FleetView(panel="host", host="box"), 160, 40)
    assert "gpu_burn" in text_of(page.rows)
    # A program is no job: nobody can say that it starves or straggles.
    assert [gpu.state for gpu in frame.gpus] == ["unmeasured", "idle"]


@pytest.mark.parametrize("name", ["nvidia_gpu_exporter", "nvitop-exporter", "all-smi"])
def test_what_an_exporter_cannot_measure_is_absent_with_the_reason(name: str) -> None:
    frame = fleet_frame(_direct({"box": PAGES[name]}).ask())
    (host,) = frame.hosts
    assert (
        host.sm_active_pct is None and host.counts["unmeasured"] == 1 and host.counts["idle"] == 1
    )
    assert f"{DIALECTS[DIALECT_OF[name]].words} has no SM activity" in host.verdict.text
    assert any(f"{name} does not measure it; gputop export" in text for text in frame.problems)


def _direct(pages: dict[str, str]) -> DirectFleet:
    links = [HostLink(name, lambda link: link.put_page(pages[link.host])) for name in pages]
    fleet = DirectFleet((), SshOptions("/f"), links=links, clock=lambda: 1000.0)
    fleet.settle()
    return fleet


@pytest.mark.parametrize(("one", "other"), [*combinations(PAGES, 2)])
def test_two_exporters_of_one_host_tell_its_gpus_once(one: str, other: str) -> None:
    fleet = _direct({"box:1": PAGES[one], "box:2": PAGES[other]})
    read = fleet.ask()
    fleet.close()
    assert [told(gpu) for gpu in read.gpus] == WANTED and len(read.repeated) == 1
    rank = list(DIALECTS).index
    assert read.gpus[0].names == min((DIALECT_OF[one], DIALECT_OF[other]), key=rank)
    both = {DIALECT_OF[one], DIALECT_OF[other]}
    assert (read.gpus[0].sm_active_pct is not None) == bool(both.intersection(HAS_SM))
    page = page_of(one, PAGES[one] + PAGES[other])
    assert {gpu.uuid for gpu in page.gpus} == set(UUIDS) and len(page.gpus) == 2


def test_a_host_that_comes_back_with_another_exporter_keeps_its_gpus_and_its_hour() -> None:
    host = page_of("dcgm-exporter, old names")
    assert host.take(PAGES["nvitop-exporter"], 1005.0) is None
    assert [told(gpu)[0] for gpu in host.gpus] == list(UUIDS) and not any(
        gpu.is_lost for gpu in host.gpus
    )
    assert host.history(1010.0).keys() == {"0", "1"}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_that_is_cut_or_has_impossible_values_hurts_nobody(name: str) -> None:
    page = PAGES[name]
    for cut in range(0, len(page), 97):
        ScrapedHost("box").take(page[:cut], 1.0)
    wild = re.sub(r"\} \S+$", "} -1e300", page, flags=re.MULTILINE)
    for gpu in page_of(name, page.replace("} 90", "} 9e99").replace("} 0.9\n", "} NaN\n")).gpus:
        assert gpu.util_pct is None or 0.0 <= gpu.util_pct <= 100.0
    host = ScrapedHost("box")
    host.take(wild, 1.0)
    assert all(gpu.util_pct is None and gpu.power_w is None for gpu in host.gpus)


def test_a_uuid_is_known_however_it_is_written() -> None:
    bare = UUIDS[0].removeprefix("GPU-")
    assert known_uuid(bare) == known_uuid(bare.upper()) == known_uuid(UUIDS[0]) == UUIDS[0]
    assert known_uuid("MIG-1") == "MIG-1" and known_uuid("") == ""


# The same series in a real Prometheus.


def _scraped(name: str, instance: str, seconds: int = 600) -> Iterator[str]:
    """The samples of ten minutes of a page, as a Prometheus stores them that scrapes it every 15 s."""
    job = {"gputop": "gputop"}.get(name, "dcgm-exporter" if name.startswith("dcgm") else "gpu")
    for line in PAGES[name].splitlines():
        if not line or line.startswith("#"):
            continue
        series, _, value = line.rpartition(" ")
        # A label that the target has as well is renamed.
        for label in ("instance", "pod", "namespace", "container"):
            series = re.sub(rf'(?<=[{{, ]){label}="', f'exported_{label}="', series)
        metric, _, labels = series.rstrip("}").partition("{")
        inside = ",".join(
            filter(None, (labels.replace('", ', '",'), f'instance="{instance}",job="{job}"'))
        )
        for back in range(seconds, -1, -15):
            yield f"{metric}{{{inside}}} {value} {END - back:.0f}\n"
    for back in range(seconds, -1, -15):
        yield f'up{{instance="{instance}",job="{job}"}} 1 {END - back:.0f}\n'


@pytest.fixture(scope="module")
def engine_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus with a host for each page, and one host with all of them."""
    folder = tmp_path_factory.mktemp("dialects")
    by_series: dict[str, list[str]] = {}
    for number, name in enumerate(PAGES):
        for at, of in ((f"h{number}:9000", "alone"), (f"box:{9100 + number}", "together")):
            for line in _scraped(name, at):
                series = line.partition("{")[0]
                by_series.setdefault(series, []).append(line.replace("{", f'{{of="{of}",', 1))
    backfill(folder, (line for lines in by_series.values() for line in lines))
    with prometheus(folder) as url:
        yield url


def _asked(url: str, select: str) -> PrometheusFleet:
    fleet = PrometheusFleet(Client(address_of(url, {})), "x", select, lambda: END)
    fleet.settle()
    return fleet


@pytest.mark.slow
@pytest.mark.skipif(bool(missing("prometheus")), reason="no prometheus")
@pytest.mark.parametrize("name", PAGES)
def test_prometheus_gives_what_the_page_gives(engine_url: str, name: str) -> None:
    instance = f"h{list(PAGES).index(name)}:9000"
    fleet = _asked(engine_url, f'instance="{instance}"')
    read = fleet.ask(END)
    history = fleet.history(read.gpus[0].host, END)
    fleet.close()
    host = page_of(name)
    assert sorted(map(told, read.gpus), key=str) == sorted(map(told, host.gpus), key=str)
    assert {gpu.names for gpu in read.gpus} == {DIALECT_OF[name]} and not read.down
    wanted = "h5" if name.startswith("nvidia_gpu_exporter, old") else None
    names_host = not name.startswith("nvidia_gpu_exporter")
    assert {gpu.host for gpu in read.gpus} == ({"box-7"} if names_host else {wanted or "h4"})
    by_uuid = {gpu.uuid: gpu for gpu in read.gpus}
    for gpu in host.gpus:
        same = by_uuid[gpu.uuid]
        assert (same.gpu, same.job, same.user) == (gpu.gpu, gpu.job, gpu.user)
        assert same.process == gpu.process
        assert same.sm_active_pct == pytest.approx(gpu.sm_active_pct)
    utils = {round(line[0][-1] or 0.0) for line in history.values()}
    assert utils == {90, 0}


@pytest.mark.slow
@pytest.mark.skipif(bool(missing("prometheus")), reason="no prometheus")
def test_all_exporters_of_one_host_in_prometheus_tell_its_gpus_once(engine_url: str) -> None:
    fleet = _asked(engine_url, 'of="together"')
    read = fleet.ask(END)
    fleet.close()
    assert sorted(map(told, read.gpus), key=str) == sorted(WANTED, key=str)
    assert {gpu.names for gpu in read.gpus} == {"gputop"}
    assert {gpu.job for gpu in read.gpus} == {"pod ml/big-0", ""}


@pytest.mark.slow
@pytest.mark.skipif(find_spec("nvitop_exporter") is None, reason="without nvitop-exporter")
def test_the_page_of_a_running_nvitop_exporter_is_read(
    nvml_scenario: Callable[..., Scenario],
) -> None:
    driver = nvml_scenario(gpus=2)
    driver.gpus[0].processes.append(Process(os.getpid(), 3 << 30))
    driver.write()
    port = free_port()
    program = subprocess.Popen(
        [sys.executable, "-m", "nvitop_exporter", "--port", str(port), "--hostname", "box-7"],
        env=driver.environment(), stderr=subprocess.DEVNULL,
    )  # fmt: skip
    page, deadline = "", time.monotonic() + 60.0
    try:
        # One GPU's values may be there before the other's.
        while "process_gpu_memory_MiB{" not in page or driver.gpus[1].uuid not in page:
            assert time.monotonic() < deadline and program.poll() is None, page
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{port}/metrics", timeout=5
                ) as answer:
                    page = answer.read().decode()
            except OSError:
                time.sleep(0.2)
    finally:
        program.terminate()
        program.wait()
    host = page_of("nvitop-exporter", page)
    assert [gpu.uuid for gpu in host.gpus] == [gpu.uuid for gpu in driver.gpus]
    assert host.gpus[0].util_pct == 90.0 and host.gpus[0].sm_active_pct is None
    assert host.gpus[0].power_w == 400.0 and host.gpus[0].user
