"""The main screen at every size: exact width and height, nothing cut that matters, what the picture promises."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from gputop.model.sm import LackKind, SmLack
from gputop.model.snapshot import Event, GpuSample, GpuStatic
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.paint.glyphs import ASCII
from gputop.paint.gpu_fields import number_labels
from gputop.paint.main_screen import Painter, main_screen
from gputop.paint.process_filter import parse
from gputop.paint.process_table import key_of, shown_rows
from gputop.paint.view import View, selected_gpu
from tests.support.frames import demo_frame


def _with_gpus(frame: Frame, count: int) -> Frame:
    """The frame with so many GPUs, the simulated ones repeated under other indices and UUIDs."""
    gpus, diagnoses = [], []
    for i in range(count):
        gpu, d = frame.snapshot.gpus[i % 8], frame.diagnoses[i % 8]
        uuid = gpu.static.uuid if i < 8 else f"{gpu.static.uuid}-{i}"
        gpus.append(replace(gpu, static=replace(gpu.static, index=i, uuid=uuid)))
        diagnoses.append(replace(d, index=i, uuid=uuid))
    return replace(
        frame, snapshot=replace(frame.snapshot, gpus=tuple(gpus)), diagnoses=tuple(diagnoses)
    )


def _text(frame: Frame, view: View, width: int, height: int) -> str:
    return plain_text(main_screen(frame, view, width, height).rows)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (160, 48), (200, 60)])
def test_busy_but_not_working_is_named_for_each_gpu_that_is(width: int, height: int) -> None:
    frame = demo_frame()
    flagged = sum(d.busy_not_working is not None for d in frame.diagnoses)
    assert flagged == 2
    text = _text(frame, View(), width, height)
    assert text.count("BUSY, NOT WORKING") == flagged + 1  # and once in the summary


def test_only_busy_not_working_paints_a_title_bar() -> None:
    frame = demo_frame()
    for row in main_screen(frame, View(), 160, 48).rows:
        if any(style == "alarm.title" for _, style in row):
            assert "BUSY, NOT WORKING" in "".join(text for text, _ in row)


def test_the_gpu_most_in_need_is_selected_until_the_viewer_chooses() -> None:
    frame = demo_frame()
    assert frame.diagnoses[selected_gpu(frame, View())].busy_not_working
    chosen = View(gpu=frame.snapshot.gpus[5].static.uuid)
    assert selected_gpu(frame, chosen) == 5


def test_a_screen_too_low_for_all_gpus_scrolls_to_the_selected_one() -> None:
    frame = _with_gpus(demo_frame(), 16)
    last = View(gpu=frame.snapshot.gpus[15].static.uuid)
    assert "\n 15 " in _text(frame, last, 80, 14)


def test_what_is_not_measured_is_not_zero() -> None:
    frame = demo_frame("no_sm_counter")
    text = _text(frame, View(), 160, 48)
    assert "SM not measured" in text
    sm = next(line for line in text.splitlines() if line.startswith("  SM "))
    assert sm[5:12].strip().startswith(("n/a", "≤"))


def test_a_lost_gpu_says_so_and_since_when_while_the_others_go_on() -> None:
    frame = demo_frame("lost_gpu", later_s=75)
    lost = [gpu for gpu in frame.snapshot.gpus if gpu.lost_reason]
    assert len(lost) == 1
    text = _text(frame, View(), 160, 48)
    assert "LOST since" in text
    assert "1 LOST" in text.splitlines()[1]
    assert len(frame.snapshot.gpus) - 1 == text.count("/ 80.0 GiB")


def test_a_lost_gpu_shows_its_reason_once() -> None:
    frame = demo_frame("lost_gpu", later_s=75)
    (lost,) = [gpu for gpu in frame.snapshot.gpus if gpu.lost_reason]
    text = plain_text(main_screen(frame, View(gpu=lost.static.uuid), 160, 60).rows)
    assert lost.lost_reason is not None
    assert text.count(lost.lost_reason[:30]) == 1


def test_a_mark_of_the_user_is_a_line_in_every_chart() -> None:

    monitor, snapshot = Monitor(), demo_frame().snapshot
    for second in range(60):
        events = (Event(snapshot.t + 30, "mark", "epoch 3"),) if second == 30 else ()
        frame = monitor.feed(replace(snapshot, t=snapshot.t + second, events=events))
    text = _text(frame, View(), 160, 48)
    columns = {line.index("│") for line in text.splitlines() if "│" in line}
    assert len(columns) == 1


def test_a_starved_gpu_whose_host_side_cannot_be_seen_is_not_called_busy() -> None:
    text = _text(demo_frame("pid_namespace"), View(), 120, 36)
    assert "no GPU is idle enough" not in text
    assert "is unknown" in text


def test_a_broken_counter_draws_no_gap() -> None:
    frame = demo_frame("counter_fault")
    assert any(badge.id == "counter_fault" for badge in frame.diagnoses[0].badges)
    styles = {
        style
        for row in main_screen(frame, View(), 120, 36).rows
        for text, style in row
        if "█" in text
    }
    assert not styles & {"gap.gap", "gap.alarm", "gap.sm"}


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 36)])
def test_what_a_broken_counter_reads_is_shown_as_no_measurement(width: int, height: int) -> None:
    text = _text(demo_frame("counter_fault"), View(), width, height)
    assert re.search(r"SM +n/a", text)
    assert re.search(r"GAP +n/a", text)
    assert not re.search(r"(SM|OCC|TENSOR|DRAM) +0\b", text)


@pytest.mark.parametrize("width", [100, 120, 160])
def test_every_wait_of_the_loaders_stands_beside_the_idle_gpu(width: int) -> None:
    lines = _text(demo_frame(), View(), width, 48).splitlines()
    line = next(line for line in lines if "queued" in line and "disk" in line)
    assert re.search(
        r"(running|loaders)\b.*\d %.*queued.*\d %.*disk.*\d %.*network.*\d %.*main.*\d %", line
    )


@pytest.mark.parametrize(("kind", "said"), [("collecting", "…"), (None, "n/a")])
def test_what_comes_with_the_next_sample_is_no_missing_value(
    kind: LackKind | None, said: str
) -> None:
    lack = SmLack(("collecting, by its words alone",), kind=kind)
    gpu = GpuSample(GpuStatic(0, "GPU-0", "H100"), util_pct=60, sm_source="gpm", sm_lack=lack)
    labels = number_labels(gpu, demo_frame().diagnoses[0])
    assert [row[1][0].strip() for row in labels] == ["60", said, said]


def test_one_painter_shows_after_any_change_of_view_what_a_new_one_shows() -> None:
    frame, later = demo_frame(), demo_frame(later_s=5)
    first, second = (key_of(shown.process) for shown in shown_rows(frame, View())[:2])
    views = [
        View(), View(process=first), View(process=second), View(process=second, tagged=frozenset({first})), View(),
        View(sort="pid"), View(sort="pid", inverted=True), View(tree="all"), View(tree="none"),
        View(), View(columns=("gpu", "pid", "command")), View(), View(filter=parse("user:rl")),
        View(glyphs=ASCII), View(),
    ]  # fmt: skip
    painter = Painter()
    # Views change within a frame, and frames and widths under a view.
    for seen, width in ((frame, 160), (later, 160), (later, 120)):
        for view in views:
            assert (
                painter.paint(seen, view, width, 48).rows
                == Painter().paint(seen, view, width, 48).rows
            )


def test_a_red_gpu_s_sm_is_not_painted_as_praise_at_any_size() -> None:
    frame = demo_frame()
    red = [i for i, d in enumerate(frame.diagnoses) if d.level == "red"]
    assert red
    for width, height in ((80, 24), (160, 48), (200, 60)):
        for i in red:
            only = replace(frame, snapshot=replace(frame.snapshot, gpus=(frame.snapshot.gpus[i],)))
            rows = main_screen(
                replace(only, diagnoses=(frame.diagnoses[i],)), View(), width, height
            ).rows
            assert not any(style == "value.sm" for row in rows for _, style in row)


def test_a_recording_of_the_demo_is_shown_as_simulated() -> None:
    frame = demo_frame()
    for boot, is_simulated in (("b1", False), ("simulated-0", True)):
        machine = replace(frame.snapshot.machine, boot_id=boot, source="recorded")
        shown = replace(frame, snapshot=replace(frame.snapshot, machine=machine))
        assert ("SIMULATED" in _text(shown, View(), 80, 24).splitlines()[0]) is is_simulated
