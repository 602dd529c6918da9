"""Effects of keys on the main screen's view.

Pure: a view and a frame in, a view out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gputop.diagnosis.summary import group_of
from gputop.model.text_table import table_rows
from gputop.monitor import Frame
from gputop.paint import process_table
from gputop.paint.process_columns import BY_VERDICT, NO_FILTER
from gputop.paint.process_table import ShownProcess
from gputop.paint.view import View, selected_count, selected_gpu, zoomed
from gputop.paint.words import counted_groups

MOST_SCROLLED = 256
MOVES = {key: (int(direction), float(pages)) for key, direction, pages in table_rows("""
    up         -1        0
    down       1         0
    page_up    -1        1
    page_down  1         1
    half_up    -1        0.5
    half_down  1         0.5
    first      -1000000  0
    last       1000000   0
""")}  # fmt: skip
"""Direction and pages of a move through the processes, or one by one through GPUs or counts while the focus is there.
Less than a row is one row.
"""
CYCLES: Mapping[str, tuple[str, tuple[str, ...], int]] = {
    # From the processes to the top of the screen, and down again.
    "section": ("focus", ("processes", "counts", "gpus"), 1),
    "section_back": ("focus", ("processes", "counts", "gpus"), -1),
    "tree": ("tree", ("auto", "all", "none"), 1),
    "layout": ("layout", ("auto", "panes", "list"), 1),
}  # fmt: skip
"""Field of the view, its values in turn, and the step to the next."""
SET: Mapping[str, Mapping[str, object]] = {
    "to_counts": {"focus": "counts"}, "to_gpus": {"focus": "gpus"}, "to_processes": {"focus": "processes"},
    "layout_auto": {"layout": "auto"}, "layout_panes": {"layout": "panes"}, "layout_list": {"layout": "list"},
    "sort_memory": {"sort": "gpu_mem_bytes", "inverted": False}, "sort_cpu": {"sort": "cpu_pct", "inverted": False},
    "sort_time": {"sort": "age_s", "inverted": False},
}  # fmt: skip
"""Fields of the view and the values that a key gives them."""
STEPS: Mapping[str, int] = {
    "previous_gpu": -1, "next_gpu": 1, "command_left": -1, "command_right": 1, "sort_previous": -1,
    "sort_next": 1, "shorter": -1, "longer": 1,
}  # fmt: skip
"""Keys that go one on (1) or back (-1)."""
VIEW_KEYS = (*MOVES, *CYCLES, *SET, *STEPS, "invert", "release")
"""Every key that ``after_key`` knows."""


def after_key(view: View, key_id: str, frame: Frame, page: int, rows: Sequence[ShownProcess]) -> View:
    """Return the view after a key of ``VIEW_KEYS``.

    The id is the one in ``gputop.paint.keys``. Raises KeyError for any other. ``page`` is the height of the process
    table, ``rows`` are all of its rows.
    """
    if key_id in SET:
        return replace(view, **SET[key_id])
    if key_id in CYCLES:
        field, values, step = CYCLES[key_id]
        return replace(view, **{field: values[(values.index(getattr(view, field)) + step) % len(values)]})
    if key_id in STEPS:
        return _stepped(view, key_id, frame, STEPS[key_id])
    if key_id == "invert":
        return replace(view, inverted=not view.inverted)
    if key_id == "release":
        return _released(view)
    direction, pages = MOVES[key_id]
    if view.focus == "gpus":
        return other_gpu(view, frame, max(-1, min(1, direction)))
    step = direction * max(1, int(page * pages))
    return _other_count(view, frame, step) if view.focus == "counts" else _other_process(view, frame, step, rows)


def _stepped(view: View, key_id: str, frame: Frame, step: int) -> View:
    if key_id.endswith("_gpu"):
        return other_gpu(view, frame, step)
    if key_id in ("longer", "shorter"):
        return zoomed(view, step)
    if key_id.startswith("sort"):
        keys = (BY_VERDICT, *view.columns)
        at = keys.index(view.sort) if view.sort in keys else -1 if step > 0 else 0
        return replace(view, sort=keys[(at + step) % len(keys)], inverted=False)
    if view.focus == "counts" and key_id in ("command_left", "command_right"):
        return _other_count(view, frame, step)
    # The commands of the process table, further to one side.
    return replace(view, command_at=max(0, min(MOST_SCROLLED, view.command_at + step)))


def next_counted(view: View, frame: Frame, group: str) -> View:
    """Return the next GPU that a count includes.

    It wraps around.
    """
    gpus, at = frame.snapshot.gpus, selected_gpu(frame, view)
    positions = [i for i, d in enumerate(frame.diagnoses) if group_of(d) == group]
    if not positions:
        return view
    # The first press selects the first of them, unless it is selected already as the one in most need of attention.
    to = next((i for i in positions if i > at or (view.gpu is None and i >= at)), positions[0])
    return replace(view, gpu=gpus[to].static.uuid)


def other_gpu(view: View, frame: Frame, step: int) -> View:
    """The view with the next or previous GPU selected, wrapping around."""
    gpus = frame.snapshot.gpus
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


def _other_count(view: View, frame: Frame, step: int) -> View:
    groups = list(counted_groups(frame.snapshot, frame.diagnoses))
    chosen = selected_count(frame, view)
    if chosen is None:
        return view
    return replace(view, count=groups[max(0, min(len(groups) - 1, groups.index(chosen) + step))])


def _released(view: View) -> View:
    if view.filter:
        return replace(view, filter=NO_FILTER, message=None)
    return replace(view, gpu=None, process=None, scroll=0, message=None)
