"""What a step may end in beside its text, and the programs that it runs: bounded in time, always ended."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

GPUTOP: tuple[str, ...] = (sys.executable, "-m", "gputop")
HELPER: tuple[str, ...] = (sys.executable, "-m", "gputop.sources.activity.counters.helper")
WORK: tuple[str, ...] = (sys.executable, "-m", "tests.hardware.gpu_work")
RED: tuple[str, ...] = (sys.executable, "-m", "tests.hardware.red_scenes")
LONGEST = 6000
CANNOT = 3
"""The exit status of gputop, and of the work here, where the machine cannot do what was asked."""


class Missing(Exception):
    """The machine lacks what the step needs: it is skipped, with this reason."""


class Wrong(Exception):
    """The step ran and showed what must not be."""


def output(
    words: Sequence[str],
    timeout_s: float = 120.0,
    right: Sequence[int] = (0,),
    *,
    merged: bool = False,
) -> str:
    """What a program prints to stdout, or to both streams where ``merged``. Raises Missing and Wrong.

    Whatever happens here, the program is gone afterwards, and so is what it has started.
    """
    if shutil.which(words[0]) is None:
        raise Missing(f"{words[0]} is not here")
    stderr = subprocess.STDOUT if merged else subprocess.PIPE
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True, errors="replace",
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise Wrong(f"not done within {timeout_s:.0f} s: {' '.join(words)}") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if (status := process.returncode) in right:
        return out
    text = f"{out}{err or ''}"[-LONGEST:] + f"\n(exit {status})"
    raise Missing(text) if status == CANNOT else Wrong(text)


@contextmanager
def helper(within: Sequence[str] = ()) -> Iterator[subprocess.Popen[bytes]]:
    """A helper that holds the hardware counters; ``within`` is a command that executes the one that follows it."""
    with subprocess.Popen(
        [*within, *HELPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def first_sample(process: subprocess.Popen[bytes], within_s: float = 20.0) -> dict[str, object]:
    """The first line that says whether a helper has the counters; ``t`` is ``nothing`` where there is none."""
    assert process.stdout is not None
    out, rest, deadline = process.stdout.fileno(), b"", time.monotonic() + within_s
    while select.select([out], [], [], max(0.0, deadline - time.monotonic()))[0]:
        piece = os.read(out, 65536)
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            try:
                read = json.loads(line)
            except ValueError:
                continue
            if read.get("t") in ("s", "bye") or (
                read.get("t") == "gpu" and read.get("state") != "ok"
            ):
                return dict(read)
        if not piece:
            break
    return {"t": "nothing"}


@contextmanager
def counters_held() -> Iterator[subprocess.Popen[bytes]]:
    """The counters in a helper's hands. Raises Missing where it does not get them."""
    with helper() as process:
        taken = first_sample(process)
        if taken["t"] != "s":
            raise Missing(f"the counters cannot be had: {taken.get('why', taken)}")
        yield process
