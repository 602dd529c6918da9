"""What the viewer has chosen: selection, sorting, span, glyphs. Frozen; the screen makes a new one for every key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.telling import telling
from gputop.diagnosis.types import NOT_WORKING, STATE_WORDS
from gputop.model.expression import Expression
from gputop.model.quantity import duration
from gputop.model.snapshot import GpuSample
from gputop.monitor import Frame
from gputop.paint.glyphs import COLOUR, Glyphs
from gputop.paint.keys import Key
from gputop.paint.layout import Density
from gputop.paint.line import Line, Row, Target, gib
from gputop.paint.process_columns import BY_VERDICT, DEFAULT
from gputop.paint.process_filter import NO_FILTER
from gputop.paint.words import counted_groups, gpu_label, split_gpus

if TYPE_CHECKING:
    from gputop.paint.replay_bar import Replay


# The last row of the screen: what to look at first, and the few keys that lead to all the others.

Hint = tuple[tuple[str, str, str], ...]
"""(key as shown, what it does, its id), the most useful first."""
WORDS = (
    ("help", "help"),
    ("palette", "every command"),
    ("quit", "quit"),
    ("release_counters", "release counters"),
)
COUNTERS = "release_counters"
"""The key that is shown, in second place, only while the hardware counters are held or were released by it."""
GAP = "   "
"""What stands between the keys of a last row."""
TOUR = ("tour", "the tour")
LEAST_HEIGHT = 16
"""A screen with fewer rows needs its last row for something else."""


def hint_of(keys: Iterable[Key], *, tour: bool = False) -> Hint:
    """The hint with the keys that these commands have at present; with the tour where there is one."""
    shown = {key.id: key.shown.split("  ")[0] for key in keys}
    words = (TOUR, *WORDS) if tour else WORDS
    return tuple((shown[key_id], does, key_id) for key_id, does in words if shown.get(key_id))


def last_hint(frame: Frame, view: View) -> Hint:
    """The GPU to look at first, which a click selects, and the keys for this frame."""
    keys = hint_now(view.hint, frame.snapshot.gpus)
    words = look_first_words(frame)
    return ((LOOK_FIRST, words, "release"), *keys) if words else keys


LOOK_FIRST = "look first:"


def look_first_words(frame: Frame) -> str:
    """``GPU 7, idle for 13 min, holds 29 GiB``; empty where no GPU is in trouble."""
    pairs = zip(frame.snapshot.gpus, frame.diagnoses, strict=True)
    gpu, d = next(((gpu, d) for gpu, d in pairs if d.uuid == frame.look_first), (None, None))
    if gpu is None or d is None:
        return ""
    words = NOT_WORKING if d.state == "busy_not_working" else IDLE if d.state == "idle_allocated" else telling(d).title
    held = f", holds {gib(gpu.mem_used_bytes).strip()} GiB" if words == IDLE else ""
    lasts = f" for {duration(d.lasted_s)}" if d.lasted_s else ""
    return f"GPU {gpu_label(gpu)}, {words}{lasts}{held}"


IDLE = STATE_WORDS["idle"]


def hint_now(hint: Hint, gpus: Sequence[GpuSample]) -> Hint:
    """The hint for a frame: the key of the hardware counters is named while gputop keeps others from using them."""
    entry = next((entry for entry in hint if entry[2] == COUNTERS), None)
    if entry is None:
        return hint
    rest = tuple(other for other in hint if other is not entry)
    if any(gpu.sm_source == "counters" for gpu in gpus):
        return (*rest[:1], entry, *rest[1:])
    if any(gpu.sm_lack is not None and gpu.sm_lack.kind == "released" for gpu in gpus):
        return (*rest[:1], (entry[0], "take counters", COUNTERS), *rest[1:])
    return rest


def hint_row(hint: Hint, width: int) -> Row:
    """As many of the keys as fit in one row."""
    line = Line()
    for shown, words, _ in _fitting(hint, width):
        line.add("   " if line.width else " ").add(shown, "key").add(f" {words}", "text")
    return line.row(width, "bar")


def key_named_at(row: Row, column: int) -> str | None:
    """The key, by Textual's name, that the words of a last row at some column begin with; None where they name none."""
    from gputop.paint.keys import key_name

    text = "".join(part for part, _ in row)
    begin = text.rfind(GAP, 0, column) + len(GAP) if GAP in text[:column] else 0
    words = text[begin:].split(GAP)[0].split()
    shown = len(text[begin:].split(GAP)[0]) + begin
    return key_name(words[0]) if len(words) > 1 and column < shown else None


def hint_target(hint: Hint, width: int) -> Target:
    """The cells of the row with the key that each stands for: a click on its words is that key."""
    ends, end = [], 0
    for shown, words, key_id in _fitting(hint, width):
        end += (3 if end else 1) + len(shown) + 1 + len(words)
        ends.append((end, key_id))
    return Target("key", None, (*ends, (width, None)))


def _fitting(hint: Hint, width: int) -> Hint:
    fitting, used = [], 0
    for entry in hint:
        need = (3 if used else 1) + len(entry[0]) + 1 + len(entry[1])
        if used + need < width:
            fitting.append(entry)
            used += need
    return tuple(fitting)


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
    sort: str = BY_VERDICT
    inverted: bool = False
    tree: TreeMode = "auto"
    columns: tuple[str, ...] = DEFAULT
    filter: Expression = NO_FILTER
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


def selected_gpu(frame: Frame, view: View) -> int:
    """Position of the selected GPU among the snapshot's: the chosen one, else the one to look at first, else the first
    that MIG has not split."""
    positions = {gpu.static.uuid: position for position, gpu in enumerate(frame.snapshot.gpus)}
    whole = [uuid for uuid in positions if uuid not in split_gpus(frame.snapshot)]
    wanted = (view.gpu, frame.look_first, *whole)
    return next((positions[uuid] for uuid in wanted if uuid in positions), 0)


def zoomed(view: View, step: int) -> View:
    """The next longer (step 1) or shorter (step -1) span of time."""
    at = min(range(len(SPANS_S)), key=lambda i: abs(SPANS_S[i] - view.span_s))
    return replace(view, span_s=SPANS_S[max(0, min(len(SPANS_S) - 1, at + step))])
