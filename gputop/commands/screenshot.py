"""A picture of the screen without a terminal: SVG, plain text, or text with colours."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path

from gputop.commands.demo import PAST_S
from gputop.config import Settings
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import ansi_text, plain_text
from gputop.output.svg import svg
from gputop.paint.glyphs import ASCII, COLOUR
from gputop.paint.main_screen import main_screen
from gputop.paint.theme import THEMES
from gputop.paint.view import View
from gputop.sources.base import UsageError

STARTED = 1_780_000_000.0
"""A fixed moment, so that a picture of the demo is the same whenever it is made."""
LARGEST = (400, 200)


def run(args: argparse.Namespace, settings: Settings) -> int:
    path = Path(args.output)
    if path.suffix not in (".svg", ".txt", ".ans"):
        raise UsageError(f"cannot make a {path.suffix or 'file without suffix'}: name a .svg, .txt or .ans file")
    width, height = _size(args.size)
    frame = _demo_frame(args.scenario) if args.source == "demo" else _no_recording(args.source)
    view = View(glyphs=ASCII if settings.ascii else COLOUR, span_s=settings.span, demo=True)
    if args.gpu is not None:
        view = replace(view, gpu=_uuid(frame, args.gpu))
    rows = main_screen(frame, view, width, height).rows
    theme = THEMES["dark" if settings.theme == "auto" else settings.theme]
    if path.suffix == ".svg":
        text = svg(rows, theme, f"gputop on {frame.snapshot.machine.hostname}")
    elif path.suffix == ".ans":
        text = ansi_text(rows, theme) + "\n"
    else:
        text = plain_text(rows)
    path.write_text(text, encoding="utf-8")
    return 0


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,4})x(\d{1,4})", text)
    width, height = (int(match[1]), int(match[2])) if match else (0, 0)
    if not (20 <= width <= LARGEST[0] and 5 <= height <= LARGEST[1]):
        raise UsageError(f"--size must be columns x rows from 20x5 to {LARGEST[0]}x{LARGEST[1]}, not {text!r}")
    return width, height


def _demo_frame(scenario: str | None) -> Frame:
    from gputop.sources.simulated import SimulatedSource

    source = SimulatedSource(scenario, clock=lambda: STARTED)
    monitor = Monitor()
    frames = [monitor.feed(snapshot) for snapshot in source.past(PAST_S)][-1:]
    return frames[0]


def _no_recording(source: str) -> Frame:
    raise UsageError(f"cannot take a picture of {source!r}: use `gputop screenshot demo`")


def _uuid(frame: Frame, text: str) -> str:
    for gpu in frame.snapshot.gpus:
        if text == str(gpu.static.index) or gpu.static.uuid.startswith(text):
            return gpu.static.uuid
    known = ", ".join(str(gpu.static.index) for gpu in frame.snapshot.gpus)
    raise UsageError(f"no GPU {text!r} here: choose one of {known}")
