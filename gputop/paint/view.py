"""The viewer's choices: selection, sorting, span, glyphs.

Frozen; the screen makes a new one for every key.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.types import VerdictChange
from gputop.model.expression import Expression
from gputop.monitor import Frame
from gputop.paint.glyphs import COLOUR, Glyphs
from gputop.paint.process_columns import BY_VERDICT, DEFAULT
from gputop.paint.process_filter import NO_FILTER
from gputop.paint.words import split_gpus

ProcessKey = tuple[int, int | None, int | None]
"""Identity of a process row: pid, start time, GPU."""
TreeMode = Literal["auto", "all", "none"]
Layout = Literal["panes", "scroll", "list"]
Hint = tuple[tuple[str, str, str], ...]
"""(key as shown, what it does, its id), the most useful first."""

SPANS_S = (60.0, 120.0, 300.0, 600.0, 1800.0, 7200.0, 86400.0)
"""Time spans that the charts can show, in seconds."""


class Replay(Struct, frozen=True):
    """The position of a replay.

    ``own_past`` means the past of this run; ``changes`` are in order of time.
    """

    begin: float
    end: float
    position: float
    playing: bool
    speed: float
    changes: tuple[VerdictChange, ...] = ()
    own_past: bool = False
    judged_pct: float | None = None
    """How much of the past is judged yet, percent; None once all is."""


class View(Struct, frozen=True):
    """The state of the main screen.

    ``gpu`` is a UUID; None follows the GPU that needs attention most. ``columns`` are keys of
    ``process_columns.COLUMNS``; ``tagged`` processes are those that the next signal is for.
    """

    glyphs: Glyphs = COLOUR
    gpu: str | None = None
    process: ProcessKey | None = None
    scroll: int = 0
    command_at: int = 0
    sort: str = BY_VERDICT
    inverted: bool = False
    tree: TreeMode = "auto"
    columns: tuple[str, ...] = DEFAULT
    filter: Expression = NO_FILTER
    search: str = ""
    tagged: frozenset[ProcessKey] = frozenset()
    span_s: float = 120.0
    layout: Layout = "panes"
    replay: Replay | None = None
    recording: tuple[float, int] | None = None
    stale_s: float | None = None
    message: str | None = None
    hint: Hint = ()
    past_keys: tuple[tuple[str, str], ...] = ()
    utc_offset_s: float = 0.0
    read_only: bool = False
    demo: bool = False


def selected_gpu(frame: Frame, view: View) -> int:
    """Return the selected GPU's position in the snapshot.

    The chosen one, else the one to look at first, else the first that MIG has not split.
    """
    positions = {gpu.static.uuid: position for position, gpu in enumerate(frame.snapshot.gpus)}
    split = split_gpus(frame.snapshot)
    whole = [uuid for uuid in positions if uuid not in split]
    wanted = (view.gpu, frame.look_first, *whole)
    return next((positions[uuid] for uuid in wanted if uuid in positions), 0)


def zoomed(view: View, step: int) -> View:
    """Return the next longer or shorter time span.

    ``step`` is 1 or -1.
    """
    at = min(range(len(SPANS_S)), key=lambda i: abs(SPANS_S[i] - view.span_s))
    return replace(view, span_s=SPANS_S[max(0, min(len(SPANS_S) - 1, at + step))])
