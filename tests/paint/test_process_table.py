"""The process table with filters, any sort, tags, search and chosen columns."""

from __future__ import annotations

from functools import cache

import pytest
from msgspec.structs import replace

from gputop.model.snapshot import NOT_READ_YET, CgroupName, ProcessSample, ProcessStatic
from gputop.monitor import Frame
from gputop.paint import process_table
from gputop.paint.cells import cells
from gputop.paint.line import Row
from gputop.paint.main_screen import main_screen
from gputop.paint.process_columns import COLUMNS, DEFAULT
from gputop.paint.process_filter import parse
from gputop.paint.process_table import next_match, shown_rows
from gputop.paint.view import View
from gputop.sources.gpu_process import GpuProcess, unseen
from tests.support.frames import demo_frame


def _text(row: Row) -> str:
    return "".join(text for text, _ in row)


def _pids(frame: Frame, view: View) -> list[int]:
    return [shown.process.pid for shown in shown_rows(frame, view)]


@cache
def _crowd(count: int = 500) -> Frame:
    frame = demo_frame()
    processes = tuple(
        ProcessSample(
            1000 + i, starttime=i, gpu=i % 8, gpu_mem_bytes=None if i % 7 == 0 else float(i * 2**20),
            cpu_pct=float(i * 37 % 100), static=ProcessStatic(user=f"user{i % 5}", command=f"python job{i}.py"),
        )
        for i in range(count)
    )  # fmt: skip
    return replace(frame, snapshot=replace(frame.snapshot, processes=processes))


def test_a_parent_that_passes_keeps_its_children() -> None:
    view = View(filter=parse("gpu:3 role:gpu"), tree="all")
    assert _pids(demo_frame(), view) == [4802, *range(4810, 4818)]


def test_a_child_that_passes_shows_below_its_parent_even_in_a_closed_tree() -> None:
    frame = demo_frame()
    wanted = next(p for p in frame.snapshot.processes if p.role == "loader" and p.gpu == 3)
    rows = shown_rows(frame, View(filter=parse(f"pid:{wanted.pid}"), tree="none"))
    assert [shown.process.pid for shown in rows] == [4802, wanted.pid]
    assert rows[1].branch


def test_a_process_below_none_shows_where_it_passes() -> None:
    frame = demo_frame()
    ray_task = ProcessSample(9, role="loader", static=ProcessStatic(user="ml"))
    stray = replace(
        frame, snapshot=replace(frame.snapshot, processes=(*frame.snapshot.processes, ray_task))
    )
    assert _pids(stray, View(filter=parse("pid:9"))) == [9]
    assert 9 not in _pids(stray, View(filter=parse("role:gpu")))


@pytest.mark.parametrize("troubled", [(3,), (3, 6), (3, 6, 7)])
@pytest.mark.parametrize("selected", [0, 3])
def test_processes_of_gpus_in_trouble_stand_above_those_of_healthy_ones(
    troubled: tuple[int, ...], selected: int
) -> None:
    frame = demo_frame()
    healthy, waits = frame.diagnoses[1], frame.diagnoses[3]
    judged = [
        replace(waits if d.index in troubled else healthy, index=d.index, uuid=d.uuid)
        for d in frame.diagnoses
    ]
    gpus = [gpu.static.uuid for gpu in frame.snapshot.gpus]
    view = View(gpu=gpus[selected], tree="none")
    rows = shown_rows(replace(frame, diagnoses=tuple(judged)), view)
    order = [at for at in dict.fromkeys(row.process.gpu for row in rows) if at is not None]
    in_trouble = [at for at in troubled if at != selected]
    assert order[0] == selected and set(order[1 : 1 + len(in_trouble)]) == set(in_trouble)


def test_the_words_of_a_verdict_are_a_filter() -> None:
    frame = demo_frame()
    starved = {d.index for d in frame.diagnoses if d.state == "starved"}
    assert starved
    for text in ("verdict:starved", "verdict:STARVED role:gpu"):
        assert {
            shown.process.gpu for shown in shown_rows(frame, View(filter=parse(text)))
        } == starved
    flagged = {d.index for d in frame.diagnoses if d.busy_not_working}
    rows = shown_rows(frame, View(filter=parse('verdict:"busy, not working" role:gpu')))
    assert flagged
    assert {shown.process.gpu for shown in rows} == flagged


@pytest.mark.parametrize("inverted", [False, True])
def test_every_column_sorts_both_ways_and_leaves_what_is_not_known_last(inverted: bool) -> None:
    for key, column in COLUMNS.items():
        for frame in (demo_frame(), _crowd()):
            rows = shown_rows(frame, View(sort=key, inverted=inverted, tree="none"))
            values = [
                column.value(shown.process, shown.children)
                for shown in rows
                if shown.process.role == "gpu"
            ]
            known = [v.lower() if isinstance(v, str) else v for v in values if v is not None]
            assert values[: len(known)] == [v for v in values if v is not None], key
            assert known == sorted(known, reverse=column.rising == inverted), key  # type: ignore[type-var]


def test_the_filter_and_the_tags_stand_in_the_title() -> None:
    frame = demo_frame()
    first = process_table.key_of(shown_rows(frame, View())[0].process)
    for width in (40, 80, 160):
        view = View(filter=parse("gpu:3"), tagged=frozenset({first}))
        title = process_table.title(view, width, 1).row(width)
        assert cells(_text(title)) == width
        assert "processes 1 pass gpu:3" in _text(title)
        assert "1 tagged" in _text(title)
    assert "pass" not in _text(process_table.title(View(), 80, 8).row(80))


def test_an_empty_table_says_that_the_filter_did_it() -> None:
    frame = demo_frame()
    painted = main_screen(frame, View(filter=parse("user:nobody_at_all")), 160, 48)
    assert any("passes the filter: esc takes it away" in _text(row) for row in painted.rows)


def test_a_filter_is_not_said_to_keep_out_processes_that_were_not_read_yet() -> None:
    frame = demo_frame()
    unread = tuple([unseen(GpuProcess(gpu, 4000 + gpu, 1e9), NOT_READ_YET) for gpu in range(3)])
    frame = replace(frame, snapshot=replace(frame.snapshot, processes=unread))
    painted = [
        _text(row) for row in main_screen(frame, View(filter=parse("user:me")), 160, 48).rows
    ]
    assert any("the 3 processes on the GPUs are not yet read from /proc" in row for row in painted)
    assert not any("esc takes it away" in row for row in painted)


def test_search_goes_round_in_both_directions() -> None:
    rows = shown_rows(_crowd(), View(sort="pid", tree="none"))
    at = next_match(rows, "JOB20.PY", 0, 1)
    assert at is not None and rows[at].process.pid == 1020
    assert next_match(rows, "job20.py", at, 1) == at
    assert next_match(rows, "user3", 5, 1) == 8
    assert next_match(rows, "user3", 5, -1) == 3
    assert next_match(rows, "1499", 0, -1) == 499
    assert next_match(rows, "nobody", 0, 1) is None
    assert next_match([], "x", 0, 1) is None


@pytest.mark.parametrize(
    "chosen",
    [
        DEFAULT,
        tuple(COLUMNS),
        ("pid",),
        ("command", "pid", "gpu"),
        ("why", "waiting_on", "container", "state"),
    ],
)
def test_rows_fill_their_width_whatever_the_columns_and_the_names(chosen: tuple[str, ...]) -> None:
    frame = demo_frame()
    hostile = ProcessStatic(
        user="\x1b[31mroot\x1b[0m", command="漢字\n\u202e[bold]" * 400, name="e\u0301\x07" * 9,
        batch_job=CgroupName("\t\t"), why="\x9b1A",
    )  # fmt: skip
    processes = tuple(replace(p, static=hostile) for p in frame.snapshot.processes)
    bad = replace(frame, snapshot=replace(frame.snapshot, processes=processes))
    view = View(columns=chosen, tree="all", filter=parse("!zzz"))
    for width in (40, 80, 133, 300):
        rows = [process_table.head(view, width)]
        rows += [
            process_table.row(shown, view, width, selected=True) for shown in shown_rows(bad, view)
        ]
        assert {cells(_text(row)) for row in rows} == {width}
        assert all(_text(row).isprintable() for row in rows)


def test_heads_stand_over_their_values() -> None:
    frame, view = demo_frame(), View()
    for width in (80, 120, 160):
        head = _text(process_table.head(view, width))
        shown = shown_rows(frame, view)[0]
        line = _text(process_table.row(shown, view, width, selected=False))
        end = head.index("GPU-MEM") + len("GPU-MEM")
        assert line[:end].endswith(" G")
        assert line[head.index("COMMAND") :].startswith("python")
