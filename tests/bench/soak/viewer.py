"""The whole program on snapshots at full speed, in a terminal: the half of the soak that is measured.

Arguments: the file for its JSON lines, milliseconds between two snapshots, ticks between two looks.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from textual.app import App
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget

from gputop.commands.screen import screen_terminal, show
from gputop.config import Settings
from gputop.model.snapshot import Snapshot
from gputop.sources.processes.control import ProcessControl
from tests.bench.soak.measure import descriptors, resident_bytes
from tests.bench.soak.snapshots import ticks

MOST_TICKS = 10_000_000
PRESENT = 900
"""Ticks before the first look: the rings of ten minutes are full then."""


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
    living = gc.get_objects()
    return {
        "rss": resident_bytes(),
        "threads": threading.active_count(),
        "descriptors": descriptors(),
        "tasks": len(asyncio.all_tasks()) if _has_loop() else 0,
        "screens": sum(isinstance(thing, Screen) for thing in living),
        "widgets": sum(isinstance(thing, Widget) and not isinstance(thing, Screen) for thing in living),
        "timers": sum(isinstance(thing, Timer) for thing in living),
        "apps": sum(isinstance(thing, App) for thing in living),
        "objects": len(living),
    }


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def main() -> int:
    report, pace_ms, look_ticks = sys.argv[1:]
    os.chdir(Path(report).parent)
    settings = Settings(hint=False)
    source = Hurried(Path(report), float(pace_ms) / 1000, int(look_ticks))
    return show(argparse.Namespace(), source, settings, screen_terminal(settings), access=ProcessControl)


if __name__ == "__main__":
    sys.exit(main())
