"""A watch inside real programs, on the stand-in driver: ends of every kind, and what it leaves alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.nvml.stand_in import Scenario
from tests.support.watching_programs import program_on, said

pytestmark = [pytest.mark.slow, pytest.mark.nvml]


@pytest.fixture
def program(nvml_scenario: Callable[..., Scenario], tmp_path: Path) -> Any:
    return program_on(nvml_scenario(gpus=2), tmp_path)


def test_a_watch_measures_and_touches_neither_cuda_nor_a_framework(program: Any) -> None:
    found = said(
        program(
            """
            import json, sys, time
            import gputop
            snapshot = gputop.snapshot()
            with gputop.watch(0.2, gpus="all") as w:
                until = time.monotonic() + 20
                while not (w.latest and w.latest.snapshot.gpus[0].sm_active_pct) and time.monotonic() < until:
                    time.sleep(0.02)
                means = w.metrics()
            maps = open("/proc/self/maps").read()
            print(json.dumps({
                "sm": [g.sm_active_pct for g in snapshot.gpus], "means": means, "cuda": "libcuda" in maps,
                "modules": [m for m in ("torch", "textual", "rich", "asyncio") if m in sys.modules],
                "threads": w.cost.seconds > 0, "own": w.latest.snapshot.own is None}))
            """
        )
    )
    assert found["sm"] == [25.0, 25.0]
    assert found["means"]["gputop/gpu1/util_pct"] == 90.0
    assert not found["cuda"] and found["modules"] == []
    assert found["own"], "the process is the training: its CPU time is not gputop's own cost"


def test_a_program_ends_at_once_while_the_driver_hangs(program: Any) -> None:
    program.scenario.hang("nvmlDeviceGetUtilizationRates", 3600.0, after=2)
    program.scenario.write()
    done = program(
        """
        import time
        import gputop
        w = gputop.watch(0.2, gpus="all").start()
        while w.latest is None:
            time.sleep(0.02)
        time.sleep(1.5)  # the third reading hangs by now
        print(time.monotonic(), flush=True)
        """
    )
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - float(done.stdout) < 10.0, "the driver hangs for an hour"
