"""What a step may end in beside its text, and the programs that it runs: bounded in time, always ended."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

GPUTOP: tuple[str, ...] = (sys.executable, "-m", "gputop")
HELPER: tuple[str, ...] = (sys.executable, "-m", "gputop.sources.activity.counters.helper")
WORK: tuple[str, ...] = (sys.executable, "-m", "tests.hardware.gpu_work")
LONGEST = 6000
CANNOT = 3
"""The exit status of gputop, and of the work here, where the machine cannot do what was asked."""


class Missing(Exception):
    """The machine lacks what the step needs: it is skipped, with this reason."""


class Wrong(Exception):
    """The step ran and showed what must not be."""


def said(words: Sequence[str], timeout_s: float = 120.0, right: Sequence[int] = (0,)) -> str:
    """What a program prints, and how it ended. Raises Missing and Wrong."""
    if shutil.which(words[0]) is None:
        raise Missing(f"{words[0]} is not here")
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise Wrong(f"not done within {timeout_s:.0f} s") from None
    text = f"{done.stdout}{done.stderr}"[-LONGEST:] + f"\n(exit {done.returncode})"
    if done.returncode == CANNOT and CANNOT not in right:
        raise Missing(text)
    if done.returncode not in right:
        raise Wrong(text)
    return text


def printed(words: Sequence[str], timeout_s: float = 120.0) -> str:
    """The same without how it ended: what other programs read."""
    return said(words, timeout_s).rpartition("\n(exit ")[0]


@contextmanager
def helper(within: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """A helper that holds the hardware counters; ``within`` is a command that executes the one that follows it."""
    with subprocess.Popen(
        [*within, *HELPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def first_sample(process: subprocess.Popen[str], within_s: float = 20.0) -> dict[str, object]:
    """The first line that says whether a helper has the counters; ``t`` is ``nothing`` where there is none."""
    assert process.stdout is not None
    deadline = time.monotonic() + within_s
    for line in process.stdout:
        try:
            read = json.loads(line)
        except ValueError:
            continue
        if read["t"] in ("s", "bye") or (read["t"] == "gpu" and read["state"] != "ok"):
            return dict(read)
        if time.monotonic() > deadline:
            break
    return {"t": "nothing"}


@contextmanager
def counters_held() -> Iterator[subprocess.Popen[str]]:
    """The counters in a helper's hands. Raises Missing where it does not get them."""
    with helper() as process:
        taken = first_sample(process)
        if taken["t"] != "s":
            raise Missing(f"the counters cannot be had: {taken.get('why', taken)}")
        yield process
