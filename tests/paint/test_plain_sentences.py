"""Sentences of the screen and of reports that say one thing, and do not contradict themselves."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from gputop.diagnosis.host.idle_attribution import IdleAttribution
from gputop.diagnosis.rules.shown_idle import main_is_unclear
from gputop.diagnosis.types import Attribution
from gputop.model.feeders import MainLooks
from gputop.model.quantity import mfu_words
from gputop.model.snapshot import HostSample, MainTime, ProcessSample
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.paint import host_rows
from gputop.paint.detail_page import DetailsView
from gputop.paint.main_screen import main_screen
from gputop.paint.panes import ShownGpu, lanes
from gputop.paint.process_page import process_details
from gputop.paint.process_table import key_of
from gputop.paint.tour_rows import STEPS
from gputop.paint.view import View
from gputop.sources.simulation.scenarios import SCENARIOS
from tests.support.frames import demo_frame
from tests.support.scenes import Watch, gpu, snap, train

SIZES = ((80, 24), (120, 40), (160, 48))


def page_of(process: ProcessSample) -> str:
    frame = Monitor().feed(snap(0, gpu(), [process]))
    rows = process_details(frame, DetailsView(View()), key_of(process), None, None, 120, 60).rows
    return plain_text(rows)


def test_a_process_that_sleeps_is_asleep_and_waits_for_nothing_else() -> None:
    def waiting(state: str) -> ProcessSample:
        looks = MainLooks(((state, 20),))
        return replace(train(main=0.0), state="S", cpu_pct=0.0, main_looks=looks)

    assert waiting("sleep").waiting_on == "sleep"
    assert "asleep" in page_of(waiting("sleep")) and ", waits on" not in page_of(waiting("sleep"))
    assert "asleep, waits on lock" in page_of(waiting("lock"))


def test_a_process_that_always_runs_waits_on_nothing() -> None:
    """The few looks between two batches are no queue that a process at 101 % waits in."""
    runs = replace(train(main=100.0), state="R", cpu_pct=101.0)
    for poll_pct, wait in ((0.0, None), (4.0, None), (6.0, "queue")):
        assert replace(runs, main=MainTime(disk=0.0, poll=poll_pct, unread=0.0)).waiting_on == wait
    for queue_looks, wait in ((1, None), (3, "queue")):
        looks = MainLooks((("run", 30), ("queue", queue_looks)))
        assert replace(runs, main_looks=looks).waiting_on == wait


def test_a_value_that_is_missing_is_named_as_its_column_is() -> None:
    words = page_of(replace(train(), unavailable={"throttled_pct": "no CPU limit"}))
    assert "THROTTLED n/a: no CPU limit" in words and "throttled_pct" not in words


def test_an_impossible_share_of_flops_says_what_to_check() -> None:
    assert mfu_words(2717.0) == "MFU n/a (2717 % is impossible: check the FLOPs of a step)"
    assert mfu_words(41.0) == "MFU 41 %"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_percent_sign_follows_what_is_not_measured(scenario: str) -> None:
    frame = demo_frame(scenario)
    for size in SIZES:
        assert "n/a %" not in plain_text(main_screen(frame, View(), *size).rows), size


def test_a_host_that_measures_nothing_has_no_percent_sign() -> None:
    frame = Monitor().feed(replace(snap(0, gpu()), host=HostSample()))
    assert "n/a %" not in plain_text(main_screen(frame, View(), 120, 40).rows)


def test_a_main_thread_that_spins_or_computes_has_its_share_and_both_words() -> None:
    frame = demo_frame("hollow")
    text = plain_text(host_rows.attribution_rows(frame, View(), 140)[:1])
    assert re.search(
        r"while GPU 0 idled \(80 %\):   main thread +\d+ % busy, spins or computes", text
    )
    rested = with_attribution(frame, Attribution(80.0, main_pct=None))
    assert "main    n/a" in plain_text(host_rows.attribution_rows(rested, View(), 120))


def with_attribution(frame: Frame, attribution: Attribution) -> Frame:
    return replace(frame, diagnoses=(replace(frame.diagnoses[0], attribution=attribution),))


@pytest.mark.parametrize(("busy", "is_unclear"), [(0.0, False), (0.2, False), (0.36, True)])
def test_a_main_thread_that_hardly_runs_neither_spins_nor_computes(
    busy: float, *, is_unclear: bool
) -> None:
    """Without intervals to compare, such as at the start, its samples would allow anything."""
    host = SimpleNamespace(mean=SimpleNamespace(main=busy), attribution=IdleAttribution())
    signals = SimpleNamespace(host=host, idle=80.0)
    assert main_is_unclear(signals) is is_unclear  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rate", "is_full"), [(0.0, False), (20e6, False), (499e6, False), (2e9, True)]
)
def test_the_lane_of_a_bus_without_traffic_is_not_full(rate: float, is_full: bool) -> None:
    monitor = Monitor()
    for tick in range(60):
        frame = monitor.feed(snap(tick, gpu(pcie_rx_bytes_per_s=rate), [train()]))
    row = lanes(ShownGpu(frame, View(), 0), 120)[-1]
    text = "".join(part for part, _ in row)
    highest = "\u2587\u2588"
    assert text.strip().startswith("PCIe ↓") and any(c in text for c in highest) is is_full


def test_a_gpu_without_a_visible_process_gets_no_command_for_one() -> None:
    watch = Watch()
    stalled = gpu(util=100.0, sm=0.0, tensor_active_pct=0.0, dram_active_pct=0.0, power_w=101.0)
    d = watch.feed(snap(tick, stalled) for tick in range(300))
    words = " ".join((d.remedy, d.remedy_short, *d.notes, *d.evidence))
    assert "PID" not in words


def test_the_tour_does_not_contradict_the_remedy_below_it() -> None:
    frame = demo_frame()
    step = STEPS[6]
    assert step.verdict == "dataloader_io" == frame.diagnoses[6].verdict
    assert (
        "more num_workers" in frame.diagnoses[6].remedy
        and "local NVMe" in frame.diagnoses[6].remedy
    )
    assert "would not help" not in step.explained and "network" not in step.explained
    assert "disk" in step.title and "disk" in step.explained
