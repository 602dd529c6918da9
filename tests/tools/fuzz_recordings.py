"""Spoils recordings by a seed and lets commands read them.

``python -m tests.tools.fuzz_recordings 0 3000`` tries so many seeds in one process, and prints each case that ends in
anything but an answer or one clear line.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gputop.cli import main
from tests.support.recording_frames import frame, lines_of
from tests.support.spoiled import spoil

GOOD_ENDS = (0, 1, 2)
SLOW_S = 3.0
"""CPU time of one command above which a case is reported."""
FRAMES = 12
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 10**30, -(10**30), 1e308, -1e308, 1e-308, 2**63, 2**64, 0.1, "", "0", "NaN",
    "x" * 5000, "\x1b[2J", "\u202e", "\ud800", [], [[]], {}, {"k": "frame"}, [1, "a", None], [0] * 300,
)  # fmt: skip
HUGE_TOKENS = (b"1e999", b"-1e999", b"NaN", b"Infinity", b"9" * 6000, b"[" * 3000, b"1e-999")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("diagnose", "FILE"),
    ("diagnose", "FILE", "--json"),
    ("report", "FILE"),
    ("dump", "FILE"),
    ("screenshot", "FILE", "-o", "FILE.svg"),
    ("compare", "FILE", "FILE"),
)
"""``screenshot`` opens and judges a recording as ``replay`` does."""
Change = Callable[[list[bytes], random.Random], bytes]


@cache
def _sound_lines() -> tuple[bytes, ...]:
    """The lines of a sound recording: two GPUs, three processes, in one part."""
    return tuple(line for k in range(FRAMES) for line in lines_of(frame(k)))


def _values(lines: list[bytes], draw: random.Random) -> bytes:
    """Values of another type or size, anywhere in sound lines."""
    for _ in range(draw.randrange(1, 6)):
        at = draw.randrange(len(lines))
        data = json.loads(lines[at])
        spoil(data, draw, ODD_VALUES)
        lines[at] = json.dumps(data).encode() + b"\n"
    return b"".join(lines)


def _tokens(lines: list[bytes], draw: random.Random) -> bytes:
    """Numbers that no float or int can hold, in the text."""
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(lines))
        numbers = list(re.finditer(rb"-?\d+(?:\.\d+)?", lines[at]))
        if numbers:
            found = draw.choice(numbers)
            token = draw.choice(HUGE_TOKENS)
            lines[at] = lines[at][: found.start()] + token + lines[at][found.end() :]
    return b"".join(lines)


def _twice(lines: list[bytes], draw: random.Random) -> bytes:
    """A key that stands twice in an object, with another value."""
    for _ in range(draw.randrange(1, 6)):
        at = draw.randrange(len(lines))
        data = json.loads(lines[at])
        key = draw.choice(list(data))
        again = json.dumps({key: draw.choice(ODD_VALUES)})[1:-1].encode()
        lines[at] = lines[at].rstrip(b"\n")[:-1] + b", " + again + b"}\n"
    return b"".join(lines)


def _times(lines: list[bytes], draw: random.Random) -> bytes:
    """Times that fall, jump or stand still."""
    for _ in range(draw.randrange(1, 8)):
        at = draw.randrange(len(lines))
        data = json.loads(lines[at])
        if "t" in data:
            odd = (
                0,
                -1,
                1,
                1e-9,
                1e12,
                253402300799,
                1e15,
                data["t"] - 10,
                data["t"] + 86400 * 400,
            )
            data["t"] = draw.choice(odd)
            lines[at] = json.dumps(data).encode() + b"\n"
    return b"".join(lines)


def _order(lines: list[bytes], draw: random.Random) -> bytes:
    """Lines in another order, missing or repeated."""
    for _ in range(draw.randrange(1, 12)):
        line = lines.pop(draw.randrange(len(lines)))
        for _ in range(draw.randrange(3)):
            lines.insert(draw.randrange(len(lines) + 1), line)
    return b"".join(lines)


def _flips(lines: list[bytes], draw: random.Random) -> bytes:
    """Bytes that flipped."""
    data = bytearray(b"".join(lines))
    for _ in range(draw.randrange(1, 30)):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


def _cut(lines: list[bytes], draw: random.Random) -> bytes:
    """A file that ends early, or begins late."""
    data = b"".join(lines)
    place = draw.randrange(len(data))
    return data[:place] if draw.random() < 0.7 else data[place:]


CHANGES: tuple[Change, ...] = (_values, _tokens, _twice, _times, _order, _flips, _cut)


def spoiled_recording(seed: int) -> bytes:
    """A recording that is spoiled in one or two ways, as this seed says."""
    draw = random.Random(seed)
    data = CHANGES[seed % len(CHANGES)](list(_sound_lines()), draw)
    way = draw.random()
    if way < 0.2:
        return gzip.compress(data, 1)
    if way < 0.35:
        packed = gzip.compress(data, 1)
        return _flips([packed], draw) if way < 0.3 else _cut([packed], draw)
    return data


def fault_of(path: str, command: tuple[str, ...]) -> str:
    """What is wrong with how a command ends on a file; empty if nothing is."""
    told, said = io.StringIO(), io.StringIO()
    begun = time.process_time()
    with redirect_stdout(told), redirect_stderr(said):
        try:
            end = main([word.replace("FILE", path) for word in command])
        except SystemExit as error:
            end = int(error.code or 0)
    spent_s = time.process_time() - begun
    words = said.getvalue()
    if end not in GOOD_ENDS:
        return f"exit {end}: {words.strip()[-300:]}"
    if "Traceback" in words or "internal error" in words:
        return words.strip()[-300:]
    if end == 2 and len(set(words.splitlines())) != 1:
        return f"{words.count(chr(10))} lines: {words.strip()[-300:]}"
    if "\x1b" in words + told.getvalue():
        return "a control character reaches the terminal"
    return f"{spent_s:.1f} s" if spent_s > SLOW_S else ""


def faults(seeds: range, folder: Path) -> list[str]:
    """The cases among these seeds that end badly, in words."""
    found: list[str] = []
    for seed in seeds:
        path = folder / f"{seed}.gputop.jsonl"
        path.write_bytes(spoiled_recording(seed))
        command = COMMANDS[seed // len(CHANGES) % len(COMMANDS)]
        fault = fault_of(str(path), command)
        if fault:
            found.append(f"seed {seed}, {' '.join(command)}: {fault}")
        for left in folder.glob(f"{seed}.*"):
            left.unlink()
    return found


if __name__ == "__main__":
    with TemporaryDirectory() as made:
        bad = faults(range(int(sys.argv[1]), int(sys.argv[2])), Path(made))
    print("\n".join(bad) or "no fault")
    sys.exit(bool(bad))
