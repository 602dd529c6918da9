"""A watch inside real programs, on the stand-in driver: ends of every kind, and what it leaves alone."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gputop
from gputop.report.job_report import report_recording
from tests.nvml.stand_in import Process, Scenario
from tests.support.command import ran
from tests.support.pace import slowness
from tests.support.watching_programs import program_on, said, started

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


def test_without_a_driver_a_watch_says_so_at_once_and_loads_nothing_that_measures(program: Any) -> None:
    found = said(
        program(
            """
            import json, sys, time
            import gputop
            with gputop.watch(record="none.gputop.jsonl") as w:
                reason = w.reason
                loaded = [m for m in ("psutil", "pynvml") if m in sys.modules]
                for i in range(3):
                    time.sleep(0.01); w.step(i)
            print(json.dumps([reason, loaded, str(w.summary())]))
            """,
            LD_LIBRARY_PATH="/nowhere",
        )
    )
    # Known when start has returned, without a thread to wait for.
    assert found[0].startswith("no NVIDIA driver found") and found[1] == []
    # However long a crowded machine makes them, both steps are told.
    assert "no NVIDIA driver found" in found[2] and re.search(r"\): 2 of \d", found[2])


def test_a_program_ends_at_once_while_the_driver_hangs(program: Any) -> None:
    program.scenario.hang("nvmlDeviceGetUtilizationRates", 3600.0, after=2)
    program.scenario.write()
    done = program(
        """
        import atexit, threading, time
        begun = []
        import gputop
        w = gputop.watch(0.2, gpus="all").start()
        until = time.monotonic() + 30.0
        while w.latest is None and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(1.5)
        # Registered last, so called first: what follows is gputop's own end.
        atexit.register(lambda: begun.append(time.monotonic()))
        import gputop.api.watch as module
        atexit.unregister(module._ONE.end)
        def end():
            at, cpu = time.monotonic(), time.thread_time()
            # What was waited for, and not when a crowded machine gave this thread its turn again.
            waited = []
            thread = w._watcher._thread
            really = thread.join
            thread.join = lambda wait_s: (waited.append(wait_s), really(wait_s))
            module._ONE.end()
            print(time.monotonic() - at, time.thread_time() - cpu, sum(waited),
                  any(each.name == "gputop-nvml" for each in threading.enumerate()))
        atexit.register(end)
        """
    )
    assert done.returncode == 0, done.stderr
    spent, cpu, waited, hangs = done.stdout.split()
    # 0.2 s are allowed: it waits no longer than that, and does next to nothing itself. What a crowded machine adds to
    # the wall time, by giving the thread its turn later, is no part of it.
    assert hangs == "True", "the driver did hang"
    assert float(waited) <= 0.2 and float(cpu) < 0.05 * slowness()
    assert float(spent) < 10.0, "the driver hangs for an hour"


def test_a_killed_program_keeps_its_recording_but_for_a_frame(program: Any, tmp_path: Path) -> None:
    code = """
    import time
    import gputop
    w = gputop.watch(0.1, gpus="all", record="run.gputop.jsonl.gz", name="killed").start()
    for i in range(10**6):
        time.sleep(0.02); w.step(i)
        if w.latest is not None:
            print(w.latest.snapshot.t, flush=True)
    """
    process = started(program.scenario, tmp_path, code)
    assert process.stdout is not None
    seen: list[float] = []
    while len(seen) < 12:
        shown = float(process.stdout.readline())
        if shown not in seen:
            seen.append(shown)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    frames = list(gputop.load(tmp_path / "run.gputop.jsonl.gz"))
    assert len(frames) >= len(seen) - 1
    assert frames[-1].snapshot.t >= seen[-2] - 0.001, "one frame may be lost"
    assert any(frame.steps for frame in frames)


def test_mine_is_the_gpu_on_which_this_program_holds_a_context(program: Any, tmp_path: Path) -> None:
    code = """
    import os, sys, time
    import gputop
    with gputop.watch(0.2) as w:
        while not w.available:
            time.sleep(0.02)
        time.sleep(0.5)
        print(os.getpid(), w.latest is None, flush=True)
        while w.latest is None:
            time.sleep(0.02)
        print([g.static.index for g in w.latest.snapshot.gpus], flush=True)
    """
    process = started(program.scenario, tmp_path, code)
    try:
        assert process.stdout is not None
        pid, none_yet = process.stdout.readline().split()
        assert none_yet == "True", "all GPUs are read, and none is the job's yet"
        program.scenario.gpus[1].processes = [Process(int(pid), 1 << 30)]
        program.scenario.write()
        assert process.stdout.readline().strip() == "[1]"
    finally:
        process.kill()
        process.wait()


def test_every_announced_step_of_a_job_is_counted(program: Any, tmp_path: Path) -> None:
    done = program(
        """
        import subprocess, sys
        job = "import time, gputop\\nwith gputop.watch() as w:\\n for _ in range(80): time.sleep(0.1); w.step()"
        command = [sys.executable, "-m", "gputop", "run", "--report", "r.json", "--", sys.executable, "-c", job]
        sys.exit(subprocess.run(command).returncode)
        """
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (run,) = json.loads((tmp_path / "r.json").read_text())["steps"]
    assert run["steps"] + run["warm_up_steps"] == 79, "a step lasts from one end to the next"


def test_two_runs_that_record_themselves_at_once_are_each_compared_as_themselves(program: Any, tmp_path: Path) -> None:
    """Each recording holds the steps of both: the socket brings them to every listener."""
    both = """
        import subprocess, sys
        loop = "import sys, time, gputop\\nwith gputop.watch(0.25, gpus='all', record='runs', name='base') as w:\\n"
        loop += " for _ in range(int(sys.argv[2])): time.sleep(float(sys.argv[1])); w.step()\\n"
        loop += " print(w._watcher._measuring._recorder.path, flush=True)\\n"
        loop += " if len(sys.argv) > 3: import os; time.sleep(2); os.kill(os.getpid(), 9)\\n"
        given = (("0.05", "120"), ("0.09", "60", "killed"))
        started = [subprocess.Popen([sys.executable, "-c", loop, *each], stdout=subprocess.PIPE, text=True)
                   for each in given]
        print([each.communicate()[0].strip() for each in started])
        """
    done = program(both)
    assert done.returncode == 0, done.stderr[-3000:]
    fast, slow = ast.literal_eval(done.stdout)
    assert os.path.dirname(fast) == "runs"
    reports = [report_recording(str(tmp_path / path)) for path in (fast, slow)]
    assert [len(report.steps) for report in reports] == [2, 2], "each has heard the other"
    compared = [sys.executable, "-m", "gputop", "compare", fast, slow, "--json", "--fail-on"]
    for limit, status in (("slower:50", 1), ("slower:150", 0)):
        result = ran(tmp_path, *compared[1:], limit, environ=program.scenario.environment())
        assert result.returncode == status, result.stderr
    data = json.loads(result.stdout)
    assert 60.0 < data["slower_pct"] < 95.0 and data["runs"]["before"]["mean_s"] < 0.07
    result = ran(tmp_path, "-m", "gputop", "compare", slow, fast, "--fail-on", "slower:0",
                 environ=program.scenario.environment())  # fmt: skip
    assert result.returncode == 0 and result.stdout.startswith("faster: ")
