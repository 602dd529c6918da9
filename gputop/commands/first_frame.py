"""The first frame as plain text, drawn while the screen library still loads.

Importing Textual takes longer than measuring and painting; the viewer need not wait for it. Textual then takes the
terminal over and paints the same rows again.
"""

from __future__ import annotations

import os
import sys
import threading

from gputop.monitor import Frame
from gputop.output.ansi import ansi_text
from gputop.paint.main_screen import main_screen
from gputop.paint.terminal import Terminal
from gputop.paint.theme import THEMES
from gputop.paint.view import View

ALTERNATE_SCREEN = "\x1b[?1049h\x1b[?25l\x1b[H"
MAIN_SCREEN = "\x1b[?25h\x1b[?1049l"


def draw(frame: Frame, view: View, terminal: Terminal) -> None:
    """Draw one frame on stderr's terminal, as Textual does, without waiting for it to be taken."""
    assert sys.__stderr__ is not None
    descriptor = sys.__stderr__.fileno()
    size = os.get_terminal_size(descriptor)
    rows = main_screen(frame, view, max(20, size.columns), max(1, size.lines)).rows
    text = ansi_text(rows, THEMES[terminal.theme], terminal.depth, newline="\r\n")
    data = (ALTERNATE_SCREEN + text).encode("utf-8", "replace")
    # A thread, because a terminal that takes no output would hold the write for ever.
    threading.Thread(target=os.write, args=(descriptor, data), daemon=True, name="first-frame").start()


def undo() -> None:
    """Back to the main screen, when the screen library never took over."""
    assert sys.__stderr__ is not None
    os.write(sys.__stderr__.fileno(), MAIN_SCREEN.encode())
