"""What a key does to the main screen's view. Pure: a view and a frame in, a view out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from gputop.diagnosis.telling import group_of
from gputop.monitor import Frame
from gputop.paint import process_table
from gputop.paint.process_columns import BY_VERDICT, NO_FILTER
from gputop.paint.process_table import ShownProcess
from gputop.paint.view import Focus, Layout, TreeMode, View, selected_count, selected_gpu, zoomed
from gputop.paint.words import counted_groups

TREES: tuple[TreeMode, ...] = ("auto", "all", "none")
SECTIONS: tuple[Focus, ...] = ("processes", "counts", "gpus")
"""The order of Tab: from the processes to the top of the screen, and down again."""
LAYOUTS: tuple[Layout, ...] = ("auto", "panes", "list")
FAR = 10**6
MOST_SCROLLED = 256
MOVES: Mapping[str, int] = MappingProxyType(
    {
        "up": -1,
        "down": 1,
        "page_up": -1,
        "page_down": 1,
        "half_up": -1,
        "half_down": 1,
        "first": -FAR,
        "last": FAR,
        "top": -FAR,
        "bottom": FAR,
    }
)
"""Keys that go this far through the processes, or one by one through GPUs or counts while the focus is there."""
PAGES = ("page_up", "page_down")
"""Moves that are counted in pages."""
HALVES = ("half_up", "half_down")
"""Moves that are counted in halves of pages."""
OTHER_GPU: Mapping[str, int] = MappingProxyType({"previous_gpu": -1, "next_gpu": 1})


def after_key(view: View, key_id: str, frame: Frame, page: int, rows: Sequence[ShownProcess]) -> View:
    """The view after a key of ``VIEW_KEYS``, by its id in ``gputop.paint.keys``. Raises KeyError for any other.

    ``page`` is the height of the process table, ``rows`` are all of its rows.
    """
    if view.focus == "counts" and key_id in ("command_left", "command_right"):
        return _other_count(view, frame, -1 if key_id == "command_left" else 1)
    if key_id in CHOICES:
        return CHOICES[key_id](view)
    if key_id in OTHER_GPU:
        return other_gpu(view, frame, OTHER_GPU[key_id])
    step = MOVES[key_id] * (page if key_id in PAGES else max(1, page // 2) if key_id in HALVES else 1)
    if view.focus == "counts":
        return _other_count(view, frame, step)
    if view.focus == "gpus":
        return other_gpu(view, frame, max(-1, min(1, step)))
    return _other_process(view, frame, step, rows)


def next_counted(view: View, frame: Frame, group: str) -> View:
    """The next of the GPUs that the summary counts under a word, wrapping around."""
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


def _other_section(view: View, step: int = 1) -> View:
    return replace(view, focus=SECTIONS[(SECTIONS.index(view.focus) + step) % len(SECTIONS)])


def _other_count(view: View, frame: Frame, step: int) -> View:
    groups = list(counted_groups(frame.snapshot, frame.diagnoses))
    chosen = selected_count(frame, view)
    if chosen is None:
        return view
    return replace(view, count=groups[max(0, min(len(groups) - 1, groups.index(chosen) + step))])


def _scrolled(view: View, step: int) -> View:
    """The commands of the process table, further to one side."""
    return replace(view, command_at=max(0, min(MOST_SCROLLED, view.command_at + step)))


def _other_tree(view: View) -> View:
    return replace(view, tree=TREES[(TREES.index(view.tree) + 1) % len(TREES)])


def _other_layout(view: View) -> View:
    return replace(view, layout=LAYOUTS[(LAYOUTS.index(view.layout) + 1) % len(LAYOUTS)])


def _next_sort(view: View, step: int) -> View:
    keys = (BY_VERDICT, *view.columns)
    at = keys.index(view.sort) if view.sort in keys else -1 if step > 0 else 0
    return sorted_by(view, keys[(at + step) % len(keys)])


def sorted_by(view: View, key: str) -> View:
    """Sorted by a column, in its usual direction."""
    return replace(view, sort=key, inverted=False)


def _released(view: View) -> View:
    if view.filter:
        return replace(view, filter=NO_FILTER, message=None)
    return replace(view, gpu=None, process=None, scroll=0, message=None)


CHOICES: Mapping[str, Callable[[View], View]] = MappingProxyType({
    "section": _other_section,
    "section_back": lambda view: _other_section(view, -1),
    "to_counts": lambda view: replace(view, focus="counts"),
    "to_gpus": lambda view: replace(view, focus="gpus"),
    "to_processes": lambda view: replace(view, focus="processes"),
    "longer": lambda view: zoomed(view, 1),
    "shorter": lambda view: zoomed(view, -1),
    "tree": _other_tree,
    "layout": _other_layout,
    "layout_auto": lambda view: replace(view, layout="auto"),
    "layout_panes": lambda view: replace(view, layout="panes"),
    "layout_list": lambda view: replace(view, layout="list"),
    "invert": lambda view: replace(view, inverted=not view.inverted),
    "command_left": lambda view: _scrolled(view, -1),
    "command_right": lambda view: _scrolled(view, 1),
    "command_back": lambda view: _scrolled(view, -1),
    "command_on": lambda view: _scrolled(view, 1),
    "sort_next": lambda view: _next_sort(view, 1),
    "sort_previous": lambda view: _next_sort(view, -1),
    "sort_memory": lambda view: sorted_by(view, "gpu_mem_bytes"),
    "sort_cpu": lambda view: sorted_by(view, "cpu_pct"),
    "sort_time": lambda view: sorted_by(view, "age_s"),
    "release": _released,
})  # fmt: skip
"""Keys that change the view whatever is measured."""
VIEW_KEYS = (*MOVES, *OTHER_GPU, *CHOICES)
"""Every key that ``after_key`` knows."""
