"""The stand-in ``libcuda.so.1``, and its link to the stand-in NVML, which tells what such a GPU would."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.nvml.stand_in import Scenario

LIBRARY = "libcuda.so.1"
STALE_S = 0.3
"""Without a launch for so long nothing runs."""


def build(directory: Path) -> None:
    source = Path(__file__).parent / "libcuda.c"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", directory / LIBRARY, source],
        check=True,
    )


class Cuda:
    """What the stand-in answers; may change while a program runs."""

    def __init__(self, libraries: Path, folder: Path) -> None:
        self.libraries, self.path = libraries, folder / "cuda"
        self.write()

    def write(self, **words: object) -> None:
        self.path.write_text("".join(f"{word} {value}\n" for word, value in words.items()))

    def environment(self) -> dict[str, str]:
        return {"CUDA_STAND_IN": str(self.path)}

    def running(self) -> tuple[str, int]:
        """The kind and width of what runs now."""
        try:
            kind, blocks, at = Path(f"{self.path}.now").read_text().split()
        except (OSError, ValueError):
            return "idle", 0
        return (kind, int(blocks)) if time.monotonic() - float(at) < STALE_S else ("idle", 0)


class Gpu:
    """Makes the stand-in NVML say what a GPU would that runs what the stand-in CUDA launches."""

    def __init__(
        self, cuda: Cuda, scenario: Scenario, multiprocessors: int, says: Callable[[float], float]
    ) -> None:
        """``says`` makes the SM activity that is told of the true one, in percent."""
        self._cuda, self._scenario, self._n, self._says = cuda, scenario, multiprocessors, says
        self.seen: set[tuple[str, int]] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Gpu:
        self._now(("idle", 0))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _follow(self) -> None:
        before = ("idle", 0)
        while not self._ended.wait(0.01):
            running = self._cuda.running()
            if running != before:
                self._now(running)
                before = running

    def _now(self, running: tuple[str, int]) -> None:
        self.seen.add(running)
        kind, blocks = running
        true = {"idle": 0.0, "spin": 100.0 * blocks / self._n, "tiny": 1.6, "copy": 61.3}[kind]
        gpu = self._scenario.gpus[0]
        gpu.set(util=0 if kind == "idle" else 100)
        told = self._says(true)
        # Of a GPU that is split into instances the first one runs it.
        for counted in (gpu, *gpu.instances[:1]):
            if counted.gpm:
                counted.gpm[2] = told
        self._scenario.write()


def library_path(*folders: Path) -> str:
    return os.pathsep.join(map(str, folders))
