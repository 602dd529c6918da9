"""Every size of terminal with every size of machine: exact widths, whole verdicts, no overlap, no exception."""

from __future__ import annotations

import re
from functools import cache

import pytest
from msgspec.structs import replace

from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.snapshot import GpuSample, OwnCost
from gputop.monitor import Frame
from gputop.paint.cells import cells
from gputop.paint.glyphs import ASCII, COLOUR, MONO, Glyphs
from gputop.paint.line import Painted, Span, Target
from gputop.paint.main_screen import Painter, main_screen
from gputop.paint.view import View
from gputop.paint.words import first_rows
from tests.support.screen_matrix import GPUS, PROCESSES, SIZES, matrix_frame

SETS = (COLOUR, MONO, ASCII)
MACHINES = [
    pytest.param(
        gpus,
        processes,
        marks=() if processes == 5 or (gpus == 1 and processes == 0) else pytest.mark.slow,
    )
    for gpus in GPUS
    for processes in PROCESSES
]
"""The quick part has every number of GPUs, with some processes and once with none."""


@cache
def _painted(size: tuple[int, int], gpus: int, processes: int, glyphs: Glyphs) -> Painted:
    return main_screen(matrix_frame(gpus, processes), View(glyphs=glyphs, demo=True), *size)


def _texts(painted: Painted) -> list[str]:
    return ["".join(text for text, _ in row) for row in painted.rows]


@pytest.mark.parametrize(("gpus", "processes"), MACHINES)
def test_every_terminal_is_filled_exactly_with_what_it_can_show_verdicts_and_processes(
    gpus: int, processes: int
) -> None:
    for size in SIZES:
        for glyphs in SETS:
            # Glyphs change what a cell holds and not what a row does: one machine is enough for the other sets.
            if glyphs is COLOUR or (processes == 5 and (gpus == 8 or size == (160, 48))):
                _assert_filled(_painted(size, gpus, processes, glyphs), size, glyphs)
        _assert_verdicts_and_processes(
            _painted(size, gpus, processes, COLOUR), size, matrix_frame(gpus, processes)
        )


def _assert_filled(painted: Painted, size: tuple[int, int], glyphs: Glyphs) -> None:
    rows = _texts(painted)
    assert len(rows) == len(painted.targets) == size[1]
    assert {cells(row) for row in rows} == {size[0]}, size
    assert all(char.isprintable() for row in rows for char in row)
    assert glyphs is not ASCII or all(row.isascii() for row in rows)
    assert not re.search(r"\b(None|nan|inf)\b", "\n".join(rows))


def _assert_verdicts_and_processes(painted: Painted, size: tuple[int, int], frame: Frame) -> None:
    """No verdict is cut before its first words, no GPU left out while there is room, and processes have theirs."""
    blocks, gpus = _gpu_blocks(painted), len(frame.snapshot.gpus)
    for gpu, d in zip(frame.snapshot.gpus, frame.diagnoses, strict=True):
        text = blocks.get(gpu.static.uuid)
        assert text is None or _says(gpu, d, text), (size, gpu.static.index, d.title, text)
    # Of a small screen the process table keeps its head and three rows, however many GPUs there are.
    kept = 6 if gpus <= 8 else 11
    assert len(blocks) >= min(gpus, size[1] - kept), (
        f"GPUs are left out although there is room: {size}"
    )
    if size[1] >= 24:
        rows = sum(target is not None and target.kind == "process" for target in painted.targets)
        shown = sum(process.role == "gpu" for process in frame.snapshot.processes)
        assert rows >= min(shown, 5 if gpus <= 8 else 3 if size[1] > 24 else 0), size


def _gpu_blocks(painted: Painted) -> dict[object, str]:
    """The text of each GPU's own cells, by UUID."""
    blocks: dict[object, str] = {}
    for target, text in zip(painted.targets, _texts(painted), strict=True):
        if target is None or target.kind != "gpu":
            continue
        begin = 0
        for end, uuid in target.parts or ((len(text), target.key),):
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


@pytest.mark.parametrize("size", [(200, 60), (300, 100)])
def test_a_click_on_panes_side_by_side_meets_the_one_under_it(size: tuple[int, int]) -> None:
    frame, painter = matrix_frame(16, 5), Painter()
    painted = painter.paint(frame, View(), *size)
    row = next(
        y
        for y, target in enumerate(painted.targets)
        if y > 1 and target is not None and len(target.parts) > 1
    )
    text = _texts(painted)[row]
    for gpu in frame.snapshot.gpus[: len(painted.targets[row].parts)]:  # type: ignore[union-attr]
        target = painter.target(row, re.search(rf" {gpu.static.index} +H100", text).start())  # type: ignore[union-attr]
        assert target == Target("gpu", gpu.static.uuid)


def test_a_sentence_that_does_not_fit_its_rows_ends_in_an_ellipsis() -> None:
    words: list[list[Span]] = [
        [("> ", "text"), ("one two", "text")],
        [("  ", "text"), ("three", "text")],
    ]
    assert first_rows(words, 2, 9) == words
    assert first_rows(words, 1, 9) == [[("> ", "text"), ("one tw…", "text")]]
    assert first_rows(words, 1, 20) == [[("> ", "text"), ("one two…", "text")]]
    assert first_rows(words[:1] + words[:1], 1, 9) == words[:1]


@pytest.mark.parametrize(
    ("width", "words"),
    [(100, "self <1 % + counters  2 % "), (120, "cpu  41 MiB + counters  2 % ")],
)
def test_what_the_counters_helper_takes_is_said_apart(width: int, words: str) -> None:
    own = OwnCost(0.9, 41 * 2.0**20, helper_cpu_pct=2.2, helper_rss_bytes=136 * 2.0**20)
    frame = matrix_frame(1, 5)
    frame = replace(frame, snapshot=replace(frame.snapshot, own=own))
    (first, *_) = _texts(main_screen(frame, View(), width, 30))
    assert words in first and cells(first) == width
    assert "counters" not in _texts(main_screen(matrix_frame(1, 5), View(), width, 30))[0]
