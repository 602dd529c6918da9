"""Every size of terminal with every size of machine: exact widths, whole verdicts, no overlap, no exception."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.snapshot import GpuSample, OwnCost
from gputop.paint.charts import gap_chart
from gputop.paint.glyphs import ASCII, COLOUR, MONO, Glyphs, ascii_only
from gputop.paint.line import Painted, Span, Target, cells
from gputop.paint.main_screen import Painter, main_screen
from gputop.paint.view import View
from gputop.paint.words import first_rows
from tests.support.screen_matrix import GPUS, PROCESSES, SIZES, matrix_frame

SETS = (COLOUR, MONO, ASCII)
MATRIX = [(size, gpus, processes) for size in SIZES for gpus in GPUS for processes in PROCESSES]
QUICK = [case for case in MATRIX if case[2] == 5 or (case[1] in (1, 8) and case[0] in ((80, 24), (160, 48)))]
"""The quick part: every size with every number of GPUs, and the number of processes on two small and usual machines."""


def quick_or_slow(case: tuple[object, ...]) -> Any:
    return pytest.param(*case, marks=() if case[:3] in QUICK else pytest.mark.slow)


@cache
def _painted(size: tuple[int, int], gpus: int, processes: int, glyphs: Glyphs) -> Painted:
    return main_screen(matrix_frame(gpus, processes), View(glyphs=glyphs, demo=True), *size)


def _texts(painted: Painted) -> list[str]:
    return ["".join(text for text, _ in row) for row in painted.rows]


@pytest.mark.parametrize(
    ("size", "gpus", "processes", "glyphs"),
    # Glyphs change what a cell holds and not what a row does: each other set sees every size, and every number of GPUs.
    [
        quick_or_slow((*case, glyphs))
        for glyphs in SETS
        for case in MATRIX
        if glyphs is COLOUR or (case[2] == 5 and (case[1] == 8 or case[0] == (160, 48)))
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_it_is_filled_exactly_with_what_a_terminal_can_show(
    size: tuple[int, int], gpus: int, processes: int, glyphs: Glyphs
) -> None:
    painted = _painted(size, gpus, processes, glyphs)
    rows = _texts(painted)
    assert len(rows) == len(painted.targets) == size[1]
    assert {cells(row) for row in rows} == {size[0]}
    assert all(char.isprintable() for row in rows for char in row)
    assert glyphs is not ASCII or all(row.isascii() for row in rows)
    assert not re.search(r"\b(None|nan|inf)\b", "\n".join(rows))


@pytest.mark.parametrize(("size", "gpus", "processes"), list(map(quick_or_slow, MATRIX)))
def test_no_verdict_is_cut_before_its_first_words(size: tuple[int, int], gpus: int, processes: int) -> None:
    frame = matrix_frame(gpus, processes)
    painted = _painted(size, gpus, processes, COLOUR)
    blocks = _gpu_blocks(painted)
    judged = {gpu.static.uuid: (gpu, d) for gpu, d in zip(frame.snapshot.gpus, frame.diagnoses, strict=True)}
    for uuid, text in blocks.items():
        gpu, d = judged[uuid]
        assert _says(gpu, d, text), (gpu.static.index, d.title, text)
    # Of a small screen the process table keeps its head and three rows, however many GPUs there are.
    kept = 6 if gpus <= 8 else 11
    assert len(blocks) >= min(gpus, size[1] - kept), "GPUs are left out although there is room"


def _gpu_blocks(painted: Painted) -> dict[object, str]:
    """The text of each GPU's own cells, by UUID."""
    blocks: dict[object, str] = {}
    for target, text in zip(painted.targets, _texts(painted), strict=True):
        if target is None or target.kind != "gpu":
            continue
        begin = 0
        for end, uuid in target.beside or ((len(text), target.key),):
            blocks[uuid] = blocks.get(uuid, "") + text[begin:end] + "\n"
            begin = end
    return blocks


def _says(gpu: GpuSample, d: GpuDiagnosis, text: str) -> bool:
    """Whether a GPU's cells have its verdict, at least its first two words in the long or in the short form."""
    if gpu.lost_reason is not None:
        return "LOST" in text
    if d.busy_not_working is not None:
        return "BUSY, NOT WORKING" in text
    return any(" ".join(words.split()[:2]) in text for words in (d.title, d.short))


@pytest.mark.parametrize(
    ("size", "gpus", "processes"), [quick_or_slow(case) for case in MATRIX if case[0][1] >= 24 and case[2]]
)
def test_processes_have_room_beside_the_gpus(size: tuple[int, int], gpus: int, processes: int) -> None:
    painted = _painted(size, gpus, processes, COLOUR)
    rows = sum(target is not None and target.kind == "process" for target in painted.targets)
    assert rows >= min(processes, 5 if gpus <= 8 else 3 if size[1] > 24 else 0)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("gpus", GPUS)
def test_ascii_says_what_colour_says(size: tuple[int, int], gpus: int) -> None:
    words = [
        set(re.findall(r"[A-Za-z]{3,}", ascii_only("\n".join(_texts(_painted(size, gpus, 5, glyphs))))))
        for glyphs in (COLOUR, ASCII)
    ]
    lost = {word for word in words[0] - words[1] if word not in ("out",)}
    assert len(lost) <= 0.1 * len(words[0]), lost


@pytest.mark.parametrize("size", [(200, 60), (300, 100)])
def test_a_click_on_panes_side_by_side_meets_the_one_under_it(size: tuple[int, int]) -> None:
    frame, painter = matrix_frame(16, 5), Painter()
    painted = painter.paint(frame, View(), *size)
    row = next(y for y, target in enumerate(painted.targets) if y > 1 and target is not None and len(target.beside) > 1)
    text = _texts(painted)[row]
    for gpu in frame.snapshot.gpus[: len(painted.targets[row].beside)]:  # type: ignore[union-attr]
        target = painter.target(row, re.search(rf" {gpu.static.index} +H100", text).start())  # type: ignore[union-attr]
        assert target == Target("gpu", gpu.static.uuid)


def test_one_more_process_seldom_moves_the_screen() -> None:
    frame, heads = matrix_frame(8, 500), []
    for processes in range(13):
        snapshot = replace(frame.snapshot, processes=frame.snapshot.processes[:processes])
        painted = main_screen(replace(frame, snapshot=snapshot), View(), 100, 30)
        heads.append(
            next(y for y, target in enumerate(painted.targets) if target is not None and target.kind == "header")
        )
    assert len(set(heads)) <= 4, heads


def test_a_sentence_that_does_not_fit_its_rows_ends_in_an_ellipsis() -> None:
    words: list[list[Span]] = [[("> ", "text"), ("one two", "text")], [("  ", "text"), ("three", "text")]]
    assert first_rows(words, 2, 9) == words
    assert first_rows(words, 1, 9) == [[("> ", "text"), ("one tw…", "text")]]
    assert first_rows(words, 1, 20) == [[("> ", "text"), ("one two…", "text")]]
    assert first_rows(words[:1] + words[:1], 1, 9) == words[:1]


@pytest.mark.parametrize(
    ("size", "gpus"),
    [pytest.param(size, gpus, marks=() if gpus in (1, 8) else pytest.mark.slow) for size in SIZES for gpus in GPUS],
)
def test_the_compact_density_leaves_processes_at_least_as_much_room(size: tuple[int, int], gpus: int) -> None:
    rooms = []
    for density in ("standard", "compact"):
        painter = Painter()
        painted = painter.paint(matrix_frame(gpus, 500), View(density=density), *size)  # type: ignore[arg-type]
        assert {cells(row) for row in _texts(painted)} == {size[0]}
        rooms.append(painter.process_room)
    assert rooms[0] <= rooms[1]
    assert rooms[0] < rooms[1] or size[1] < 30 or gpus > 8 or (gpus == 8 and size[1] == 30)


@pytest.mark.parametrize("size", [size for size in SIZES if size[0] >= 80])
def test_the_host_is_named_wherever_there_is_room(size: tuple[int, int]) -> None:
    own = OwnCost(cpu_pct=0.9, rss_bytes=41 * 2.0**20)
    frame = matrix_frame(8, 5)
    frame = replace(frame, snapshot=replace(frame.snapshot, own=own))
    assert "node-17" in _texts(main_screen(frame, View(demo=True), *size))[0]


@pytest.mark.parametrize(
    ("width", "words"),
    [(100, "self <1 % +  2 % "), (120, "cpu  41 MiB + counters  2 % "), (160, "MiB + counters  2 % 136 MiB ")],
)
def test_what_the_counters_helper_takes_is_said_apart(width: int, words: str) -> None:
    own = OwnCost(0.9, 41 * 2.0**20, helper_cpu_pct=2.2, helper_rss_bytes=136 * 2.0**20)
    frame = matrix_frame(1, 5)
    frame = replace(frame, snapshot=replace(frame.snapshot, own=own))
    (first, *_) = _texts(main_screen(frame, View(), width, 30))
    assert words in first and cells(first) == width
    assert "counters" not in _texts(main_screen(matrix_frame(1, 5), View(), width, 30))[0]


@pytest.mark.parametrize("glyphs", SETS, ids=lambda g: g.name)
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_a_gpu_that_works_a_little_looks_different_from_one_that_does_not(glyphs: Glyphs, rows: int) -> None:
    if rows == 1 and glyphs.name != COLOUR.name:
        # One cell without a colour says "busy, not working"; how little the GPU works stands beside it as a number.
        assert gap_chart([98.0], [8.0], 1, glyphs, alarm=True, measured=True)[0][0][1] == "gap.alarm"
        return
    little, none = (
        gap_chart([98.0], [sm], rows, glyphs, alarm=True, measured=True)[-1][0] for sm in (max(8.0, 16 / rows), 0.0)
    )
    assert little != none
    assert little[1].startswith("gap.sm")
