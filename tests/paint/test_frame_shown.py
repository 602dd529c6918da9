"""What screens show is settled once in a frame; everything that is no screen keeps what was measured."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from gputop.api.frame_means import FrameMeans
from gputop.command_line.shared_options import filtered
from gputop.diagnosis.verdict.shown import OF_PROCESSES, OF_VERDICT, RESTLESS
from gputop.features.alerts.alert_table import holds_on, vocabulary
from gputop.features.export.export_feed import ExportFeed
from gputop.features.export.metrics_page import PageChoice
from gputop.model.expression import parse_expression
from gputop.model.history import History
from gputop.model.snapshot import Snapshot
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.output.snapshot_data import gpu_csv, once_data
from gputop.output.snapshot_text import line_rows, once_rows
from gputop.output.ticket import ticket_data
from gputop.paint.detail_page import DetailsView
from gputop.paint.gpu_page import gpu_details
from gputop.paint.main_screen import main_screen
from gputop.paint.process_filter import parse
from gputop.paint.process_groups import groups
from gputop.paint.process_page import process_details
from gputop.paint.process_table import key_of, shown_rows
from gputop.paint.view import View
from gputop.recording.reader import read_snapshots
from gputop.recording.recorder import Recorder
from gputop.session.session import Session
from tests.support.exported import Clock, read, value
from tests.support.frames import demo_frame
from tests.support.scenes import T0, gpu, snap, train

FIRST, SECOND = 100, 200
"""Processes whose CPU time alternates 160/40 and 10/130: the means are 100 and 70."""


def moment(tick: int) -> Snapshot:
    """One second of a restless machine: utilisation, power and CPU time jump."""
    is_even = tick % 2 == 0
    first = replace(train(), pid=FIRST, cpu_pct=160.0 if is_even else 40.0)
    second = replace(train(), pid=SECOND, cpu_pct=10.0 if is_even else 130.0)
    sample = gpu(util=100.0 if is_even else 60.0, sm=55.0, power_w=600.0 if is_even else 300.0)
    return snap(tick, sample, [first, second])


def frames(count: int = 92, first: int = 0) -> list[Frame]:
    monitor = Monitor()
    return [monitor.feed(moment(tick)) for tick in range(first, first + count)]


@pytest.mark.parametrize("view", [View(sort="cpu_pct"), View(sort="cpu_pct", inverted=True)])
def test_processes_stand_in_the_order_of_their_numbers_and_stand_still(view: View) -> None:
    seen = set()
    for frame in frames()[70:]:
        rows = plain_text(main_screen(frame, view, 120, 40).rows)
        pids = re.findall(rf"^ +0 +({FIRST}|{SECOND}) ", rows, re.MULTILINE)
        cpu = {p.pid: round(p.cpu_pct or 0.0) for p in frame.shown.processes}
        seen.add((*pids, cpu[FIRST], cpu[SECOND]))
    expected = (str(SECOND), str(FIRST)) if view.inverted else (str(FIRST), str(SECOND))
    assert seen == {(*expected, 100, 70)}


def test_a_filter_passes_the_number_that_is_shown() -> None:
    for frame in frames()[70:]:
        for text, pids in (("cpu>90", [FIRST]), ("cpu<90", [SECOND]), ("cpu>130", [])):
            assert [row.process.pid for row in shown_rows(frame, View(filter=parse(text)))] == pids


def test_pages_show_the_same_number_as_the_table_and_the_pane() -> None:
    frame = frames()[-1]
    state, process = DetailsView(View()), frame.shown.processes[0]
    page = process_details(frame, state, key_of(process), None, None, 160, 60)
    assert re.search(r"^  \d+ +GPU process .* 100 ", plain_text(page.rows), re.MULTILINE)
    assert groups(frame, "user")[0].cpu_pct == pytest.approx(170.0)
    details = plain_text(gpu_details(frame, state, "GPU-0", 160, 100).rows)
    watts = frame.shown.gpus[0].power_w
    assert watts is not None and 440.0 < watts < 460.0
    assert re.search(rf"^  POWER +{watts:.0f} W .*, mean of 10 s", details, re.MULTILINE)
    pane = plain_text(main_screen(frame, View(), 160, 48).rows)
    assert f"{watts:.0f} / 700 W" in pane


def poisoned(frame: Frame) -> Frame:
    """The frame with other values of the moment beside what is shown."""
    gpu_changes = dict.fromkeys((*OF_VERDICT, *RESTLESS), 12345.0)
    process_changes = dict.fromkeys(OF_PROCESSES, 12345.0)
    gpus = tuple(replace(gpu, **gpu_changes) for gpu in frame.snapshot.gpus)
    processes = tuple(replace(p, **process_changes) for p in frame.snapshot.processes)
    snapshot = replace(frame.snapshot, gpus=gpus, processes=processes)
    other = replace(frame, snapshot=snapshot)
    other.__dict__["shown"] = frame.shown
    return other


def test_nothing_is_painted_of_the_moment_where_a_mean_is_shown() -> None:
    frame = demo_frame()
    other = poisoned(frame)
    views = [View(), View(sort="cpu_pct", tree="all"), View(filter=parse("cpu>1")), View(gpu="x")]
    sizes = ((80, 24), (120, 40), (160, 48), (240, 70))
    for view, size in product(views, sizes):
        assert main_screen(other, view, *size).rows == main_screen(frame, view, *size).rows
    state = DetailsView(View())
    for sample in frame.snapshot.gpus:
        pages = [gpu_details(f, state, sample.static.uuid, 160, 90).rows for f in (frame, other)]
        assert pages[0] == pages[1]
    for process in frame.snapshot.processes[:3]:
        key = key_of(process)
        both = [process_details(f, state, key, None, None, 160, 60).rows for f in (frame, other)]
        assert both[0] == both[1]
    assert groups(other, "job") == groups(frame, "job")


def test_what_is_no_screen_keeps_the_measured_values_and_settles_nothing(tmp_path: Path) -> None:
    """One frame: 100 % util, 600 W and 160 % CPU were measured, and the screen has other means."""
    session, means = Session(Monitor()), FrameMeans("all")
    recorder = Recorder(str(tmp_path / "r.jsonl.gz"))
    session.record(recorder)
    for tick in range(93):
        frame = session.take(moment(tick))
    means.add(frame)
    session.stop_recording()
    recorder.close()
    sample, process = frame.snapshot.gpus[0], frame.snapshot.processes[0]
    assert (sample.util_pct, sample.power_w, process.cpu_pct) == (100.0, 600.0, 160.0)

    exporter = ExportFeed(session, PageChoice(processes=True), Clock())
    page = read(exporter.page())
    assert value(page, "gputop_gpu_utilization_ratio", gpu="0") == 1.0
    assert value(page, "gputop_gpu_power_watts", gpu="0") == 600.0
    *_, recorded = read_snapshots(str(tmp_path / "r.jsonl.gz"))
    assert recorded.gpus[0].util_pct == 100.0 and recorded.processes[0].cpu_pct == 160.0
    assert once_data(frame.snapshot)["gpus"][0]["power_w"] == 600.0  # type: ignore[index]
    assert ",600" in gpu_csv(frame.snapshot)
    table = plain_text(once_rows(frame, View(sort="cpu_pct"), 160))
    assert "UTIL 100" in table and "600 / 700 W" in table
    assert re.search(rf" {FIRST} .* 160 ", table)
    assert "UTIL 100" in plain_text(line_rows(frame, View(), 120))
    passing = filtered(frame, parse("cpu>150")).snapshot.processes
    assert [p.pid for p in passing] == [FIRST]
    assert ticket_data(frame, 0, process)["util_pct"] == 100.0
    assert means.take()["gputop/gpu0/power_w"] == 600.0
    alert = parse_expression("power_w>590 util_pct>99", vocabulary())
    assert holds_on(alert, sample, frame.diagnoses[0]) is True
    assert "shown" not in frame.__dict__

    shown = frame.shown
    assert shown.gpus[0].util_pct == pytest.approx(80.0, abs=2.0)
    assert shown.gpus[0].power_w == pytest.approx(450.0, abs=10.0)
    assert shown.processes[0].cpu_pct == pytest.approx(100.0)
    chosen = ticket_data(frame, 0, shown.processes[0])["processes"]
    assert [row["cpu_pct"] for row in chosen] == [160.0]  # type: ignore[attr-defined]


def test_a_frame_shows_the_same_whenever_it_is_asked() -> None:
    monitor = Monitor()
    at_once = [monitor.feed(moment(tick)).shown for tick in range(150)]
    assert [frame.shown for frame in frames(150)] == at_once


def test_before_a_mean_is_known_the_measured_value_is_shown() -> None:
    frame = frames(1)[0]
    assert frame.shown.processes == frame.snapshot.processes
    assert frame.shown.gpus == frame.snapshot.gpus and frame.shown.mean_s == ({},)
    without_history = Monitor(charts=False)
    for tick in range(60):
        frame = without_history.feed(moment(tick))
    assert frame.shown.processes == frame.snapshot.processes
    assert frame.shown.gpus[0].power_w == frame.snapshot.gpus[0].power_w


def test_a_broken_counter_shows_no_number_and_says_why() -> None:
    frame = demo_frame("counter_fault")
    shown = frame.shown.gpus[0]
    assert shown.sm_active_pct is None and "not believed" in shown.unavailable["sm_active_pct"]


@pytest.mark.parametrize("seed", range(4))
def test_the_mean_of_the_last_full_column_is_the_charts(seed: int) -> None:
    random = Random(seed)
    history, t = History(), T0 + random.random()
    for _ in range(400):
        t += random.choice((0.25, 1.0, 1.0, 1.0, 3.0, 15.0))
        known = None if random.random() < 0.1 else 100.0 * random.random()
        broken = frozenset({"x"}) if random.random() < 0.02 else frozenset()
        history.add(t, "a", {"x": known}, 1.0, broken)
        for width_s in (10.0, 30.0):
            charted = history.columns("a", "x", width_s, 2)[0]
            assert history.last_full_mean("a", "x", width_s, t) == pytest.approx(charted)
    assert history.last_full_mean("b", "x", 10.0, t) is None
    history.forget("a")
    assert history.last_full_mean("a", "x", 10.0, t) is None
