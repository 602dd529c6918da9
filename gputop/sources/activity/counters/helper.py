"""Reads hardware counters: `python -m gputop.sources.activity.counters.helper`.

Writes lines (``helper_protocol``) and obeys those on stdin (``system/dialogue.py``). One thread per GPU, so that a
hanging call costs one GPU. A crash of NVIDIA's libraries ends this process alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from time import monotonic

from gputop.sources.activity.counters.abi import DRIVER_NOT_LOADED, ERROR, NvperfError
from gputop.sources.activity.counters.access import PERFMON_DRIVER
from gputop.sources.activity.counters.counter_libraries import NoLibraries, driver_major, find
from gputop.sources.activity.counters.counter_plan import host_library
from gputop.sources.activity.counters.counter_thread import ENDING, RELEASED, CounterThread
from gputop.sources.activity.counters.helper_protocol import Bye, CostLine, Hello, HelperCommand
from gputop.sources.activity.counters.other_profilers import Others
from gputop.sources.activity.counters.sampler import places, target_library
from gputop.sources.capabilities import PERFMON, SYS_ADMIN, keep_only
from gputop.sources.own_process import OwnCostMeter
from gputop.system.dialogue import read_messages, say

COURTESY_S = 2.0
LEFT_ALONE_S = 60.0
"""How long the counters are left alone after the tool that needed them has ended."""
COST_S = 10.0
END_S = 1.0
"""How long the end waits for sessions to be given back; the kernel takes back those that hang."""


class Helper:
    """Handles all GPUs, commands on stdin, and others' need of counters."""

    def __init__(self, workers: dict[str, CounterThread], others: Others) -> None:
        self._workers, self._others = workers, others
        self._wanted = set[str]()
        self._ended = threading.Event()
        self._free_at = float("-inf")
        self._barred: str | None = None

    def run(self) -> None:
        for worker in self._workers.values():
            worker.start()
        threading.Thread(target=self._listen, name="counters-stdin", daemon=True).start()
        cost_at, meter = monotonic(), OwnCostMeter()
        meter.read()
        while True:
            self.be_polite(monotonic())
            if self._ended.wait(COURTESY_S):
                break
            now = monotonic()
            if now - cost_at >= COST_S:
                cost_at, cost = now, meter.read()
                say(CostLine(cost.cpu_pct or 0.0, cost.rss_bytes or 0.0))
        for worker in self._workers.values():
            worker.leave(ENDING)
        deadline = monotonic() + END_S
        for worker in self._workers.values():
            worker.join(max(0.0, deadline - monotonic()))

    def be_polite(self, now: float) -> None:
        """Leave the counters to others, and take them again afterwards."""
        why = self._others.reason_to_wait(now)
        if why is not None:
            self._free_at, self._barred = now + LEFT_ALONE_S, why
        elif now >= self._free_at:
            self._barred = None
        self._tell()

    def _tell(self) -> None:
        for pci, worker in self._workers.items():
            worker.leave(self._barred if pci in self._wanted else RELEASED)

    def _listen(self) -> None:
        for command in read_messages(HelperCommand):
            self._wanted = (
                self._wanted | {command.pci}
                if command.cmd == "resume"
                else self._wanted - {command.pci}
            )
            self._tell()
        self._ended.set()


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m gputop.sources.activity.counters.helper",
        description="Reads the GPUs' hardware counters and prints JSON lines until stdin ends.",
    )
    parser.add_argument("--lib", metavar="DIR", help="the folder of NVIDIA's performance libraries")
    parser.add_argument(
        "--driver", metavar="VERSION", help="the driver's version, as nvidia-smi shows it"
    )
    parser.add_argument(
        "--interval-ms", type=int, default=1000, metavar="MS", help="time between samples"
    )
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    args = _arguments(words)
    os.nice(5)
    # CAP_SYS_ADMIN is kept only where no smaller capability is enough.
    old_driver = (driver_major(args.driver) or PERFMON_DRIVER) < PERFMON_DRIVER
    keep_only((PERFMON, SYS_ADMIN) if old_driver else (PERFMON,))
    try:
        directory = find(args.driver, args.lib)
        target = target_library(directory)
        gpus = places(target)
        host = host_library(directory)
    except NoLibraries as missing:
        return _fail(f"{missing.reason}; {missing.fix}")
    except NvperfError as error:
        # Without a driver the library only says "error" when asked to load one.
        lacking = (
            error.status in (ERROR, DRIVER_NOT_LOADED) and error.call == "NVPW_CUDA_LoadDriver"
        )
        return _fail("NVIDIA's counter library finds no driver" if lacking else str(error))
    except OSError as error:
        return _fail(f"NVIDIA's counter library cannot be loaded: {error}")
    interval_s = max(200, args.interval_ms) / 1000
    threads = {gpu.pci: CounterThread(host, target, gpu, interval_s) for gpu in gpus}
    say(Hello(tuple(threads)))
    Helper(threads, Others()).run()
    say(Bye("told to end"))
    # A thread that hangs in a call must not keep this process: the kernel frees what it holds.
    sys.stdout.flush()
    os._exit(0)


def _fail(why: str) -> int:
    say(Bye(" ".join(why.split())[:400]))
    return 1


if __name__ == "__main__":
    sys.exit(main())
