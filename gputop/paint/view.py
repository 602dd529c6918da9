"""What the viewer has chosen: selection, sorting, span, glyphs. Frozen; the screen makes a new one for every key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.monitor import Frame
from gputop.paint.glyphs import COLOUR, Glyphs
from gputop.paint.hint import Hint
from gputop.paint.layout import Density
from gputop.paint.process_columns import DEFAULT
from gputop.paint.process_filter import NO_FILTER, Filter
from gputop.paint.words import counted_groups

if TYPE_CHECKING:
    from gputop.paint.replay_bar import Replay

ProcessKey = tuple[int, int | None, int | None]
"""Identity of a process row: pid, start time, GPU."""
TreeMode = Literal["auto", "all", "none"]
Layout = Literal["auto", "panes", "list"]
Focus = Literal["counts", "gpus", "processes"]

SPANS_S = (60.0, 120.0, 300.0, 600.0, 1800.0, 7200.0, 86400.0)
"""Time spans that the charts can show, in seconds."""


class View(Struct, frozen=True):
    """The state of the main screen. ``gpu`` is a UUID; None follows what needs attention most.

    ``count`` is the word of a count of the summary, while the focus is on the counts; None is the first of them.
    ``columns`` are keys of ``process_columns.COLUMNS``; ``tagged`` processes are those that the next signal is for.
    """

    glyphs: Glyphs = COLOUR
    gpu: str | None = None
    process: ProcessKey | None = None
    focus: Focus = "processes"
    count: str | None = None
    scroll: int = 0
    command_at: int = 0
    sort: str = "gpu_mem_bytes"
    inverted: bool = False
    tree: TreeMode = "auto"
    columns: tuple[str, ...] = DEFAULT
    filter: Filter = NO_FILTER
    search: str = ""
    tagged: frozenset[ProcessKey] = frozenset()
    span_s: float = 120.0
    layout: Layout = "auto"
    density: Density = "standard"
    replay: Replay | None = None
    recording: tuple[float, int] | None = None
    stale_s: float | None = None
    message: str | None = None
    hint: Hint = ()
    past_keys: tuple[tuple[str, str], ...] = ()
    utc_offset_s: float = 0.0
    read_only: bool = False
    demo: bool = False


def selected_count(frame: Frame, view: View) -> str | None:
    """The word of the count under the cursor; None where the focus is elsewhere or there is no GPU."""
    if view.focus != "counts":
        return None
    groups = counted_groups(frame.snapshot, frame.diagnoses)
    return view.count if view.count in groups else next(iter(groups), None)


_URGENCY = {"red": 0, "yellow": 1, "info": 2, "green": 3, "grey-green": 3, "grey": 4}


def selected_gpu(frame: Frame, view: View) -> int:
    """Position of the selected GPU among the snapshot's: the chosen one, else the first in most need of attention."""
    gpus = frame.snapshot.gpus
    for position, gpu in enumerate(gpus):
        if gpu.static.uuid == view.gpu:
            return position
    ranks = [
        (0 if d.busy_not_working else 1, _URGENCY[d.level], position) for position, d in enumerate(frame.diagnoses)
    ]
    return min(ranks)[2] if ranks else 0


def zoomed(view: View, step: int) -> View:
    """The next longer (step 1) or shorter (step -1) span of time."""
    at = min(range(len(SPANS_S)), key=lambda i: abs(SPANS_S[i] - view.span_s))
    return replace(view, span_s=SPANS_S[max(0, min(len(SPANS_S) - 1, at + step))])
