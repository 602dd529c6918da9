"""A job that hangs while somebody else's program computes on the same machine: it is said to hang, and nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import endless, fed_by

CASE = Case(
    ("idle",),
    ("stopped",),
    says=("stopped by a signal",),
    cores=1.2,
    changes=1,
    watch_s=60.0,
    never=("cpu", "queued", "lock", "disk", "network", "fetch"),
)
OTHER = """
import os, sys
if os.fork():
    os._exit(0)
os.setsid()
if os.geteuid() == 0:
    os.setuid(65534)
while os.path.exists("/proc/" + sys.argv[1]):
    for _ in range(1000):
        sum(range(200))
"""
"""Nobody's child, and it ends with the job."""


def main(gpu: Gpu) -> None:
    subprocess.run([sys.executable, "-c", OTHER, str(os.getpid())], check=True)

    def stop() -> None:
        time.sleep(12.0)
        os.kill(os.getpid(), signal.SIGSTOP)

    ready = fed_by([lambda: endless(lambda: b"")] * 2)
    threading.Thread(target=stop, daemon=True).start()
    gpu.train(ready, 0.3)
