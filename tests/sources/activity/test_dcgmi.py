"""SM activity from dcgmi, whose texts and troubles a stand-in program prints."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gputop.model.sm import SmOptions
from gputop.model.snapshot import GpuStatic
from gputop.sources.activity.choose_sources import SmReaders
from gputop.sources.activity.dcgmi import Dmon, parse_discovery, parse_row
from gputop.sources.activity.fallback_chain import MeasuredActivity, SmReadFailed
from tests.dcgm.exporter import TEXTS
from tests.dcgm.host import Host, is_gone, until
from tests.nvml.stand_in import Scenario, uuid_of
from tests.support.local_reader import read

A100 = "NVIDIA A100-SXM4-80GB"
MakeScenario = Callable[..., Scenario]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path / "dcgmi.log", monkeypatch)


@pytest.fixture
def dmon() -> Iterator[Dmon]:
    reader = Dmon(0.25, str(TEXTS / "dcgmi"), restart_s=0.02)
    yield reader
    reader.stop()


def test_gpus_are_found_by_uuid_because_dcgm_counts_them_otherwise() -> None:
    assert parse_discovery((TEXTS / "discovery.txt").read_text()) == {0: uuid_of(1), 1: uuid_of(0)}


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (
            "GPU 7     0.888        0.777        0.050        0.333   ",
            (7, (0.888, 0.777, 0.05, 0.333)),
        ),
        ("GPU 0     1.000        N/A          N/A          0.000", (0, (1.0, None, None, 0.0))),
        ("GPU 0     nan          inf          N/A          0.5", (0, (None, None, None, 0.5))),
        ("#Entity   SMACT        SMOCC        TENSO        DRAMA", None),
        ("ID", None),
        ("# Entity  SMACT  SMOCC  TENSO  DRAMA", None),
        ("      Id", None),
        ("   GPU 1  0.375  0.120  0.050  0.250", (1, (0.375, 0.12, 0.05, 0.25))),
        ("GPU 0     140737488355328.000 0.1 0.1 0.1", (0, (140737488355328.0, 0.1, 0.1, 0.1))),
        ("GPU-I 0   0.1 0.1 0.1 0.1", None),
        (" GPU-I 0  0.1 0.1 0.1 0.1", None),
        ("GPU-CI 0  0.1 0.1 0.1 0.1", None),
        ("vGPU 0    0.1 0.1 0.1 0.1", None),
        ("Switch 0  0.1 0.1 0.1 0.1", None),
        ("Error setting watches. Result: 0.1 0.1", None),
        ("GPU x     0.1 0.1 0.1 0.1", None),
        ("GPU ²     0.1 0.1 0.1 0.1", None),
        ("GPU 0     0.1 0.1", None),
        ("", None),
    ],
)
def test_rows_are_told_from_headers_and_instances(
    line: str, row: tuple[int, tuple[float | None, ...]] | None
) -> None:
    got = parse_row(line)
    keys = ("sm_active_pct", "sm_occupancy_pct", "tensor_active_pct", "dram_active_pct")
    assert (got and (got[0], tuple(got[1].get(key) for key in keys))) == row


def test_one_process_serves_all_gpus_and_ends_with_us(host: Host, dmon: Dmon) -> None:
    got = until(dmon, lambda got: isinstance(got, MeasuredActivity))
    assert got.values == {
        "sm_active_pct": 37.5,
        "sm_occupancy_pct": 12.0,
        "tensor_active_pct": 5.0,
        "dram_active_pct": 25.0,
    }
    assert got.window_s == 0.25
    until(dmon, lambda _: isinstance(dmon.newest(uuid_of(1), time.monotonic()), MeasuredActivity))
    other = dmon.newest(uuid_of(1), time.monotonic())
    assert isinstance(other, MeasuredActivity)
    assert other.values["sm_active_pct"] == pytest.approx(88.8)
    assert other.missing == {"tensor_active_pct": "dcgmi gives N/A"}
    # One that is late on a crowded machine is started again.
    assert set(host.asked()) == {"discovery -l", "dmon -e 1002,1003,1004,1005 -d 250"}
    dmon.stop()
    assert all(is_gone(pid) for pid in host.started("dmon"))


def test_a_dmon_that_ends_is_started_again_and_dcgm_is_asked_anew_for_its_numbers(
    host: Host, dmon: Dmon
) -> None:
    host.does("ends")

    def has_ended_often(got: object) -> bool:
        return (
            isinstance(got, SmReadFailed)
            and "dmon ended" in got.reason
            and len(host.started("dmon")) > 2
        )

    assert not until(dmon, has_ended_often).forever
    assert len(host.started("discovery")) > 2


@pytest.mark.parametrize(
    ("does", "said", "fix"),
    [
        ("alone", "Host engine connection invalid/disconnected", "nvidia-dcgm"),
        ("refuses: Unable to watch one or more of the requested fields because doing so requires the host engine to be "
         "running as root.", "running as root", "as root"),
        ("refuses: The third-party Profiling module returned an unrecoverable error", "third-party", "end what else"),
        ("refuses: -35: The requested operation could not be completed because the affected resource is in use",
         "resource is in use", "end what else"),
        ("refuses: -33: This request is serviced by a module of DCGM that is not currently loaded", "-33", "Volta"),
        ("refuses: Profiling is not supported for this group of GPUs or GPU", "not supported", "Volta"),
        ("refuses: [2Jgone", "Result: ?[2J?gone", "nvidia-dcgm"),
    ],
)  # fmt: skip
def test_what_dcgmi_says_is_told_with_what_would_help(
    host: Host, dmon: Dmon, does: str, said: str, fix: str
) -> None:
    host.does(does)
    failure = until(dmon, lambda got: isinstance(got, SmReadFailed))
    assert said in failure.reason
    assert fix in failure.fix
    assert failure.reason.isprintable()


def test_profiling_that_is_paused_gives_no_value_and_is_said_to(host: Host, dmon: Dmon) -> None:
    host.does("paused")
    until(dmon, lambda _: bool(host.started("dmon")))
    with pytest.raises(SmReadFailed, match="has given no value for") as failure:
        dmon.newest(uuid_of(0), time.monotonic() + 60.0)
    assert "dcgmi profile --resume" in failure.value.fix


def test_a_hung_dmon_is_not_waited_for_and_killed_with_its_children(host: Host, dmon: Dmon) -> None:
    host.does("hangs")
    until(dmon, lambda _: bool(host.started("dmon")))
    with pytest.raises(SmReadFailed, match="has given no value for"):
        dmon.activity(uuid_of(0), time.monotonic() + 60.0)
    begun = time.monotonic()
    dmon.stop()
    assert time.monotonic() - begun < 10.0
    assert all(is_gone(pid) for pid in host.started("dmon"))


def test_values_that_are_no_longer_renewed_are_not_believed(host: Host, dmon: Dmon) -> None:
    got = until(dmon, lambda got: isinstance(got, MeasuredActivity))
    with pytest.raises(SmReadFailed, match="has said nothing for 60 s"):
        dmon.newest(uuid_of(0), got.t + 60.4)


def test_without_the_program_it_is_given_up_at_once() -> None:
    reader = Dmon(1.0, "no-such-dcgmi")
    failure = until(reader, lambda got: isinstance(got, SmReadFailed))
    assert (failure.reason, failure.forever) == ("dcgmi: dcgmi is not installed", True)
    reader.stop()


@pytest.mark.nvml
def test_dcgmi_is_only_run_when_asked_for_and_left_behind_by_nobody(
    host: Host, nvml_scenario: MakeScenario
) -> None:
    gpu = GpuStatic(0, uuid_of(0), A100)
    unasked, asked = (SmReaders(1.0, "/proc", SmOptions(dcgmi=dcgmi)) for dcgmi in (False, True))
    assert [reader.name for reader in unasked.readers_for(lambda: gpu)] == ["dcgm-exporter"]
    assert [reader.name for reader in asked.readers_for(lambda: gpu)] == ["dcgm-exporter", "dcgmi"]
    path = f"{TEXTS}:{os.environ['PATH']}"
    options = {"dcgm_url": "http://127.0.0.1:1/metrics", "dcgmi": True}
    gpus = read(nvml_scenario(2, A100), "once", environ={"PATH": path}, **options)[0]["gpus"]
    assert [(gpu["sm_source"], gpu["sm_active_pct"]) for gpu in gpus] == [
        ("dcgmi", 37.5),
        ("dcgmi", 88.8),
    ]
    assert gpus[0]["sm_window_s"] == 1.0
    assert all(is_gone(pid) for pid in host.started("dmon"))
