"""Run as a script: becomes the root of a real process tree, writes ``ready`` to stdout and lives until killed.

``tree.py METHOD COUNT ACTION``: multiprocessing workers. METHOD is fork, spawn or forkserver; ACTION is
burn, queue or crowd (all on one core).
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from typing import Any


def burn() -> None:
    while True:
        sum(range(10000))


def work(action: str, inbox: Any, born: Any) -> None:
    if action == "crowd":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    born.release()
    if action in ("burn", "crowd"):
        burn()
    inbox.get(timeout=600)


def workers(method: str, count: int, action: str) -> None:
    context: Any = multiprocessing.get_context(method)
    inboxes = [context.Queue() for _ in range(count)]
    born = context.Semaphore(0)
    started = [
        context.Process(target=work, args=(action, inbox, born), daemon=True) for inbox in inboxes
    ]
    for worker in started:
        worker.start()
    for _ in started:
        born.acquire()


def main(arguments: list[str]) -> None:
    workers(arguments[0], int(arguments[1]), arguments[2])
    print("ready", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1:])
