"""`gputop screenshot`: the screen as SVG, PNG or text."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.command_line.demo_node import DEMO, PAST_S
from gputop.command_line.picture_file import refuse_early
from gputop.command_line.registry import Needs
from gputop.command_line.shared_options import (
    deliver,
    recording_filter_of,
    redacted_snapshot,
    redactor_of,
    say_damage,
)
from gputop.config import Settings
from gputop.model.feature_table import PICTURES, resolve
from gputop.model.source import UsageError
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.output.picture import svg
from gputop.output.png import PngError, png
from gputop.paint.glyphs import ASCII, COLOUR, MONO
from gputop.paint.line import Row
from gputop.paint.main_screen import main_screen
from gputop.paint.theme import THEMES
from gputop.paint.view import View

if TYPE_CHECKING:
    from gputop.model.redaction import Redactor
    from gputop.recording.decode import RecordingFilter

NEEDS = Needs("nothing")

STARTED = 1_780_000_000.0
"""A fixed moment, so that a picture of the demo is the same whenever it is made."""
LARGEST = (400, 200)
SUFFIXES = (".svg", ".png", ".txt")


def arguments(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("source", help="demo, a recording, or fleet")
    add("scenario", nargs="?", help="with demo: one scenario; with fleet: demo for a simulated one")
    add("-o", "--output", metavar="FILE", required=True, help="FILE.svg, .png or .txt")
    add("--at", metavar="TIME", help="of a recording: 12:03, -10m, an ISO date (default: its end)")
    add("--size", metavar="WxH", default="160x48", help="columns x rows (default 160x48)")
    for picture in PICTURES.values():
        resolve(picture.options)(command)


def run(args: argparse.Namespace, settings: Settings) -> int:
    path = Path(args.output)
    if path.suffix not in SUFFIXES:
        raise UsageError(
            f"cannot make a {path.suffix or 'file without suffix'}: name one of {', '.join(SUFFIXES)}"
        )
    width, height = _size(args.size)
    refuse_early(path)
    demo = args.source == DEMO
    if demo and args.at is not None:
        raise UsageError(
            "--at belongs to a recording or the fleet: the demo's picture is always of the same moment"
        )
    if args.source in PICTURES:
        rows = resolve(PICTURES[args.source].rows)(args, settings, width, height)
        _write(path, rows, settings, f"gputop {args.source}")
        return 0
    if args.scenario is not None and not demo:
        raise UsageError(f"a scenario belongs to `screenshot demo`, not to {args.source!r}")
    redactor = redactor_of(settings)
    frame = (
        _demo_frame(args.scenario, redactor, settings.gpus or None)
        if demo
        else _recorded_frame(
            args.source, args.at, recording_filter_of(args, settings), settings.span
        )
    )
    # Text without colours cannot show where the gap begins inside of a cell.
    has_colours = path.suffix != ".txt" and not settings.no_color
    view = View(
        glyphs=ASCII if settings.ascii else COLOUR if has_colours else MONO,
        span_s=settings.span,
        demo=demo,
    )
    rows = main_screen(frame, view, width, height).rows
    _write(path, rows, settings, f"gputop on {frame.snapshot.machine.hostname}")
    return 0


def _write(path: Path, rows: list[Row], settings: Settings, title: str) -> None:
    """Write painted rows in the form of the suffix."""
    theme = THEMES["dark" if settings.theme == "auto" else settings.theme]
    data: str | bytes
    if path.suffix == ".txt":
        data = plain_text(rows)
    else:
        data = svg(rows, theme, title)
        if path.suffix == ".png":
            try:
                data = png(data)
            except PngError as error:
                raise UsageError(str(error)) from error
    deliver(data, str(path))


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,4})x(\d{1,4})", text)
    width, height = (int(match[1]), int(match[2])) if match else (0, 0)
    if not (20 <= width <= LARGEST[0] and 5 <= height <= LARGEST[1]):
        raise UsageError(
            f"--size must be columns x rows from 20x5 to {LARGEST[0]}x{LARGEST[1]}, not {text!r}"
        )
    return width, height


def _demo_frame(scenario: str | None, redactor: Redactor | None, only: str | None) -> Frame:
    from gputop.sources.simulation.simulated import SimulatedSource

    source = SimulatedSource(scenario, only=only, events_past=True, clock=lambda: STARTED)
    monitor = Monitor()
    frames = [
        monitor.feed(redacted_snapshot(snapshot, redactor)) for snapshot in source.past(PAST_S)
    ][-1:]
    return frames[0]


def _recorded_frame(
    path: str, at: str | None, recording_filter: RecordingFilter | None, chart_s: float
) -> Frame:
    """Return a recording's frame at a time, by default the last.

    Judged from the recording's beginning.
    """
    from gputop.command_line.shared_options import moment_in
    from gputop.recording.reader import Recording
    from gputop.session.judged import frame_at

    recording = Recording(path, recording_filter)
    t = recording.last_t if at is None else moment_in(recording, at)
    segment = recording.last_segment if at is None else recording.segment_at(t)
    frame = frame_at(recording, segment, t, chart_s)
    recording.close()
    say_damage(path, recording)
    if frame is None:
        raise UsageError(
            f"{path}: no frame at that time; it begins {recording.begin:.0f} and ends {recording.end:.0f}"
        )
    return frame
