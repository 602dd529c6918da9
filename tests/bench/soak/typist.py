"""Somebody who types anything, fast, into the whole program, while its terminal changes its size."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.soak.program import DOWN, ENTER, ESCAPE, SIZES, START_S, TAB, UP, environment
from tests.bench.terminal import ProgramEnded, Terminal

KEYS = (
    *"?DAuCedf/pnN .,JgG][tcomI+-hjkvx1:UsR", ENTER, TAB, UP, DOWN, ESCAPE, ESCAPE, ESCAPE, "\x10", "\x7f", "gpu:1",
    "\x1b[5~", "\x1b[6~", "\x1b[H", "\x1b[F", "\x1b[C", "\x1b[D", "\x1bOQ", "\x1b[:u", "\xff",
)  # fmt: skip
"""All but what quits, suspends or sends a signal."""
PAUSES_S = (0.0, 0.005, 0.02, 0.1)
LONGEST_BURST, REMEMBERED = 5, 40
ROWS, COLUMNS = (1, 5, 24, 50, 90), (1, 10, 40, 80, 160, 250)


def typed(seconds: float, seed: int = 0) -> dict[str, Any]:
    """How many bursts the program survived; when it failed, the last of them and what it said.

    The command palette offers to quit: then the program is started again.
    """
    draw = random.Random(seed)
    bursts: list[str] = []
    until = time.monotonic() + seconds
    quits = 0
    failed = None
    while failed is None and time.monotonic() < until:
        try:
            _type(draw, bursts, until)
        except ProgramEnded as end:
            quits += 1
            failed = str(end)[-2000:] if "Traceback" in str(end) else None
    return {
        "seed": seed,
        "bursts": len(bursts),
        "quits": quits,
        "ended": failed,
        "last": bursts[-REMEMBERED:] if failed else [],
    }


def _type(draw: random.Random, bursts: list[str], until: float) -> None:
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "tests.bench.soak.viewer", str(Path(directory, "report.jsonl")), "10", "500"]
        terminal = Terminal(command, environment(directory), *SIZES[0])
        try:
            terminal.drain(START_S)
            while time.monotonic() < until:
                bursts.append("".join(draw.choice(KEYS) for _ in range(draw.randint(1, LONGEST_BURST))))
                terminal.press(bursts[-1].encode("latin-1"))
                terminal.drain(draw.choice(PAUSES_S))
                if draw.random() < 0.02:
                    terminal.resize(draw.choice(ROWS), draw.choice(COLUMNS))
                del terminal.chunks[:-200]
        finally:
            terminal.close(3.0)
