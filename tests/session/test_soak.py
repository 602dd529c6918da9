"""The soak itself: what it measures with is right, a short one passes through everything, and what leaks is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gputop.paint.view import View
from gputop.sources.processes.control import ProcessControl
from gputop.tui.node_app import GputopApp
from tests.bench.soak.__main__ import faults
from tests.bench.soak.machine import measured
from tests.bench.soak.program import SIZES, command, counts, environment
from tests.bench.soak.session import Growth, scraped, switched_on
from tests.bench.soak.snapshots import ticks
from tests.bench.terminal import Terminal
from tests.support.fake_app import Handed, playback_on
from tests.support.frames import demo_frame
from tests.support.steady_pilot import shown

LONGEST_START_S = 60.0


def test_a_slope_is_taken_after_the_warm_up_and_again_after_a_day() -> None:
    growth = Growth(200_000)
    # 3 MB in the warm-up, a megabyte in the rest of the first day, nothing afterwards.
    growth.points = [
        (tick, 30_000_000 + 300 * min(tick, 10_000) + round(1e6 / 76_400 * max(0, min(tick, 86_400) - 10_000)))
        for tick in range(0, 200_000, 1000)
    ]
    account = growth.account()
    assert account["rss_slope_mb_a_day_after_a_day"] == 0.0
    assert 0.3 < account["rss_slope_mb_a_day"] < 0.7  # type: ignore[operator]
    first, second = account["halves_mb_a_day"]  # type: ignore[misc]
    assert first > 0.7 and second == 0.0
    short = Growth(20_000)
    short.points = growth.points[:20]
    assert short.account()["rss_slope_mb_a_day_after_a_day"] is None


def test_nobody_and_nothing_in_the_soak_comes_back() -> None:
    seen = list(ticks(600))
    early, late = seen[:200], seen[400:]
    for of in ("user", "job", "container", "job_key"):
        names = [{getattr(p.static, of) for s in some for p in s.processes} for some in (early, late)]
        assert len(names[0]) > 4 and not names[0] & names[1], of
    instances = [{s.gpus[-1].static.uuid for s in some} for some in (early, late)]
    assert [len(some) for some in instances] == [2, 2] and not instances[0] & instances[1]
    loaders = [(s, p) for s in early for p in s.processes if p.role == "loader"]
    raised = sum(any(p.ppid == one.pid for one in s.processes) for s, p in loaders)
    assert raised > 0.9 * len(loaders), "workers are children of their job's process"


@pytest.mark.slow
def test_a_short_soak_leaves_no_thread_and_no_descriptor_behind() -> None:
    result = {"wings": switched_on(60), "export": scraped(60)}
    assert result["wings"]["frames"] == [60, 0]
    assert result["export"]["page_bytes"] > 1000
    assert faults(result) == []


@pytest.mark.slow
def test_the_whole_program_begins_on_the_snapshots_of_a_soak(tmp_path: Path) -> None:
    words = command(tmp_path / "report.jsonl", 10.0, 200)
    terminal = Terminal(words, environment(str(tmp_path)), *SIZES[0])
    try:
        deadline = time.monotonic() + LONGEST_START_S
        while "slurm" not in str(terminal.chunks) and time.monotonic() < deadline:
            terminal.drain(0.2)
        assert "slurm" in str(terminal.chunks)
    finally:
        terminal.close(3.0)


@pytest.mark.slow
@pytest.mark.nvml
def test_the_live_source_leaves_no_thread_and_no_descriptor_behind(nvml_dir: Path) -> None:
    source = measured(3.5, nvml_dir)
    assert source["gpus_lost"] > 0 and source["calls_hung"] > 0 and source["processes_lived"] > 20
    assert source["closed"]["descriptors"] < min(low for low, _ in source["descriptors"])
    closed = {key: source[key] for key in ("before", "closed")}
    assert faults({"source": {"threads": [[1, 1]] * 4, "descriptors": [[1, 1]] * 4, **closed}}) == []


RANGE = {"second_quarter": [4, 20], "last_quarter": [4, 20]}
GOOD: dict[str, Any] = {
    "wings": {
        "ticks": 200_000,
        "descriptors": [6, 30, 6],
        "threads": [2, 9, 2],
        "growth": {"rss_mb": {}, "rss_slope_mb_a_day": 0.4, "rss_slope_mb_a_day_after_a_day": None},
    },
    "source": {
        "threads": [[4, 5], [4, 5], [4, 5], [1, 5]],
        "descriptors": [[25, 45], [30, 45], [30, 44], [5, 45]],
        "before": {"threads": 1, "descriptors": 3},
        "closed": {"threads": 1, "descriptors": 5},
    },
    "program": {
        "gauges": dict.fromkeys(("threads", "descriptors", "tasks", "screens", "widgets", "timers", "objects"), RANGE)
    },
}


def _set(*path: str | int) -> Callable[[dict[str, Any], Any], None]:
    def change(result: dict[str, Any], value: Any) -> None:
        for key in path[:-1]:
            result = result[key]  # type: ignore[index]
        result[path[-1]] = value  # type: ignore[index]

    return change


@pytest.mark.parametrize(
    ("change", "value", "said"),
    [
        (_set("wings", "growth", "rss_slope_mb_a_day"), 1.0, "wings: rss_slope_mb_a_day is 1.0"),
        (_set("wings", "growth", "rss_slope_mb_a_day_after_a_day"), 2.0, "after_a_day is 2.0"),
        (_set("wings", "descriptors"), [6, 30, 7], "wings: descriptors went from 6 to 7"),
        (_set("source", "threads", 3), [1, 6], "source: threads went from 5 to 6"),
        (_set("source", "closed", "descriptors"), 9, "source: 9 descriptors after it was closed, 3 before"),
        (_set("program", "gauges", "descriptors"), {**RANGE, "last_quarter": [9, 27]}, "descriptors went from 4 to 9"),
        (_set("program", "gauges", "objects"), {**RANGE, "last_quarter": [30, 60]}, "objects went from 4 to 30"),
    ],
)
def test_what_was_left_behind_is_told(change: Callable[[dict[str, Any], Any], None], value: Any, said: str) -> None:
    assert faults(GOOD) == []
    bad = deepcopy(GOOD)
    change(bad, value)
    found = faults(bad)
    assert len(found) == 1 and said in found[0]


VISITS = (
    ("h", "escape"), ("D", "escape"), ("enter", "escape"), ("A", "escape"), ("f", "g", "escape"),
    ("ctrl+p", "escape"), ("p", "p"),
)  # fmt: skip
ROUNDS = 2


async def _round(pilot: Pilot[Any]) -> None:
    for keys in VISITS:
        await pilot.press(*keys)
        await pilot.pause()
        assert len(pilot.app.screen_stack) == 1, keys
    for thread in threading.enumerate():
        if thread.name.startswith("gputop-"):
            thread.join(2.0)
    # What is closed ends its tasks in the loop's next turns.
    await pilot.pause(0.1)


@pytest.mark.slow
@pytest.mark.weekly
async def test_screens_that_were_closed_leave_nothing_behind() -> None:
    frame = demo_frame()
    app = GputopApp(View(), "dark", playback_on(frame, Handed()), access=ProcessControl())
    async with shown(app, (100, 30)) as pilot:
        await _round(pilot)
        before = counts()
        for _ in range(ROUNDS):
            await _round(pilot)
        # On a busy machine the last screen's tasks may end some turns of the loop later.
        for _ in range(100):
            after = counts()
            if after["screens"] <= before["screens"]:
                break
            await pilot.pause(0.1)
    grown = {gauge: after[gauge] - before[gauge] for gauge in before if gauge != "rss"}
    assert grown.pop("objects") < 200 * ROUNDS, grown
    assert max(grown.values()) == 0, grown
