"""The screen of one process: exact at every size, its family and its threads, and words for what cannot be known."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gputop.model.feeders import MainLooks
from gputop.model.inspection import ThreadList, ThreadSample
from gputop.model.snapshot import CgroupName, ProcessSample, ProcessStatic
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.paint.cells import cells
from gputop.paint.detail_page import DetailsView
from gputop.paint.glyphs import ASCII, COLOUR, MONO, Glyphs
from gputop.paint.process_family import family
from gputop.paint.process_page import process_details
from gputop.paint.process_table import key_of
from gputop.paint.view import View
from gputop.sources.simulation.life import slurm
from tests.support.frames import demo_frame
from tests.support.scenes import SOME_THREADS, gpu, snap, train, workers

SIZES = [(40, 10), (80, 24), (120, 36), (160, 48), (300, 100), (20, 5), (5, 3), (1, 1)]


QUEUE = MainLooks((("queue", 4),))


def _text(
    frame: Frame,
    p: ProcessSample,
    width: int = 140,
    height: int = 150,
    threads: ThreadList | None = SOME_THREADS,
) -> str:
    return plain_text(
        process_details(frame, DetailsView(View()), key_of(p), p, threads, width, height).rows
    )


def _fed(*processes: ProcessSample, seconds: int = 30) -> Frame:
    monitor = Monitor()
    frames = [monitor.feed(snap(tick, gpu(), processes)) for tick in range(seconds)]
    return frames[-1]


@pytest.mark.parametrize("glyphs", [COLOUR, MONO, ASCII], ids=lambda g: g.name)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_size_is_filled_exactly_also_with_a_hostile_process(
    width: int, height: int, glyphs: Glyphs
) -> None:
    hostile = "\x1b[2J\x1b]0;x\x07 訓練 \u202e evil e\u0301 [red]" + "x" * 4096
    name = CgroupName(hostile)
    static = ProcessStatic(hostile, hostile, hostile, name, name, hostile, hostile)
    bad = train(static=static, unavailable={"read_bytes_per_s": hostile})
    threads = ThreadList(1.0, (ThreadSample(1, hostile, "S", None, None, None),), 1)
    frame = _fed(bad, *workers(3, 50.0, static=static))
    for first in (0, 9, 10**6):
        state = DetailsView(View(glyphs=glyphs), first, frame.snapshot.t - 5.0)
        rows = process_details(frame, state, key_of(bad), bad, threads, width, height).rows
        assert len(rows) == height
        assert {sum(cells(text) for text, _ in row) for row in rows} == {width}
        assert all(char.isprintable() for row in rows for text, _ in row for char in text)
        if glyphs is ASCII:
            assert all(text.isascii() for row in rows for text, _ in row)


def test_the_whole_command_is_there_wrapped() -> None:
    p = train(
        static=ProcessStatic(
            command="python train.py " + " ".join(f"--option-{i}={i}" for i in range(20))
        )
    )
    text = _text(_fed(p), p, width=80)
    assert "$ python train.py --option-0=0" in text
    assert "--option-19=19" in text
    assert "…" not in text.split("  CPU")[0]


def test_identity_and_reasons_are_said() -> None:
    static = ProcessStatic(
        "ml", "python t.py", "python", slurm(77), CgroupName("pod-a"), "DALI", "holds a GPU context"
    )
    p = train(
        static=static,
        threads=214,
        pin_memory=True,
        unavailable={"read_bytes_per_s": "not permitted: run as root"},
    )
    text = _text(_fed(p), p)
    for words in (
        "user ml",
        "job slurm 77",
        "container pod-a",
        "role gpu",
        "why: holds a GPU context",
        "threads 214",
    ):
        assert words in text
    assert "pin_memory on" in text
    assert "READ n/a: not permitted: run as root" in text


def test_charts_and_lanes_show_what_the_history_holds() -> None:
    p = train(main=75.0, state="R", read_bytes_per_s=5e6)
    frame = _fed(p)
    rows = _text(frame, p).splitlines()
    assert any(row.startswith("  CPU") and row.endswith("100 %") for row in rows)
    assert any(row.startswith("  read") and row.endswith("5.0 MB/s") for row in rows)
    assert any(row.startswith("  write") and "nothing in this time" in row for row in rows)
    assert any(row.startswith("  main") and row.endswith("75 %") for row in rows)
    state = DetailsView(View(), 0, frame.snapshot.t - 5.0)
    reading = plain_text(process_details(frame, state, key_of(p), p, None, 140, 60).rows)
    assert "CPU 75 %" in next(row for row in reading.splitlines() if row.startswith("  at "))


def test_a_series_without_values_gives_its_reason() -> None:
    p = train(
        read_bytes_per_s=None, unavailable={"read_bytes_per_s": "run as root for disk evidence"}
    )
    row = next(row for row in _text(_fed(p), p).splitlines() if row.startswith("  read"))
    assert "n/a: run as root for disk evidence" in row


def test_a_loader_stands_below_its_gpu_process_with_the_rule_that_found_it() -> None:
    frame = demo_frame()
    loader = next(p for p in frame.snapshot.processes if p.role == "loader")
    rows = _text(frame, loader, threads=None).splitlines()
    at = next(i for i, row in enumerate(rows) if "its tree" in row)
    assert "GPU process" in rows[at + 2]
    chosen = next(row for row in rows[at:] if f" {loader.pid} " in row)
    assert "loader" in chosen and (loader.static.why or "") in chosen
    assert chosen.lstrip()[0] in "├└"


def test_a_worker_of_a_forkserver_joins_the_only_gpu_process_of_its_gpu() -> None:
    owner, (worker, nested) = train(), workers(2, 50.0)
    lost = replace(worker, ppid=99999)
    child = replace(nested, ppid=lost.pid)
    branches = family([child, lost, owner], child)
    assert [p.pid for p in branches] == [owner.pid, lost.pid, child.pid]
    second = train(pid=5555)
    assert [p.pid for p in family([lost, owner, second], lost)] == [lost.pid]


def test_parents_that_point_at_each_other_end_the_climb() -> None:
    a, b = replace(train(), pid=10, ppid=11), replace(train(), pid=11, ppid=10)
    assert {p.pid for p in family([a, b], a)} == {10, 11}


def test_an_ended_process_keeps_its_last_words_and_says_so() -> None:
    monitor = Monitor()
    p = train(main=40.0)
    for tick in range(30):
        monitor.feed(snap(tick, gpu(), [p]))
    frame = monitor.feed(snap(30, gpu(), []))
    text = _text(frame, p)
    assert "has ended" in text.splitlines()[1]
    assert "python train.py" in text
    assert any(row.startswith("  CPU") and row.endswith("100 %") for row in text.splitlines())
    never = plain_text(
        process_details(frame, DetailsView(View()), (1, 2, 0), None, None, 80, 24).rows
    )
    assert "not in the snapshot" in never


def test_threads_come_the_busiest_first_with_what_they_wait_on() -> None:
    p = train()
    rows = _text(_fed(p), p).splitlines()
    at = next(i for i, row in enumerate(rows) if "threads 3:" in row)
    assert [row.split()[0] for row in rows[at + 2 : at + 5]] == ["4712", "4711", "4713"]
    assert "1 disk wait" in rows[at] and "lock" in rows[at + 3]


def test_threads_in_a_replay_are_not_recorded_and_refusals_are_said() -> None:
    p = train()
    assert "not recorded" in _text(_fed(p), p, threads=None)
    assert "its threads cannot be listed: no" in _text(
        _fed(p), p, threads=ThreadList(1.0, reason="its threads cannot be listed: no")
    )


def test_nobody_is_called_asleep_beside_the_cpu_time_that_says_otherwise() -> None:
    busy = train(state="S", main_looks=QUEUE, cpu_pct=103.0, run_pct=103.0, wait_pct=0.0)
    threads = ThreadList(1.0, (ThreadSample(busy.pid, "python", "S", 99.0, 0.0, "queue"),), 1)
    text = _text(_fed(busy), busy, threads=threads)
    assert (
        "runs" in text
        and "asleep " not in text.replace("  asleep   ", "")
        and "waits on" not in text
    )
    assert "1 runs" in text
    resting = train(state="S", main_looks=QUEUE, cpu_pct=3.0, run_pct=3.0, wait_pct=0.0)
    assert "asleep, waits on queue" in _text(_fed(resting), resting)


def test_the_lane_of_sleep_has_only_what_running_left() -> None:
    p = train(state="S", main_looks=QUEUE, cpu_pct=103.0, run_pct=103.0, wait_pct=0.0)
    frame = _fed(p)
    assert set(frame.process_history.columns(key_of(p), "asleep_pct", 1.0, 20)) == {0.0}
