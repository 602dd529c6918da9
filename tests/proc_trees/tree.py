"""Run as a script: becomes the root of a real process tree, writes ``ready`` to stdout and lives until killed.

``tree.py METHOD COUNT ACTION``: multiprocessing workers. METHOD is fork, spawn or forkserver; ACTION is
burn, queue or crowd (all on one core).
``tree.py orphan``: a worker whose parent dies.
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


def name_thread(name: str) -> None:
    with open("/proc/thread-self/comm", "w") as file:
        file.write(name)


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
    started = [context.Process(target=work, args=(action, inbox, born), daemon=True) for inbox in inboxes]
    for worker in started:
        worker.start()
    for _ in started:
        born.acquire()


def main(arguments: list[str]) -> None:
    kind = arguments[0]
    if kind == "orphan":
        named, name = os.pipe()
        if os.fork() == 0:
            name_thread("pt_data_worker")
            os.write(name, b"1")
            time.sleep(600)
        os.read(named, 1)
    else:
        workers(kind, int(arguments[1]), arguments[2])
    print("ready", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1:])
