"""The steps: each a program that is run, bounded in time, and what of its output goes into the report."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

GPUTOP = (sys.executable, "-m", "gputop")
HELPER = (sys.executable, "-m", "gputop.sources.activity.counters.helper")
SOURCES = ("gpm", "dcgm-exporter", "dcgmi", "counters")
LONGEST = 6000


class Step(NamedTuple):
    """A title and what gives its text; whatever it raises becomes its text."""

    title: str
    run: Callable[[], str]


def said(words: Sequence[str], timeout_s: float = 120.0) -> str:
    """What a program prints, and how it ended. Raises RuntimeError where it is not here."""
    if shutil.which(words[0]) is None:
        raise RuntimeError(f"{words[0]} is not here")
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not done within {timeout_s:.0f} s") from None
    return f"{done.stdout}{done.stderr}"[-LONGEST:] + f"\n(exit {done.returncode})"


def prove(source: str) -> Step:
    return Step(f"prove by {source}", lambda: said([*GPUTOP, "prove", "--sm-source", source], 180.0))


def _first_sample(helper: subprocess.Popen[str], within_s: float = 20.0) -> dict[str, object]:
    """The first line that says whether the helper has the counters."""
    assert helper.stdout is not None
    deadline = time.monotonic() + within_s
    for line in helper.stdout:
        read = json.loads(line)
        if read["t"] in ("s", "bye") or (read["t"] == "gpu" and read["state"] != "ok"):
            return dict(read)
        if time.monotonic() > deadline:
            break
    return {"t": "nothing"}


def _helper() -> subprocess.Popen[str]:
    return subprocess.Popen(HELPER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def two_helpers() -> str:
    """The second one must be told that the counters are in use; killed, the first one must free them."""
    first, lines = _helper(), []
    try:
        lines.append(f"first helper: {_first_sample(first)}")
        second = _helper()
        lines.append(f"second beside it: {_first_sample(second)}")
        second.kill()
        second.wait()
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        third = _helper()
        lines.append(f"after kill -9 of the first: {_first_sample(third)}")
        third.kill()
        third.wait()
    finally:
        first.kill()
        first.wait()
    return "\n".join(lines)


def beside_a_helper(*words: str) -> Callable[[], str]:
    """A program before, and while a helper holds the counters: clocks, memory, GPM."""

    def run() -> str:
        before = said(words)
        helper = _helper()
        try:
            taken = _first_sample(helper)
            during = said(words)
        finally:
            helper.kill()
            helper.wait()
        return f"before:\n{before}\nwhile the helper says {taken}:\n{during}"

    return run


def steps() -> list[Step]:
    """In the order of their worth, so that a run that is cut short has shown the most."""
    smi = "nvidia-smi"
    return [
        Step("doctor", lambda: said([*GPUTOP, "doctor", "--json"])),
        Step("once", lambda: said([*GPUTOP, "once", "--json"])),
        *(prove(source) for source in SOURCES),
        Step("two helpers, and kill -9", two_helpers),
        Step("SM clock beside the counters", beside_a_helper(smi, "--query-gpu=clocks.sm,pstate", "--format=csv")),
        Step("memory beside the counters", beside_a_helper(smi, "--query-compute-apps=used_memory", "--format=csv")),
        Step("GPM beside the counters", beside_a_helper(*GPUTOP, "once", "--json", "--sm-source", "gpm")),
        Step("dmon", lambda: said([smi, "dmon", "--gpm-metrics", "2,3,5,10", "-c", "5"])),
        Step("cost", lambda: said([sys.executable, "-m", "tests.bench"], 240.0)),
    ]  # fmt: skip
