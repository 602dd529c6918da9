"""Runs the local source, the monitor and the painter while sources come and go: a JSON line a frame.

Arguments: LocalSource's own as JSON, and under ``limits`` the waits of the sources that a test has no time for. Ends
when stdin does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gputop.monitor import Monitor
from gputop.output.ansi import plain_text
from gputop.paint.main_screen import Painter
from gputop.paint.view import View
from gputop.sources.activity import dcgm_exporter, dcgmi, fallback_chain
from gputop.sources.local import LocalSource
from gputop.sources.selection import MachineOptions
from tests.dcgm.exporter import TEXTS, row
from tests.nvml.stand_in import Scenario, uuid_of
from tests.support.local_reader import with_sm

A100 = "NVIDIA A100-SXM4-80GB"
GPM, SCRAPED = 25.0, 60.0
"""The SM activity of each source, so that a value tells where it is from."""
LIMITS = {"PROBE_AGAIN_S": 1.0, "CLOSEST_S": 0.1, "LEAST_PATIENCE_S": 1.0, "FARTHEST_S": 0.3, "LONGEST_BACK_OFF_S": 0.2}
NOBODY = "http://127.0.0.1:1/metrics"


class Running:
    """A program that prints a line a frame."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self._program = program
        self.frames: list[dict[str, Any]] = []

    def until(self, source: str, sm: float | None) -> dict[str, Any]:
        """The first frame with a source and its value; at most 200 frames on."""
        assert self._program.stdout is not None
        for _ in range(200):
            self.frames.append(json.loads(self._program.stdout.readline()))
            last = self.frames[-1]
            if last["source"] == source and (last["sm"] is None) == (sm is None):
                assert sm is None or abs(last["sm"] - sm) < 0.5, last
                return last
        raise AssertionError([(frame["source"], frame["sm"], frame["reason"]) for frame in self.frames[-20:]])


@contextmanager
def running(scenario: Scenario, **options: Any) -> Iterator[Running]:
    scenario.write()
    environment = {**scenario.environment(), "PATH": f"{TEXTS}:{os.environ['PATH']}"}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.sources_reader", json.dumps({**options, "limits": LIMITS})],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        yield Running(program)
        assert program.stdin is not None
        program.stdin.close()
        assert program.stdout is not None
        program.stdout.read()
        assert program.wait(10.0) == 0


def sm_active(value: float) -> str:
    return row("PROF_SM_ACTIVE", value / 100.0, uuid_of(0))


def main() -> int:
    options = with_sm(json.loads(sys.argv[1]))
    for name, seconds in options.pop("limits", {}).items():
        for module in (fallback_chain, dcgm_exporter, dcgmi):
            if hasattr(module, name):
                setattr(module, name, seconds)
    source = LocalSource(MachineOptions(interval_s=0.25, **options))
    news, ended = threading.Event(), threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set(), news.set()), daemon=True).start()
    monitor, painter, view = Monitor(0.25), Painter(), View(span_s=60.0)
    source.start(news.set)
    while not ended.is_set():
        news.wait()
        news.clear()
        snapshot = source.poll()
        if snapshot is None:
            continue
        frame = monitor.feed(snapshot)
        screen = plain_text(painter.paint(frame, view, 160, 48).rows)
        gpu = snapshot.gpus[0]
        line = {
            "source": gpu.sm_source,
            "sm": gpu.sm_active_pct,
            "reason": gpu.sm_reason,
            "marks": [text for _, _, text in frame.history.marks],
            "marked": "│" in screen,
            "header": screen.splitlines()[0],
            "columns": [frame.history.columns(gpu.static.uuid, "sm_active_pct", w, 400) for w in (0.25, 1.0)],
        }
        print(json.dumps(line, allow_nan=False), flush=True)
    source.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
