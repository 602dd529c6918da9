"""A watch inside real programs, on the stand-in driver: forks, ranks, ends of every kind, and what it leaves alone."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gputop
from tests.cuda.stand_in import build as build_cuda
from tests.nvml.stand_in import Process, Scenario
from tests.support.pace import slowness

ROOT = Path(__file__).parent.parent
pytestmark = [pytest.mark.slow, pytest.mark.nvml]


@pytest.fixture
def program(nvml_scenario: Callable[..., Scenario], tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a program under the stand-in with two GPUs; its text is dedented."""
    scenario = nvml_scenario(gpus=2)
    scenario.write()

    def run(code: str, *, timeout: float = 90.0, launcher: tuple[str, ...] = (), **environment: str) -> Any:
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(code))
        return subprocess.run(
            [*(launcher or (sys.executable,)), str(path)],
            cwd=tmp_path,
            env={**scenario.environment(), "PYTHONPATH": str(ROOT), **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    run.scenario = scenario  # type: ignore[attr-defined]
    return run


def started(scenario: Scenario, folder: Path, code: str) -> subprocess.Popen[str]:
    """A program under the stand-in that goes on running; its stdout is a pipe."""
    (folder / "program.py").write_text(textwrap.dedent(code))
    return subprocess.Popen(
        [sys.executable, "program.py"],
        cwd=folder,
        env={**scenario.environment(), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def said(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


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
                loaded = [m for m in ("psutil", "pynvml", "gputop.monitor", "gputop.report.job_report")
                          if m in sys.modules]
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


def test_five_hundred_forks_while_it_samples_never_hang_and_their_children_are_inert(program: Any) -> None:
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


def test_a_child_forked_from_a_program_on_cuda_asks_no_driver_and_writes_nothing(program: Any, tmp_path: Path) -> None:
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


def test_children_of_multiprocessing_are_not_watched(program: Any) -> None:
    found = said(
        program(
            """
            import json, multiprocessing
            import gputop
            def child(queue):
                with gputop.watch(gpus="all") as w:
                    w.step()
                    queue.put([w.available, w.reason])
            if __name__ == "__main__":
                context = multiprocessing.get_context("spawn")
                queue = context.Queue()
                process = context.Process(target=child, args=(queue,))
                process.start()
                print(json.dumps(queue.get(timeout=60)))
                process.join()
            """
        )
    )
    assert found[0] is False and "multiprocessing" in found[1]


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


@pytest.mark.torch
def test_four_ranks_under_torchrun_have_one_sampler_and_all_their_steps(program: Any) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    done = program(
        """
        import json, os, time
        import torch, torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        import gputop
        dist.init_process_group("gloo")
        model = DistributedDataParallel(torch.nn.Linear(8, 8))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        rank = dist.get_rank()
        with gputop.watch(0.5, gpus="all", name="four") as w:
            until, steps = time.monotonic() + 60, 0
            while True:
                optimizer.zero_grad(); model(torch.randn(4, 8)).sum().backward(); optimizer.step()
                time.sleep(0.02)
                steps += 1
                heard = {p.rank for p in w.latest.steps} if w.latest is not None else set()
                # All ranks must agree on the last step, or the others wait for ever: not gputop's doing.
                stop = torch.tensor([float(steps > 50 and len(heard) == 4 or time.monotonic() > until)])
                dist.all_reduce(stop, op=dist.ReduceOp.MAX)
                if stop.item():
                    break
        frame = w.latest
        told = [rank, w.available, w.reason, w.summary().steps.count,
                sorted({p.rank for p in frame.steps}) if frame else None]
        # In one write: four ranks share the pipe.
        os.write(1, f"RANK {json.dumps(told)}{os.linesep}".encode())
        dist.destroy_process_group()
        """,
        launcher=(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"),
        timeout=150.0,
        OMP_NUM_THREADS="1",
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = {row[0]: row for row in (json.loads(line[5:]) for line in done.stdout.splitlines() if line[:4] == "RANK")}
    assert [rows[rank][1] for rank in range(4)] == [True, False, False, False]
    assert "local rank 0 samples" in rows[3][2]
    assert len({row[3] for row in rows.values()}) == 1 and rows[0][3] > 5
    assert rows[0][4] == [0, 1, 2, 3], "the sampler hears every rank, without a collective call of its own"


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
