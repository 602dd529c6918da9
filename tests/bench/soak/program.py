"""The whole program in a terminal whose user never rests: screens opened and closed, resizes, the past and back."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.bench.soak.machine import Machine
from tests.bench.soak.measure import descriptors, resident_bytes, slope
from tests.bench.terminal import Terminal

SIZES = ((50, 160), (24, 80), (10, 40), (1, 1), (60, 220))
"""Rows and columns."""
ESCAPE, ENTER, TAB, DOWN, UP = "\x1b", "\r", "\t", "\x1b[B", "\x1b[A"
VISITS: tuple[tuple[str, ...], ...] = (
    ("?", DOWN, ESCAPE),
    ("D", "+", DOWN, "-", ESCAPE),
    (DOWN, ENTER, DOWN, "+", "-", ESCAPE),
    ("A", DOWN, ESCAPE),
    ("u", ESCAPE),
    ("C", ESCAPE),
    ("e", ESCAPE),
    ("d", ESCAPE),
    ("K", ESCAPE),
    ("f", "gpu:1", ENTER, ESCAPE),
    ("f", "mem>1G", ESCAPE),
    ("/", "train", ENTER),
    ("p", "n", "N", " ", ".", "p"),
    ("p", "D", ESCAPE, "p"),
    ("R", "]", "[", "R"),
    (TAB, DOWN, UP, TAB, "t", "c", "o", "c", "I", "+", "-"),
    ("\x10", ESCAPE),
)
"""What a user does one after the other; ctrl+p is the command palette. Never q, which also quits."""
START_S, KEY_S, ESCAPE_S, RESIZE_S = 1.5, 0.03, 0.15, 0.05
"""What follows an escape at once would be read as a key with alt."""
GAUGES = ("threads", "descriptors", "tasks", "screens", "widgets", "timers", "objects")


def used(cycles: int, pace_ms: float = 10.0, look_ticks: int = 200) -> dict[str, Any]:
    """So many rounds of all visits on snapshots at full speed; what lives in the program, early and late."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.jsonl")
        command = [sys.executable, "-m", "tests.bench.soak.viewer", str(report), str(pace_ms), str(look_ticks)]
        terminal = Terminal(command, environment(directory), *SIZES[0])
        try:
            terminal.drain(START_S)
            for cycle in range(cycles):
                _round(terminal, cycle, Path(directory))
        finally:
            terminal.close(3.0)
        rows = [json.loads(line) for line in report.read_text().splitlines()]
    return {
        "cycles": cycles,
        "keys": cycles * sum(map(len, VISITS)),
        "rss_bytes_a_tick": _late_slope(rows, "tick"),
        **_account(rows, GAUGES),
    }


def watched(cycles: int) -> dict[str, Any]:
    """``gputop --interval 0.25`` itself on stand-in GPUs that come and go, looked at from outside after each round."""
    rows = []
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        machine = stack.enter_context(Machine(Path(directory)))
        surroundings = {**machine.scenario.environment(), **environment(directory)}
        command = [sys.executable, "-m", "gputop", "--interval", "0.25"]
        terminal = Terminal(command, surroundings, *SIZES[0])
        try:
            terminal.drain(START_S)
            for cycle in range(cycles):
                _round(terminal, cycle, Path(directory), machine.change)
                rows.append(
                    {
                        "tick": cycle,
                        "rss": resident_bytes(terminal.screen_pid),
                        "threads": len(os.listdir(f"/proc/{terminal.screen_pid}/task")),
                        "descriptors": descriptors(terminal.screen_pid),
                    }
                )
        finally:
            terminal.close(3.0)
    return {
        "cycles": cycles,
        "rss_bytes_a_cycle": _late_slope(rows, "tick"),
        **_account(rows, ("threads", "descriptors")),
    }


def environment(directory: str) -> dict[str, str]:
    """A usual colour terminal and an empty home."""
    return {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "HOME": directory}


def _round(terminal: Terminal, cycle: int, directory: Path, change: Callable[[], None] = lambda: None) -> None:
    for visit in VISITS:
        for keys in visit:
            terminal.press(keys.encode())
            terminal.drain(ESCAPE_S if keys == ESCAPE else KEY_S)
        change()
    terminal.resize(*SIZES[cycle % len(SIZES)])
    terminal.drain(RESIZE_S)
    # What was shown is not kept, nor what was recorded: a soak writes gigabytes.
    terminal.chunks.clear()
    for recording in directory.glob("*.gputop.jsonl.gz"):
        recording.unlink()


def _account(rows: list[dict[str, int]], gauges: tuple[str, ...]) -> dict[str, Any]:
    """Of each gauge the least and most in the second and in the last quarter of the looks; memory over ticks."""
    if len(rows) < 4:
        raise RuntimeError(f"the program was looked at {len(rows)} times")
    second, last = (rows[i * len(rows) // 4 : (i + 1) * len(rows) // 4] for i in (1, 3))
    return {
        "ticks": rows[-1]["tick"],
        "looks": len(rows),
        "rss_mb": [round(rows[i * (len(rows) - 1) // 8]["rss"] / 1e6, 2) for i in range(9)],
        **{gauge: {"second_quarter": _range(second, gauge), "last_quarter": _range(last, gauge)} for gauge in gauges},
    }


def _late_slope(rows: list[dict[str, int]], unit: str) -> float:
    """Bytes a unit over the second half of the looks."""
    return round(slope([(row[unit], row["rss"]) for row in rows[len(rows) // 2 :]]), 2)


def _range(rows: list[dict[str, int]], gauge: str) -> list[int]:
    return [min(row[gauge] for row in rows), max(row[gauge] for row in rows)]
