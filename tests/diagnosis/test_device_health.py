"""A broken device is called broken: first in the title, with NVIDIA's action, and never healthy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.types import Badge, GpuDiagnosis
from gputop.diagnosis.verdict.summary import summarize
from gputop.diagnosis.window.fabric_window import FabricWindow
from gputop.model.snapshot import Event, FabricPort, GpuSample, HostSample
from gputop.model.xid_catalogue import XIDS
from gputop.monitor import Monitor
from tests.support.scenes import GIB, T0, Watch, gpu, snap, train

HEALTHY: dict[str, Any] = {"util": 98.0, "sm": 88.0, "tensor_active_pct": 40.0}


def after(seconds: int, sample: Callable[[int], GpuSample], name: str = "H100 SXM") -> GpuDiagnosis:
    """The diagnosis of a busy GPU after so many seconds of these samples."""
    watch = Watch()
    for tick in range(seconds):
        one = sample(tick)
        said = watch.feed(
            [snap(tick, replace(one, static=replace(one.static, name=name)), [train()])]
        )
    return said


def steady(**changes: Any) -> Callable[[int], GpuSample]:
    return lambda tick: replace(gpu(**HEALTHY), **changes)


def badge(said: GpuDiagnosis, name: str) -> Badge | None:
    return next((one for one in said.badges if one.id == name), None)


def test_a_healthy_gpu_has_none_of_the_badges_and_is_called_healthy() -> None:
    fine = steady(
        recovery_action=0, ecc_corrected=5, remapped_rows_corrected=0, remapped_rows_uncorrected=0,
        nvlink_count=18, nvlink_active=18, nvlink_down="none",
    )  # fmt: skip
    said = after(80, fine)
    assert said.badges == ()
    assert said.evidence[0].startswith("healthy: ")


@pytest.mark.parametrize(
    ("changes", "name", "words", "remedy"),
    [
        ({"recovery_action": 1}, "recovery", "reset the GPU", "--gpu-reset"),
        ({"recovery_action": 2}, "recovery", "reboot the node", "reboot"),
        ({"recovery_action": 99}, "recovery", "99", "nvidia-smi"),
        ({"retired_pending": True}, "ecc", "retirement", "drain"),
        (
            {"nvlink_count": 18, "nvlink_active": 16, "nvlink_down": "3, 7"},
            "nvlink_down",
            "2 of 18 NVLinks down: 3, 7",
            "nvidia-smi nvlink",
        ),
        ({"remapped_rows_corrected": 3, "remapped_rows_uncorrected": 5}, "remapped_rows", "8 rows", "spare"),
    ],
)  # fmt: skip
def test_trouble_of_the_device_comes_first_and_nothing_is_called_healthy(
    changes: dict[str, Any], name: str, words: str, remedy: str
) -> None:
    said = after(45, steady(**changes))
    told = badge(said, name)
    assert told is not None
    assert words in told.evidence
    assert remedy in told.remedy
    summary = summarize(said)
    assert summary.title == told.title
    assert summary.remedy == told.remedy
    assert summary.role != "work"
    assert not any("healthy" in line for line in (*said.evidence, summary.words))


def test_recovery_comes_before_a_hardware_error() -> None:
    said = after(45, steady(recovery_action=2, remap_failed=True))
    assert [one.id for one in said.badges][:2] == ["recovery", "ecc"]
    assert summarize(said).title == "recovery needed"


def test_few_remapped_rows_only_inform() -> None:
    said = after(45, steady(remapped_rows_corrected=2, remapped_rows_uncorrected=0))
    told = badge(said, "remapped_rows")
    assert told is not None and told.level == "info"
    assert summarize(said).title == "working"
    assert not said.evidence[0].startswith("healthy")


def test_a_row_that_is_remapped_while_watched_warns() -> None:
    def sample(tick: int) -> GpuSample:
        rows = 1 if tick < 20 else 2
        return replace(gpu(**HEALTHY), remapped_rows_corrected=rows, remapped_rows_uncorrected=0)

    told = badge(after(45, sample), "remapped_rows")
    assert told is not None and told.level == "yellow"
    assert "1 of them while watched" in told.evidence


def counted(rate: float, step_s: int = 1) -> Callable[[int], GpuSample]:
    """Corrected errors at a rate, by a counter that is read every few seconds."""
    return lambda tick: replace(gpu(**HEALTHY), ecc_corrected=int(rate * (tick // step_s * step_s)))


@pytest.mark.parametrize(
    ("sample", "seconds", "is_told"),
    [
        (counted(17_700.0), 75, True),
        (counted(17_700.0, step_s=5), 75, True),
        (counted(110.0), 75, True),
        (counted(90.0), 75, False),
        (counted(17_700.0), 58, False),
        # A burst of one second, however large.
        (lambda tick: replace(gpu(**HEALTHY), ecc_corrected=9_000_000 if tick > 40 else 0), 80, False),
        # The counter was reset: nothing is known of the minute before.
        (lambda tick: replace(gpu(**HEALTHY), ecc_corrected=500 * (tick % 40)), 80, False),
    ],
)  # fmt: skip
def test_corrected_errors_are_told_from_a_minute_of_a_high_rate(
    sample: Callable[[int], GpuSample], seconds: int, is_told: bool
) -> None:
    assert (badge(after(seconds, sample), "corrected_ecc") is not None) == is_told


@pytest.mark.parametrize(
    ("name", "up", "level"),
    [("H100 SXM", 17, "red"), ("H100 SXM", 0, "info"), ("A100 PCIe", 4, "info"), ("RTX 3090", 0, "info")],
)  # fmt: skip
def test_links_that_may_never_have_been_connected_only_inform(
    name: str, up: int, level: str
) -> None:
    sample = steady(nvlink_count=18, nvlink_active=up, nvlink_down="1")
    told = badge(after(45, sample, name), "nvlink_down")
    assert told is not None and told.level == level


def test_links_that_were_up_before_are_a_fault_on_any_card() -> None:
    def sample(tick: int) -> GpuSample:
        up = 4 if tick < 20 else 0
        return replace(gpu(**HEALTHY), nvlink_count=4, nvlink_active=up, nvlink_down="none")

    told = badge(after(45, sample, "A100 PCIe"), "nvlink_down")
    assert told is not None and told.level == "red"


def test_all_links_down_is_a_fault_beside_an_equal_gpu_whose_links_are_up() -> None:
    monitor = Monitor()
    for tick in range(45):
        dead = replace(gpu(**HEALTHY), nvlink_count=18, nvlink_active=0, nvlink_down="0, 1")
        fine = replace(gpu(index=1, **HEALTHY), nvlink_count=18, nvlink_active=18)
        frame = monitor.feed(replace(snap(tick, dead, [train()]), gpus=(dead, fine)))
    told = badge(frame.diagnoses[0], "nvlink_down")
    assert told is not None and told.level == "red"


def xid_at(code: int, tick: int) -> tuple[Event, ...]:
    return (Event(T0 + tick, "xid", f"Xid {code}", 0, xid=code),)


def told_of_xid(code: int) -> GpuDiagnosis:
    watch = Watch()
    for tick in range(30):
        events = xid_at(code, tick) if tick == 20 else ()
        said = watch.feed([replace(snap(tick, gpu(**HEALTHY), [train()]), events=events)])
    return said


@pytest.mark.parametrize("code", [62, 119, 120, 140, 145, 149, 154])
def test_an_xid_of_the_device_is_a_hardware_error_with_nvidias_action(code: int) -> None:
    told = badge(told_of_xid(code), "ecc")
    assert told is not None
    assert told.remedy.startswith(XIDS[code].action)
    assert f"Xid {code}: {XIDS[code].what}" in told.remedy


@pytest.mark.parametrize(
    ("code", "remedy"),
    [(13, "usually the program"), (31, "usually the program"), (92, "nothing at once"), (999, "catalogue")],
)  # fmt: skip
def test_other_xids_are_the_programs_or_say_what_is_known(code: int, remedy: str) -> None:
    said = told_of_xid(code)
    told = badge(said, "xid")
    assert told is not None and remedy in told.remedy
    assert badge(said, "ecc") is None
    assert not said.evidence[0].startswith("healthy")


def test_memory_that_nobody_holds_after_an_xid_is_told_though_util_is_unreadable() -> None:
    watch = Watch()
    for tick in range(60):
        dead = replace(
            gpu(util=98.0),
            util_pct=98.0 if tick < 20 else None,
            mem_used_bytes=14 * GIB,
            unavailable={} if tick < 20 else {"util_pct": "unknown error"},
        )
        processes = [train()] if tick < 20 else []
        events = xid_at(62, tick) if tick == 20 else ()
        said = watch.feed([replace(snap(tick, dead, processes), events=events)])
        if tick == 30:
            assert badge(said, "unowned_memory") is None, "a process may take seconds to go"
    told = badge(said, "unowned_memory")
    assert told is not None and "14 GiB" in told.evidence
    assert badge(said, "ecc") is not None


def test_memory_without_a_visible_owner_is_nothing_without_an_xid() -> None:
    watch = Watch()
    for tick in range(60):
        said = watch.feed([snap(tick, gpu(util=0.0, mem_used_bytes=14 * GIB), [])])
    assert badge(said, "unowned_memory") is None


def test_a_port_in_trouble_is_named() -> None:
    window = FabricWindow()
    host = HostSample(fabric_ports_down=1, fabric_drops=0)
    down = FabricPort("mlx5_1/1", "InfiniBand", "DOWN", up=False, trouble="link down")
    lossy = FabricPort("mlx5_0/1", "InfiniBand", "ACTIVE", up=True, drops=100)
    window.observe(0.0, host, (down, lossy))
    signals = window.observe(1.0, replace(host, fabric_drops=60), (down, replace(lossy, drops=160)))
    assert signals is not None
    assert signals.links == "1 link down: mlx5_1/1 link down"
    assert signals.losses == "60 drops in 1 s on mlx5_0/1"
    for t in range(2, 40):
        signals = window.observe(float(t), replace(host, fabric_drops=60), (down,))
    assert signals is not None and signals.losses == ""


def test_a_warning_of_the_device_leaves_a_worse_verdict_its_level() -> None:
    spins = steady(sm_active_pct=5.0, tensor_active_pct=0.0, dram_active_pct=1.0)
    rows = {"remapped_rows_corrected": 9, "remapped_rows_uncorrected": 0}
    said = after(45, lambda tick: replace(spins(tick), **rows))
    assert said.busy_not_working is not None
    assert summarize(said).title == "memory rows remapped"
    assert summarize(said).role == "not_working"


def test_drops_of_the_fabric_stand_beside_the_verdict_and_a_dead_link_before_it() -> None:
    said = after(45, steady())
    drops = Badge("fabric_errors", "yellow", "fabric errors", "60 drops in 30 s")
    dead = replace(drops, level="red", title="fabric link")
    assert summarize(replace(said, badges=(drops,))).title == "working"
    assert summarize(replace(said, badges=(dead,))).title == "fabric link"
