"""The program that reads the hardware counters: `python -m gputop.sources.activity.counters.helper`.

Prints JSON lines (``protocol``) and obeys those on stdin; the end of stdin ends it, and so does its parent's death. One
thread a GPU, so that a call that hangs costs one GPU. A crash of NVIDIA's libraries costs this process and no more.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import threading
from time import monotonic, process_time

from gputop.sources.activity.counters.abi import (
    DRIVER_NOT_LOADED,
    NvperfError,
)
from gputop.sources.activity.counters.courtesy import Others
from gputop.sources.activity.counters.libraries import NoLibraries, driver_major, find
from gputop.sources.activity.counters.metrics import host_library
from gputop.sources.activity.counters.protocol import (
    VERSION,
    Bye,
    Command,
    CostLine,
    Hello,
    HelloGpu,
    decode_command,
)
from gputop.sources.activity.counters.rights import PERFMON_DRIVER
from gputop.sources.activity.counters.sampler import places, target_library
from gputop.sources.activity.counters.worker import Worker, say
from gputop.sources.capabilities import PERFMON, SYS_ADMIN, keep_only

COURTESY_S = 2.0
LEFT_ALONE_S = 60.0
"""How long the counters are left alone after the tool that needed them has ended."""
COST_S = 10.0
END_S = 1.0
"""How long the end waits for sessions to be given back; the kernel takes back those that hang."""


class Helper:
    """All GPUs of the machine, the commands on stdin, and the check for others who need the counters."""

    def __init__(self, workers: dict[str, Worker], others: Others) -> None:
        self._workers, self._others = workers, others
        self._ended = threading.Event()
        self._free_at = float("-inf")
        self._barred: str | None = None

    def run(self) -> None:
        threading.Thread(target=self._listen, name="counters-stdin", daemon=True).start()
        for worker in self._workers.values():
            worker.start()
        cost_at, cpu_s = monotonic(), process_time()
        while True:
            self._be_polite(monotonic())
            if self._ended.wait(COURTESY_S):
                break
            now = monotonic()
            if now - cost_at >= COST_S:
                used = process_time()
                say(CostLine(VERSION, 100.0 * (used - cpu_s) / (now - cost_at), _resident()))
                cost_at, cpu_s = now, used
        for worker in self._workers.values():
            worker.end()
        deadline = monotonic() + END_S
        for worker in self._workers.values():
            worker.join(max(0.0, deadline - monotonic()))

    def _be_polite(self, now: float) -> None:
        why = self._others.who(now)
        if why is not None:
            self._free_at = now + LEFT_ALONE_S
            self._barred = why
        elif now < self._free_at:
            why = self._barred
        if self._others.slept() and why is None:
            # What was counted across a suspension covers an unknown time.
            self._bar("taken again after the suspension")
        self._bar(why)

    def _bar(self, why: str | None) -> None:
        for worker in self._workers.values():
            worker.bar(why)

    def _listen(self) -> None:
        while line := sys.stdin.buffer.readline(4096):
            command = decode_command(line)
            if command is not None:
                self._obey(command)
        self._ended.set()

    def _obey(self, command: Command) -> None:
        for pci, worker in self._workers.items():
            if command.pci not in ("", pci):
                continue
            if command.cmd == "interval":
                worker.interval_s = max(0.2, command.ms / 1000)
            else:
                worker.want(wanted=command.cmd == "resume")


def _resident() -> float:
    try:
        with open("/proc/self/statm", "rb") as file:
            return float(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError):
        return 0.0


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m gputop.sources.activity.counters.helper",
        description="Reads the GPUs' hardware counters and prints JSON lines until stdin ends.",
    )
    parser.add_argument("--lib", metavar="DIR", help="the folder of NVIDIA's performance libraries")
    parser.add_argument("--driver", metavar="VERSION", help="the driver's version, as nvidia-smi shows it")
    parser.add_argument("--interval-ms", type=int, default=1000, metavar="MS", help="time between samples")
    parser.add_argument("--wait", action="store_true", help="take no GPU before told to on stdin")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    args = _arguments(words)
    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        return 1
    os.nice(5)
    # CAP_SYS_ADMIN is kept only where no smaller capability is enough.
    old_driver = (driver_major(args.driver) or PERFMON_DRIVER) < PERFMON_DRIVER
    keep_only((PERFMON, SYS_ADMIN) if old_driver else (PERFMON,))
    try:
        directory = find(args.driver, args.lib)
        target = target_library(directory)
        workers = {place.pci: place for place in places(target)}
        host = host_library(directory)
    except NoLibraries as missing:
        return _fail(f"{missing.reason}; {missing.fix}")
    except NvperfError as error:
        # Without a driver the library only says "error" when asked to load one.
        lacking = error.status in (1, DRIVER_NOT_LOADED) and error.call == "NVPW_CUDA_LoadDriver"
        return _fail("NVIDIA's counter library finds no driver" if lacking else str(error))
    except (OSError, TypeError) as error:
        return _fail(f"NVIDIA's counter library cannot be loaded: {error}")
    interval_s = max(200, args.interval_ms) / 1000
    threads = {pci: Worker(host, target, place, interval_s) for pci, place in workers.items()}
    gpus = tuple(HelloGpu(place.pci, place.chip) for place in workers.values())
    say(Hello(VERSION, os.getpid(), os.path.basename(os.path.dirname(directory)), gpus))
    if not args.wait:
        for thread in threads.values():
            thread.want(wanted=True)
    Helper(threads, Others()).run()
    say(Bye(VERSION, "told to end"))
    # A thread that hangs in a call must not keep this process: the kernel frees what it holds.
    sys.stdout.flush()
    os._exit(0)


def _fail(why: str) -> int:
    say(Bye(VERSION, " ".join(why.split())[:400]))
    return 1


if __name__ == "__main__":
    sys.exit(main())
