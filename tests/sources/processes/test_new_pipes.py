"""A process that starts one child after the other waits for the one that lives, however its pipes change."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from gputop.sources.processes.process_sockets import HeldInodesCache, OtherEnds
from gputop.sources.processes.wait_graph import Job, WaitGraph
from gputop.sources.processes.wait_look import WaitLook

WORKER = """
import subprocess, sys
for _ in range(2):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    print(child.pid, flush=True)
    sys.stdin.readline()
    child.stdin.write(b"x\\n"); child.stdin.close(); child.wait()
child = subprocess.Popen([sys.executable, "-c", "while True: pass"], stdout=subprocess.PIPE)
print(child.pid, flush=True)
child.stdout.read()
"""


def test_a_pipe_that_is_remembered_does_not_hide_the_child_behind_a_new_one() -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert worker.stdin is not None and worker.stdout is not None
    try:
        for _ in range(2):
            worker.stdout.readline()
            worker.stdin.write(b"\n")
            worker.stdin.flush()
        child = int(worker.stdout.readline())
        folder, look = f"/proc/{worker.pid}", WaitLook("/proc")
        deadline = time.monotonic() + 60.0
        while "pipe" not in Path(folder, "wchan").read_text() and time.monotonic() < deadline:
            time.sleep(0.02)
        channel = Path(folder, "wchan").read_text()
        fresh = look.at(0.0, worker.pid, folder, channel)
        cache, me = HeldInodesCache("/proc"), os.getpid()
        graph = WaitGraph("/proc", look, cache, OtherEnds())
        cache.begin()
        seen = graph.look(0.1, worker.pid, fresh, Job((me,), root=me), ()).instead
        assert seen is not None and (seen.pid, seen.wait, seen.by) == (child, "run", "child")
    finally:
        subprocess.run(["kill", "-9", "--", f"-{worker.pid}"], check=False)
        worker.wait()
