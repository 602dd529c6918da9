"""The whole program in a terminal whose user never rests: screens opened and closed, resizes, the past and back."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.soak.measure import slope
from tests.bench.terminal import Terminal

SIZES = ((50, 160), (24, 80), (10, 40), (1, 1), (60, 220))
"""Rows and columns."""
ESCAPE, ENTER, TAB, DOWN, UP = "\x1b", "\r", "\t", "\x1b[B", "\x1b[A"
VISITS: tuple[tuple[str, ...], ...] = (
    ("?", DOWN, "q"),
    ("D", "+", DOWN, "-", ESCAPE),
    (DOWN, ENTER, DOWN, "+", "-", ESCAPE),
    ("A", DOWN, "q"),
    ("u", "q"),
    ("C", "q"),
    ("e", "q"),
    ("d", "q"),
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
"""What a user does one after the other; ctrl+p is the command palette."""
KEY_S, RESIZE_S = 0.03, 0.05
GAUGES = ("threads", "descriptors", "tasks", "screens", "widgets", "timers", "objects")


def used(cycles: int, pace_ms: float = 10.0, look_ticks: int = 200) -> dict[str, Any]:
    """So many rounds of all visits, each round with a resize; what lives in the program, early and late."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.jsonl")
        command = [sys.executable, "-m", "tests.bench.soak.viewer", str(report), str(pace_ms), str(look_ticks)]
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "HOME": directory}
        terminal = Terminal(command, environment, *SIZES[0])
        written = 0
        try:
            terminal.drain(1.5)
            for cycle in range(cycles):
                for visit in VISITS:
                    for keys in visit:
                        terminal.press(keys.encode())
                        terminal.drain(KEY_S)
                terminal.resize(*SIZES[cycle % len(SIZES)])
                terminal.drain(RESIZE_S)
                # What was shown is not kept: a soak writes gigabytes.
                written += terminal.bytes_written()
                terminal.chunks.clear()
                for picture in Path(directory).glob("*.gputop.jsonl.gz"):
                    picture.unlink()
        finally:
            terminal.close(3.0)
        rows = [json.loads(line) for line in report.read_text().splitlines()]
    return {
        "cycles": cycles,
        "keys": cycles * sum(map(len, VISITS)),
        "mb_written": round(written / 1e6, 1),
        **_account(rows),
    }


def _account(rows: list[dict[str, int]]) -> dict[str, Any]:
    """Of each gauge the least and most in the second and in the last quarter of the looks; memory over ticks."""
    second, last = (rows[i * len(rows) // 4 : (i + 1) * len(rows) // 4] for i in (1, 3))
    late = [(row["tick"], row["rss"]) for row in rows[len(rows) // 4 :]]
    return {
        "ticks": rows[-1]["tick"] if rows else 0,
        "looks": len(rows),
        "rss_mb": [round(rows[i * (len(rows) - 1) // 8]["rss"] / 1e6, 2) for i in range(9)] if rows else [],
        "rss_bytes_a_tick": round(slope(late), 2) if len(late) > 1 else None,
        **{gauge: {"second_quarter": _range(second, gauge), "last_quarter": _range(last, gauge)} for gauge in GAUGES},
    }


def _range(rows: list[dict[str, int]], gauge: str) -> list[int]:
    return [min(row[gauge] for row in rows), max(row[gauge] for row in rows)] if rows else []
