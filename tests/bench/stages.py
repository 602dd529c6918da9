"""What each stage of a tick costs in CPU time, measured inside one process that does what the live screen does.

``python -m tests.bench.stages`` is started by ``stage_report`` with the stand-in library in its environment. It uses
the program's own parts as they are: the source with its threads, whose CPU clocks are read from outside, and the
screen's stages one after the other on the main thread. Textual is left out: what it takes is what remains of a real
run. Prints one JSON object: milliseconds of CPU a tick, means over all ticks.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import F_SETPIPE_SZ, fcntl

from gputop.commands.screen import first_view
from gputop.config import Settings
from gputop.diagnosis.engine import Diagnoser
from gputop.model.snapshot import Snapshot
from gputop.monitor import Monitor
from gputop.output.ansi import Differ
from gputop.paint.glyphs import choose
from gputop.paint.line import Row
from gputop.paint.main_screen import Painter
from gputop.paint.theme import THEMES
from gputop.recording.recent_past import Memory
from gputop.sources.host import HostCollector
from gputop.sources.local import LocalSource

WIDTH, HEIGHT = 160, 50
WARM_UP_TICKS = 3
PATIENCE_S = 10.0
PIPE_BYTES = 1 << 20
"""More than a screen can change at once."""
THREADS = {"gputop-nvml": "nvml", "gputop-proc": "proc", "gputop-schedule": "schedule", "gputop-looks": "looks"}
"""The source's threads and the stages that they are."""


class Meter:
    """Milliseconds of CPU by stage, added up."""

    def __init__(self) -> None:
        self.spent_ms: dict[str, float] = {}

    def add(self, stage: str, seconds: float) -> None:
        self.spent_ms[stage] = self.spent_ms.get(stage, 0.0) + 1000 * seconds

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """What the calling thread takes inside the block."""
        begin = time.thread_time()
        yield
        self.add(name, time.thread_time() - begin)


class Threads:
    """The CPU clocks of the source's threads, read from another thread."""

    def __init__(self) -> None:
        self._last = self._read()

    def _read(self) -> dict[str, float]:
        """Seconds by stage. A thread that took over from one that hung begins at its own zero."""
        return {
            THREADS[thread.name]: time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
            for thread in threading.enumerate()
            if thread.name in THREADS and thread.ident is not None
        }

    def charge(self, meter: Meter) -> None:
        """Add what each thread took since the last call."""
        last, self._last = self._last, self._read()
        for stage, seconds in self._last.items():
            meter.add(stage, seconds - last.get(stage, 0.0))


class Screen:
    """The live screen's work for one snapshot, without Textual, stage by stage."""

    def __init__(self, interval_s: float) -> None:
        settings = Settings()
        usual = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        terminal = choose(usual, "utf-8", theme=settings.theme, ascii_only=False, no_color=False)
        self._view = first_view(settings, terminal)
        self._monitor, self._diagnoser = Monitor(interval_s), Diagnoser(interval_s)
        self._memory, self._painter = Memory(), Painter()
        self._differ = Differ(THEMES[terminal.theme], terminal.depth)
        self._rows: list[Row] = []
        # A pipe stands for the terminal: nobody has to read it while it is written to.
        self._reader, self._writer = os.pipe()
        fcntl(self._writer, F_SETPIPE_SZ, PIPE_BYTES)
        self._even = False

    def show(self, snapshot: Snapshot, meter: Meter) -> None:
        """Everything from a snapshot to the terminal's new text."""
        self._even = not self._even
        # Whatever reads a snapshot first takes longer, so diagnosis alone and the whole feed take turns at it.
        if self._even:
            self._diagnose(snapshot, meter)
        with meter.stage("feed"):
            frame = self._monitor.feed(snapshot)
        if not self._even:
            self._diagnose(snapshot, meter)
        with meter.stage("remember"):
            self._memory.add(snapshot)
        with meter.stage("paint"):
            rows = self._painter.paint(frame, self._view, WIDTH, HEIGHT).rows
        with meter.stage("diff"):
            changes = self._differ.changes(self._rows or rows, rows)
        self._rows = rows
        with meter.stage("write"):
            written = os.write(self._writer, changes.encode()) if changes else 0
        if written:
            os.read(self._reader, written)

    def _diagnose(self, snapshot: Snapshot, meter: Meter) -> None:
        with meter.stage("diagnose"):
            self._diagnoser.observe(snapshot)
            self._diagnoser.findings()
            self._diagnoser.waste()


def profile(interval_s: float, ticks: int) -> dict[str, float]:
    """Mean milliseconds a tick by stage. ``host`` is a second reading of the host: that part of ``proc``.

    Raises SourceError when there is no driver, RuntimeError when no snapshot comes.
    """
    fresh, source, screen = threading.Event(), LocalSource(interval_s), Screen(interval_s)
    host, meter = HostCollector(), Meter()
    source.start(fresh.set)
    threads, seen = Threads(), 0
    try:
        while seen < WARM_UP_TICKS + ticks:
            if not fresh.wait(PATIENCE_S):
                raise RuntimeError(f"no snapshot for {PATIENCE_S:g} s")
            fresh.clear()
            snapshot = source.poll()
            if snapshot is None:
                continue
            if seen == WARM_UP_TICKS:
                meter = Meter()
            threads.charge(meter)
            screen.show(snapshot, meter)
            with meter.stage("host"):
                host.read(snapshot.t)
            seen += 1
    finally:
        source.close()
    return {stage: spent / ticks for stage, spent in meter.spent_ms.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.stages", description=__doc__)
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--ticks", type=int, default=12)
    options = parser.parse_args()
    print(json.dumps(profile(options.interval, options.ticks)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
