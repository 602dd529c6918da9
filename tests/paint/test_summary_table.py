"""Sums by user and by job: each process once, each GPU's memory where it is held."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.model.snapshot import ProcessSample, ProcessStatic
from gputop.monitor import Frame
from gputop.paint.cells import cells
from gputop.paint.process_groups import groups, summary_head, summary_row
from gputop.sources.simulation.life import slurm
from tests.support.frames import demo_frame

GIB = 2.0**30
ML, OPS = ProcessStatic(user="ml", batch_job=slurm(1)), ProcessStatic(user="ops")
PROCESSES = (
    ProcessSample(1, 10, gpu=0, gpu_mem_bytes=10 * GIB, cpu_pct=100.0, rss_bytes=GIB, static=ML),
    ProcessSample(1, 10, gpu=1, gpu_mem_bytes=20 * GIB, cpu_pct=100.0, rss_bytes=GIB, static=ML),
    ProcessSample(2, 11, ppid=1, role="loader", gpu=0, cpu_pct=50.0, rss_bytes=GIB, static=ML),
    ProcessSample(3, 12, gpu=1, gpu_mem_bytes=None, static=OPS),
    ProcessSample(4, None, gpu=2, gpu_mem_bytes=GIB),
)


def _frame() -> Frame:
    frame = demo_frame()
    return replace(frame, snapshot=replace(frame.snapshot, processes=PROCESSES))


def test_a_process_on_two_gpus_is_one_process_and_its_host_costs_count_once() -> None:
    ml = next(g for g in groups(_frame(), "user") if g.name == "ml")
    assert (ml.processes, ml.loaders, ml.cpu_pct, ml.rss_bytes) == (1, 1, 150.0, 2 * GIB)
    assert (ml.gpus, ml.gpu_mem_bytes) == (2, 30 * GIB)


def test_what_was_not_measured_is_not_a_sum_of_zero() -> None:
    ops = next(g for g in groups(_frame(), "user") if g.name == "ops")
    assert ops.gpu_mem_bytes is None and ops.cpu_pct is None
    assert ops.gpus == 1


def test_groups_are_ordered_by_what_they_hold_and_strangers_are_named_so() -> None:
    assert [g.name for g in groups(_frame(), "user")] == ["ml", "(not visible)", "ops"]
    assert [g.name for g in groups(_frame(), "job")] == ["slurm 1", "(no job)"]


def test_a_group_says_how_many_of_its_gpus_do_no_work() -> None:
    frame = _frame()
    ml = next(g for g in groups(frame, "user") if g.name == "ml")
    bad = [
        d.index
        for d in frame.diagnoses
        if d.state in ("busy_not_working", "starved", "idle", "idle_allocated")
    ]
    assert ml.not_working == len({0, 1} & set(bad))


def test_rows_line_up_with_their_head_at_every_width() -> None:
    frame = _frame()
    for width in (60, 80, 120, 200):
        head = summary_head("user", width)
        rows = [summary_row(g, width, selected=False) for g in groups(frame, "user")]
        assert {sum(cells(t) for t, _ in row) for row in (head, *rows)} == {width}
    head_text = "".join(t for t, _ in summary_head("user", 80)).rstrip()
    row_text = "".join(
        t for t, _ in summary_row(groups(frame, "user")[0], 80, selected=False)
    ).rstrip()
    assert (
        head_text.endswith("HOST-MEM")
        and row_text.endswith("2.0 G")
        and len(head_text) == len(row_text) <= 80
    )
