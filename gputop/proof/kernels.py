"""The parent's side of the child that runs the kernels: starts it on one GPU, gives it stages, kills it if it hangs."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from time import monotonic
from typing import Any

import gputop
from gputop.model.text import clean_text
from gputop.proof.experiment import Stage
from gputop.sources.die_with_parent import dying_with_parent

READY_S = 60.0
"""How long CUDA may take to start: it compiles the kernels, and may have to wake the GPU first."""
SILENT_S = 5.0
END_S = 0.3


class KernelsFailed(Exception):
    """CUDA cannot run the kernels, or has stopped. One line of text."""


class Kernels:
    """One GPU's child process. ``close`` it, whatever happens."""

    def __init__(self, uuid: str) -> None:
        own = str(Path(gputop.__file__).parent.parent)
        path = [own, *(folder for folder in sys.path if os.path.isabs(folder) and folder not in (own, os.getcwd()))]
        code = f"import sys; sys.path[:] = {path!r}; from gputop.proof.child import main; sys.exit(main())"
        # By UUID: CUDA numbers GPUs in its own order.
        self._process = subprocess.Popen(
            dying_with_parent(sys.executable, ["-I", "-c", code]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
            start_new_session=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": uuid},
        )  # fmt: skip
        self._text = b""
        self._heard = monotonic()

    def ready(self) -> dict[str, Any]:
        """Wait for CUDA; how many multiprocessors there are, and its version. Raises KernelsFailed."""
        deadline = monotonic() + READY_S
        while monotonic() < deadline:
            for line in self._lines(0.2):
                if line.get("t") == "ready" and isinstance(line.get("multiprocessors"), int):
                    return line
        raise KernelsFailed(f"CUDA has not started within {READY_S:.0f} s")

    def begin(self, stage: Stage) -> None:
        """Run this from now on. Raises KernelsFailed."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"kind": stage.kind, "blocks": stage.blocks}).encode() + b"\n")
        except OSError:
            self.check()
            raise KernelsFailed("the program that runs the kernels has ended") from None
        self._heard = monotonic()

    def check(self) -> None:
        """Raises KernelsFailed when the kernels have failed or hang."""
        self._lines(0.0)
        if monotonic() - self._heard > SILENT_S:
            raise KernelsFailed(f"a kernel launch has not ended for {SILENT_S:.0f} s")

    def close(self) -> None:
        """End it, and what it does to the GPU with it."""
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def _lines(self, wait_s: float) -> list[dict[str, Any]]:
        assert self._process.stdout is not None
        out = self._process.stdout.fileno()
        found: list[dict[str, Any]] = []
        while select.select([out], [], [], wait_s if not found else 0.0)[0]:
            piece = os.read(out, 65536)
            *lines, self._text = (self._text + piece).split(b"\n")
            for line in lines:
                try:
                    said = json.loads(line)
                except ValueError:
                    continue
                if isinstance(said, dict):
                    found.append(said)
                    self._heard = monotonic()
                    if said.get("t") == "error":
                        raise KernelsFailed(clean_text(str(said.get("why")))[:300])
            if not piece:
                status = self._process.wait()
                how = f"signal {-status}" if status < 0 else f"status {status}"
                raise KernelsFailed(f"the program that runs the kernels has ended ({how})")
        return found
