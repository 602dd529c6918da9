"""gputop without a screen, for so many seconds: the diagnosis of every GPU as JSON on stdout.

Run as ``python -m tests.e2e.watch SECONDS`` beside the jobs, as a person would run gputop: it knows nothing of them.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from gputop.monitor import Frame, Monitor
from gputop.sources.local import LocalSource


def watch(seconds: float) -> Frame:
    """The last frame after watching this machine for so long."""
    source, monitor, fresh, frame = LocalSource(), Monitor(), threading.Event(), None
    source.start(fresh.set)
    end = time.monotonic() + seconds
    try:
        while (left := end - time.monotonic()) > 0.0:
            fresh.wait(left)
            fresh.clear()
            snapshot = source.poll()
            if snapshot is not None:
                frame = monitor.feed(snapshot)
    finally:
        source.close()
    if frame is None:
        raise SystemExit("nothing was measured")
    return frame


def main(seconds: str) -> None:
    frame = watch(float(seconds))
    gpus = [
        {"verdict": d.verdict, "busy_not_working": d.busy_not_working, "evidence": d.evidence, "n": d.n}
        for d in frame.diagnoses
    ]
    processes = [
        {key: getattr(p, key) for key in ("gpu", "pid", "role", "main_run_pct", "main_wait_pct", "state", "waiting_on")}
        for p in frame.snapshot.processes
    ]
    json.dump({"gpus": gpus, "processes": processes}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
