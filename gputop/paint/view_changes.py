"""Effects of keys on the main screen's view.

Pure: a view and a frame in, a view out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gputop.diagnosis.verdict.summary import group_of
from gputop.monitor import Frame
from gputop.paint import process_table
from gputop.paint.keys import FAR
from gputop.paint.process_columns import BY_VERDICT
from gputop.paint.process_filter import NO_FILTER
from gputop.paint.process_table import ShownProcess
from gputop.paint.view import View, selected_gpu, zoomed

MOST_SCROLLED = 256
MOVES: Mapping[str, tuple[int, float]] = {
    "up": (-1, 0), "down": (1, 0), "page_up": (-1, 1), "page_down": (1, 1), "half_up": (-1, 0.5),
    "half_down": (1, 0.5), "first": (-FAR, 0), "last": (FAR, 0),
}  # fmt: skip
"""Direction and pages of a move through the processes. Less than a row is one row."""
CYCLES: Mapping[str, tuple[str, ...]] = {
    "tree": ("auto", "all", "none"),
    "layout": ("panes", "scroll", "list"),
}
"""Fields of the view, each with its values in turn."""
SORTS: Mapping[str, str] = {
    "sort_memory": "gpu_mem_bytes",
    "sort_cpu": "cpu_pct",
    "sort_time": "age_s",
}
"""Keys that sort by one column."""
STEPS: Mapping[str, int] = {
    "previous_gpu": -1, "next_gpu": 1, "command_left": -1, "command_right": 1, "sort_previous": -1,
    "sort_next": 1, "shorter": -1, "longer": 1,
}  # fmt: skip
"""Keys that go one on (1) or back (-1)."""
VIEW_KEYS = (*MOVES, *CYCLES, *SORTS, *STEPS, "invert", "release")
"""Every key that ``after_key`` knows."""


def after_key(
    view: View, key_id: str, frame: Frame, page: int, rows: Sequence[ShownProcess]
) -> View:
    """Return the view after a key of ``VIEW_KEYS``.

    The id is the one in ``gputop.paint.keys``. Raises KeyError for any other. ``page`` is the height of the process
    table, ``rows`` are all of its rows.
    """
    if key_id in SORTS:
        return replace(view, sort=SORTS[key_id], inverted=False)
    if key_id in CYCLES:
        values = CYCLES[key_id]
        return replace(
            view, **{key_id: values[(values.index(getattr(view, key_id)) + 1) % len(values)]}
        )
    if key_id in STEPS:
        return _stepped(view, key_id, frame, STEPS[key_id])
    if key_id == "invert":
        return replace(view, inverted=not view.inverted)
    if key_id == "release":
        return _released(view)
    direction, pages = MOVES[key_id]
    return _other_process(view, frame, direction * max(1, int(page * pages)), rows)


def _stepped(view: View, key_id: str, frame: Frame, step: int) -> View:
    if key_id.endswith("_gpu"):
        return other_gpu(view, frame, step)
    if key_id in ("longer", "shorter"):
        return zoomed(view, step)
    if key_id.startswith("sort"):
        keys = (BY_VERDICT, *view.columns)
        at = keys.index(view.sort) if view.sort in keys else -1 if step > 0 else 0
        return replace(view, sort=keys[(at + step) % len(keys)], inverted=False)
    # The commands of the process table, further to one side.
    return replace(view, command_at=max(0, min(MOST_SCROLLED, view.command_at + step)))


def next_counted(view: View, frame: Frame, group: str) -> View:
    """Return the next GPU that a count includes.

    It wraps around.
    """
    gpus, at = frame.shown.gpus, selected_gpu(frame, view)
    positions = [i for i, d in enumerate(frame.diagnoses) if group_of(d) == group]
    if not positions:
        return view
    # The first press selects the first of them, unless it is selected already as the one in most need of attention.
    to = next((i for i in positions if i > at or (view.gpu is None and i >= at)), positions[0])
    return replace(view, gpu=gpus[to].static.uuid)


def other_gpu(view: View, frame: Frame, step: int) -> View:
    """The view with the next or previous GPU selected, wrapping around."""
    gpus = frame.shown.gpus
    if not gpus:
        return view
    at = (selected_gpu(frame, view) + step) % len(gpus)
    return replace(view, gpu=gpus[at].static.uuid, process=None)


def _other_process(view: View, frame: Frame, step: int, rows: Sequence[ShownProcess]) -> View:
    if not rows:
        return view
    at = process_table.cursor(rows, frame, view)
    to = max(0, min(len(rows) - 1, at + step))
    return replace(view, process=process_table.key_of(rows[to].process))


def _released(view: View) -> View:
    if view.filter:
        return replace(view, filter=NO_FILTER, message=None)
    return replace(view, gpu=None, process=None, scroll=0, message=None)
