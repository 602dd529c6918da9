"""A watch in programs that become many: forks, workers and ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cuda.stand_in import build as build_cuda
from tests.nvml.stand_in import Scenario
from tests.support.watching_programs import program_on, said

pytestmark = [pytest.mark.slow, pytest.mark.nvml]


@pytest.fixture
def program(nvml_scenario: Callable[..., Scenario], tmp_path: Path) -> Any:
    return program_on(nvml_scenario(gpus=2), tmp_path)


def test_five_hundred_forks_while_it_samples_never_hang_and_their_children_are_inert(
    program: Any,
) -> None:
    found = said(
        program(
            """
            import json, os, sys, time
            import gputop
            with gputop.watch(0.05, gpus="all") as w:
                while w.latest is None:
                    time.sleep(0.01)
                bad, first = 0, w.latest
                for i in range(500):
                    pid = os.fork()
                    if not pid:
                        w.step(); w.mark("x"); w.metrics(); w.summary(); w.stop()
                        ok = not w.available and "forked child" in w.reason
                        if i % 50 == 0:
                            with gputop.watch(0.05, gpus="all") as own:
                                ok = ok and own._watcher is not w._watcher
                            sys.exit(0 if ok else 1)
                        os._exit(0 if ok else 1)
                    bad += os.waitpid(pid, 0)[1] != 0
                went_on = w.latest is not first
            print(json.dumps([bad, went_on]))
            """,
            timeout=180.0,
        )
    )
    assert found == [0, True]


def test_a_child_forked_from_a_program_on_cuda_asks_no_driver_and_writes_nothing(
    program: Any, tmp_path: Path
) -> None:
    """CUDA does not survive a fork, and NVML's session is the parent's: whatever a loader's worker calls on its watch,
    and its end, must touch neither, nor the recording."""
    build_cuda(tmp_path)
    found = said(
        program(
            f"""
            import ctypes, json, os, sys, time
            import gputop
            assert ctypes.CDLL("{tmp_path}/libcuda.so.1").cuInit(0) == 0
            w = gputop.watch(600.0, gpus="all", record="run.gputop.jsonl").start()
            def state():
                with open("{program.scenario.counts_path}", "rb") as counts:
                    return counts.read(), os.path.getsize("run.gputop.jsonl") if w.latest else 0
            # The first two readings, then nothing for ten minutes.
            while w.latest is None or w.latest.snapshot.gpus[0].sm_active_pct is None:
                time.sleep(0.02)
            before, settled = None, state()
            while before != settled:
                time.sleep(0.5)
                before, settled = settled, state()
            pid = os.fork()
            if not pid:
                w.step(1); w.mark("x"); w.metrics(); str(w.summary()); w.stop()
                sys.exit(0)
            status = os.waitpid(pid, 0)[1]
            print(json.dumps([status, state() == settled, sum(settled[0]) > 0, w.available]))
            """,
            CUDA_STAND_IN=str(tmp_path / "cuda"),
        )
    )
    assert found == [0, True, True, True]
