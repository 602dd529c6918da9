"""The whole program on snapshots at full speed, in a terminal whose user never rests.

``used`` opens and closes screens, resizes, goes into the past and back. Run as a program, this file is what is
measured: its arguments are the file for its JSON lines, milliseconds between two snapshots, ticks between two looks.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget

from gputop.commands.screen import screen_options, show
from gputop.config import Settings
from gputop.model.snapshot import Snapshot
from gputop.sources.processes.control import ProcessControl
from tests.bench.soak.session import living, resident_bytes, slope
from tests.bench.soak.snapshots import ticks
from tests.bench.terminal import Terminal

SIZES = ((50, 160), (24, 80), (10, 40), (1, 1), (60, 220))
"""Rows and columns."""
ESCAPE, ENTER, TAB, DOWN, UP = "\x1b", "\r", "\t", "\x1b[B", "\x1b[A"
VISITS: tuple[tuple[str, ...], ...] = (
    ("?", DOWN, ESCAPE), ("D", "+", DOWN, "-", ESCAPE), (DOWN, ENTER, DOWN, "+", "-", ESCAPE), ("A", DOWN, ESCAPE),
    ("u", ESCAPE), ("C", ESCAPE), ("e", ESCAPE), ("d", ESCAPE), ("K", ESCAPE), ("f", "gpu:1", ENTER, ESCAPE),
    ("f", "mem>1G", ESCAPE), ("/", "train", ENTER), ("p", "n", "N", " ", ".", "p"), ("p", "D", ESCAPE, "p"),
    ("R", "]", "[", "R"), (TAB, DOWN, UP, TAB, "t", "c", "o", "c", "I", "+", "-"), ("\x10", ESCAPE),
)  # fmt: skip
"""What a user does one after the other; ctrl+p is the command palette. Never q, which also quits."""
START_S, KEY_S, ESCAPE_S, RESIZE_S = 1.5, 0.03, 0.15, 0.05
"""What follows an escape at once would be read as a key with alt."""
MOST_TICKS = 10_000_000
PRESENT = 900
"""Ticks before the first look: the rings of ten minutes are full then."""


def command(report: Path, pace_ms: float, look_ticks: int) -> list[str]:
    return [sys.executable, "-m", "tests.bench.soak.program", str(report), str(pace_ms), str(look_ticks)]


def environment(directory: str) -> dict[str, str]:
    """A usual colour terminal and an empty home."""
    return {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "HOME": directory}


def used(cycles: int) -> dict[str, Any]:
    """So many rounds of all visits on snapshots at full speed; what lives in the program, early and late."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.jsonl")
        terminal = Terminal(command(report, 10.0, 200), environment(directory), *SIZES[0])
        try:
            terminal.drain(START_S)
            for cycle in range(cycles):
                _round(terminal, cycle, Path(directory))
        finally:
            terminal.close(3.0)
        rows = [json.loads(line) for line in report.read_text().splitlines()]
    if len(rows) < 4:
        raise RuntimeError(f"the program was looked at {len(rows)} times")
    quarters = {name: rows[i * len(rows) // 4 : (i + 1) * len(rows) // 4] for name, i in
                (("second_quarter", 1), ("last_quarter", 3))}  # fmt: skip
    return {
        "cycles": cycles,
        "keys": cycles * sum(map(len, VISITS)),
        "ticks": rows[-1]["tick"],
        "rss_mb": [round(rows[i * (len(rows) - 1) // 8]["rss"] / 1e6, 2) for i in range(9)],
        "rss_bytes_a_tick": round(slope([(row["tick"], row["rss"]) for row in rows[len(rows) // 2 :]]), 2),
        "gauges": {
            gauge: {
                name: [min(row[gauge] for row in some), max(row[gauge] for row in some)]
                for name, some in quarters.items()
            }
            for gauge in rows[0].keys() - {"tick", "rss"}
        },
    }


def _round(terminal: Terminal, cycle: int, directory: Path) -> None:
    for visit in VISITS:
        for keys in visit:
            terminal.press(keys.encode())
            terminal.drain(ESCAPE_S if keys == ESCAPE else KEY_S)
    terminal.resize(*SIZES[cycle % len(SIZES)])
    terminal.drain(RESIZE_S)
    # What was shown is not kept, nor what was recorded: a soak writes gigabytes.
    terminal.chunks.clear()
    for recording in directory.glob("*.gputop.jsonl.gz"):
        recording.unlink()


class Hurried:
    """A source that has the next second's snapshot every few milliseconds, and looks at its own process."""

    interval_s = 1.0

    def __init__(self, report: Path, pace_s: float, look_ticks: int) -> None:
        self._snapshots = enumerate(ticks(MOST_TICKS))
        self._report = report
        self._pace_s = pace_s
        self._look_ticks = look_ticks
        self._closed = threading.Event()
        self._due = False

    def start(self, notify: Callable[[], None]) -> None:
        threading.Thread(target=self._pace, args=(notify,), name="soak-pace", daemon=True).start()

    def poll(self) -> Snapshot | None:
        if not self._due:
            return None
        self._due = False
        tick, snapshot = next(self._snapshots)
        if tick % self._look_ticks == 0 and tick >= PRESENT:
            with self._report.open("a") as file:
                file.write(json.dumps({"tick": tick, **counts()}) + "\n")
        return snapshot

    def close(self) -> None:
        self._closed.set()

    def _pace(self, notify: Callable[[], None]) -> None:
        while not self._closed.wait(self._pace_s):
            self._due = True
            notify()


def counts() -> dict[str, int]:
    """What lives in this process. On the loop's thread, because tasks belong to a loop."""
    gc.collect()
    things, tasks = gc.get_objects(), 0
    with suppress(RuntimeError):
        tasks = len(asyncio.all_tasks())
    return {
        "rss": resident_bytes(),
        **living(),
        "tasks": tasks,
        "screens": sum(isinstance(thing, Screen) for thing in things),
        "widgets": sum(isinstance(thing, Widget) and not isinstance(thing, Screen) for thing in things),
        "timers": sum(isinstance(thing, Timer) for thing in things),
        "objects": len(things),
    }


def main() -> int:
    report, pace_ms, look_ticks = sys.argv[1:]
    os.chdir(Path(report).parent)
    settings = Settings(hint=False)
    source = Hurried(Path(report), float(pace_ms) / 1000, int(look_ticks))
    return show(screen_options(argparse.Namespace(), settings), source, access=ProcessControl)


if __name__ == "__main__":
    sys.exit(main())
