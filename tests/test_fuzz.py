"""Properties that hold for any input."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from gputop.model.expression import ExpressionError
from gputop.model.snapshot import FeedTime, GpuSample, HostSample, MainTime, ProcessSample, Snapshot
from gputop.monitor import Frame, Monitor
from gputop.output.snapshot_data import gpu_csv, json_text, snapshot_data
from gputop.paint.cells import cells
from gputop.paint.detail_page import DetailsView
from gputop.paint.glyphs import ASCII, COLOUR, MONO
from gputop.paint.gpu_page import gpu_details
from gputop.paint.main_screen import Painter
from gputop.paint.process_columns import COLUMNS
from gputop.paint.process_filter import parse, passes
from gputop.paint.process_page import process_details
from gputop.paint.view import View
from gputop.sources.activity.dcgmi import parse_discovery
from gputop.sources.cgroup import cgroup_folders
from gputop.sources.procfs import parse_io, parse_schedstat, parse_stat, parse_uptime
from tests.support.examples import any_text, looks
from tests.support.random_frames import T0, random_snapshot
from tests.support.recording_frames import lines_of, read_lines, rounded

SEEDS = st.integers(0, 2**32 - 1)


def same(kind: type[Struct], before: Any, after: Any) -> None:
    """All that is absent stays absent, whole numbers stay what they are, others keep three digits."""
    for name in kind.__struct_fields__:
        a, b = getattr(before, name), getattr(after, name)
        if isinstance(a, (FeedTime, MainTime)):
            same(type(a), a, b)
        if isinstance(a, float) and b is not None and not isinstance(b, str):
            assert b == pytest.approx(a, rel=1e-3, abs=1e-3), name
        elif isinstance(a, (int, float)) or a is None:
            assert a == b, name


@looks(20)
@given(SEEDS, st.integers(0, 8), st.integers(0, 30))
def test_what_was_recorded_is_read_back(seed: int, gpus: int, processes: int) -> None:
    snapshot = random_snapshot(seed, gpus=gpus, processes=processes)
    lines = lines_of(rounded(snapshot))
    assert all(line.endswith(b"\n") and b"\x1b" not in line for line in lines)
    (back,), decoder = read_lines(lines)
    assert decoder.damaged == 0
    assert back.t == pytest.approx(snapshot.t, abs=1e-3)
    assert len(back.gpus) == gpus
    assert len(back.processes) == len(snapshot.processes)
    for a, b in zip(snapshot.gpus, back.gpus, strict=True):
        same(GpuSample, a, b)
    for a, b in zip(snapshot.processes, back.processes, strict=True):
        same(ProcessSample, a, b)
    same(HostSample, snapshot.host, back.host)
    once = rounded(snapshot)
    assert rounded(once) == once, "what was rounded stays as it is"


@looks(20)
@given(SEEDS, st.integers(0, 8))
def test_data_are_always_json_and_csv(seed: int, gpus: int) -> None:
    snapshot = random_snapshot(seed, gpus=gpus)
    assert json_text(snapshot_data(snapshot)).endswith("\n")
    assert len(gpu_csv(snapshot).splitlines()) >= 1 + gpus


def watched(seed: int, gpus: int, processes: int) -> Frame:
    """A frame with a short, wild past in which GPUs and processes come and go."""
    monitor = Monitor()
    for k in range(6):
        frame = monitor.feed(
            _at(random_snapshot(seed + k % 3, gpus=gpus, processes=processes), T0 + k)
        )
    return frame


def _at(snapshot: Snapshot, t: float) -> Snapshot:
    return replace(snapshot, t=t)


@looks(12)
@given(
    SEEDS,
    st.integers(0, 17),
    st.integers(0, 40),
    st.integers(1, 260),
    st.integers(1, 90),
    st.sampled_from((COLOUR, MONO, ASCII)),
    st.sampled_from(("auto", "list")),
    st.sampled_from(sorted(COLUMNS)),
)
def test_every_screen_is_exactly_full(
    seed: int,
    gpus: int,
    processes: int,
    width: int,
    height: int,
    glyphs: Any,
    layout: Any,
    sort: str,
) -> None:
    frame = watched(seed, gpus, processes)
    view = View(
        glyphs=glyphs,
        layout=layout,
        sort=sort,
        message="…" * (seed % 300),
        stale_s=seed % 2 or None,
    )
    screens = [Painter().paint(frame, view, width, height).rows]
    state = DetailsView(view)
    if width >= 20 and height >= 5:
        screens += [
            gpu_details(frame, state, gpu.static.uuid, width, height).rows
            for gpu in frame.snapshot.gpus[:2]
        ]
        screens += [
            process_details(
                frame, state, (p.pid, p.starttime, p.gpu), None, None, width, height
            ).rows
            for p in frame.snapshot.processes[:2]
        ]
    for rows in screens:
        assert len(rows) == height
        for row in rows:
            text = "".join(part for part, _ in row)
            assert cells(text) == width, text
            assert text.isprintable(), ascii(text)
            assert "nan" not in text.lower().split()


WORDS = st.lists(
    st.sampled_from(
        [
            *COLUMNS,
            "gpu",
            "mem",
            "name",
            "verdict",
            ":",
            "~",
            ">",
            "<=",
            "!=",
            "!",
            ",",
            '"',
            "'",
            "10G",
            " ",
            "-",
            "é",
        ]
    ),
    max_size=14,
).map("".join)


@looks(12)
@given(st.one_of(WORDS, any_text(80)), SEEDS)
def test_any_filter_is_understood_or_refused_with_its_place(text: str, seed: int) -> None:
    processes = random_snapshot(seed, processes=3).processes
    try:
        chosen = parse(text)
    except ExpressionError as error:
        assert 0 <= error.position <= len(text)
        assert str(error).isprintable()
        return
    for process in processes:
        assert passes(chosen, process, processes, "starved") in (True, False)


@looks(50)
@given(st.binary(max_size=200), st.integers(0, 300))
def test_files_of_proc_that_are_cut_anywhere_are_read_or_refused(garbage: bytes, cut: int) -> None:
    parse_stat(b"7 (a b) S 1 7 7 0 -1 0 0 0 0 0 5 6 0 0 20 0 3 0 999 4096 100 0 0\n"[:cut])
    parse_io(
        b"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n"[
            :cut
        ]
    )
    parse_schedstat(b"1 2 3\n"[:cut])
    parse_uptime(b"123.45 67.89\n"[:cut])
    cgroup_folders(garbage.decode("latin-1"))
    parse_discovery(garbage.decode("latin-1"))
