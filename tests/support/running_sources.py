"""A program whose sources change while it runs: it prints a line a frame."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.dcgm.exporter import TEXTS, row
from tests.nvml.stand_in import Scenario, uuid_of

A100 = "NVIDIA A100-SXM4-80GB"
GPM, SCRAPED, DMON = 25.0, 60.0, 37.5
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
