"""``python -m tests.e2e --remedies [NAME…]``: steps a second of a job before and after what a remedy advises.

Each trial is a training loop, run twice in processes of its own: as it is, and with the change. A remedy whose trial
gains less than ``LEAST_GAIN`` is none.
"""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

from tests.e2e.loads import connect, endless, fed_by, receive
from tests.e2e.sources import SlowServer

FOR_S, LEAST_GAIN = 12.0, 1.2
STEP_S, BATCH = 0.02, 8
TURNS = 5_000_000
"""About a tenth of a second of one core."""
Batches = Iterator[Any]


class Remote:
    """Batches over the network, each of ``BATCH`` items that take a while to come."""

    def __init__(self, port: int, *, threads: bool = False) -> None:
        self._port, self._threads = port, threads
        self._connections: Any = threading.local()

    def __getstate__(self) -> tuple[int, bool]:
        return self._port, self._threads

    def __setstate__(self, state: tuple[int, bool]) -> None:
        self._port, self._threads = state
        self._connections = threading.local()

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> bytes:
        if not hasattr(self._connections, "one"):
            self._connections.one = connect(self._port)
        return receive(self._connections.one)

    def __getitems__(self, indices: list[int]) -> list[bytes]:
        if not self._threads:
            return [self[index] for index in indices]
        if not hasattr(self, "_pool"):
            self._pool = concurrent.futures.ThreadPoolExecutor(BATCH)
        return list(self._pool.map(self.__getitem__, indices))


class Computed:
    """Batches that take so many turns of a loop to compute."""

    def __init__(self, turns: int, length: int = 1_000_000) -> None:
        self._turns, self._length = turns, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        return sum(range(self._turns))


class Uneven:
    """Batches that wait for 50 ms, each eighth for a second."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> int:
        time.sleep(1.0 if index % 8 == 0 else 0.05)
        return index


def loader(dataset: object, *, epochs: bool = False, **options: Any) -> Batches:
    from torch.utils.data import DataLoader

    made: Any = DataLoader(dataset, collate_fn=list, **options)
    for _ in repeat(0) if epochs else range(1):
        yield from made


def _saved(folder: str, *, asynchronously: bool) -> Batches:
    """A file is written and synchronised in each step."""
    pool = concurrent.futures.ThreadPoolExecutor(1)
    data = os.urandom(16 << 20)
    saving: concurrent.futures.Future[None] | None = None

    def save() -> None:
        with open(f"{folder}/saved", "wb") as file:
            file.write(data)
            os.fsync(file.fileno())

    while True:
        if not asynchronously:
            save()
        elif saving is None or saving.done():
            saving = pool.submit(save)
        yield None


def _locked(changed: bool) -> Batches:
    """Two workers that hold one lock while they wait for 50 ms, and without it."""
    lock = multiprocessing.get_context("fork").Lock()

    def item() -> bytes:
        if changed:
            time.sleep(0.05)
        else:
            with lock:
                time.sleep(0.05)
        return b""

    return fed_by([lambda: endless(item)] * 2)


def _programs(at_once: int) -> Batches:
    """A program is run for each item, so many at once."""
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        run = [sys.executable, "-S", "-c", "import time; time.sleep(0.1)"]
        ahead = [pool.submit(subprocess.run, run) for _ in range(at_once)]
        while True:
            ahead.append(pool.submit(subprocess.run, run))
            yield ahead.pop(0).result()


def _on_cores(cores: set[int]) -> Batches:
    os.sched_setaffinity(0, cores)
    return loader(Computed(TURNS), num_workers=2, batch_size=1)


TRIALS: dict[str, Callable[[bool, int, str], Batches]] = {
    "network, num_workers 1 to 4": lambda changed, port, _: loader(
        Remote(port), num_workers=4 if changed else 1, batch_size=1
    ),
    "network, prefetch_factor 2 to 8": lambda changed, port, _: loader(
        Remote(port), num_workers=2, batch_size=1, prefetch_factor=8 if changed else 2
    ),
    "network, threads in __getitems__": lambda changed, port, _: loader(
        Remote(port, threads=changed), num_workers=2, batch_size=BATCH
    ),
    "network in the main thread, 2 workers": lambda changed, port, _: (
        loader(Remote(port), num_workers=2, batch_size=1) if changed else map(Remote(port).__getitem__, repeat(0))
    ),
    "CPU, num_workers 1 to 2": lambda changed, port, _: loader(
        Computed(TURNS), num_workers=1 + changed, batch_size=1
    ),
    "CPU in the main thread, 1 worker": lambda changed, port, _: loader(
        Computed(TURNS // 4), num_workers=int(changed), batch_size=1
    ),
    "CPU, one core to two": lambda changed, port, _: _on_cores(set(sorted(os.sched_getaffinity(0))[: 1 + changed])),
    "few slow batches, in_order=False": lambda changed, port, _: loader(
        Uneven(), num_workers=2, batch_size=1, in_order=not changed
    ),
    "short epochs, persistent_workers=True": lambda changed, port, _: loader(
        Computed(TURNS // 10, 8), epochs=True, num_workers=2, batch_size=1, persistent_workers=changed
    ),
    "fsync in each step, in a thread": lambda changed, port, folder: _saved(folder, asynchronously=changed),
    "one lock, none": lambda changed, port, _: _locked(changed),
    "a program for each item, two at once": lambda changed, port, _: _programs(1 + changed),
}  # fmt: skip


def steps_a_second(name: str, changed: bool, port: int) -> float:
    """How fast the job trains, its first two steps left out."""
    with tempfile.TemporaryDirectory(prefix="gputop-trial-") as folder:
        batches = TRIALS[name](changed, port, folder)
        begun, steps = 0.0, -2
        while steps < 0 or time.monotonic() < begun + FOR_S:
            next(batches)
            time.sleep(STEP_S)
            steps += 1
            begun = time.monotonic() if steps == 0 else begun
        return steps / (time.monotonic() - begun)


def run(names: list[str]) -> int:
    """Print each trial; 1 where one gained too little."""
    stop = threading.Event()
    server = SlowServer(stop)
    poor = 0
    for name in names or TRIALS:
        rates = []
        for changed in (False, True):
            command = [sys.executable, "-m", "tests.e2e.remedies", name, str(int(changed)), str(server.port)]
            # Workers outlive their loop: the whole session ends with its first line.
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as job:
                assert job.stdout is not None
                rates.append(float(job.stdout.readline()))
                os.killpg(job.pid, signal.SIGKILL)
        gain = rates[1] / rates[0]
        poor += gain < LEAST_GAIN
        print(f"{name}: {rates[0]:.2f} → {rates[1]:.2f} steps/s, {gain:.1f} ×{'' if gain >= LEAST_GAIN else ': none'}",
              flush=True)  # fmt: skip
    stop.set()
    server.close()
    return 1 if poor else 0


if __name__ == "__main__":
    print(steps_a_second(sys.argv[1], sys.argv[2] == "1", int(sys.argv[3])), flush=True)
    time.sleep(FOR_S)
