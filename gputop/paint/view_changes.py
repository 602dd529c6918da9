"""What a key does to the main screen's view. Pure: a view and a frame in, a view out."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from gputop.monitor import Frame
from gputop.paint import process_table
from gputop.paint.process_filter import NO_FILTER
from gputop.paint.process_table import Shown
from gputop.paint.view import Layout, TreeMode, View, selected_gpu, zoomed

TREES: tuple[TreeMode, ...] = ("auto", "all", "none")
LAYOUTS: tuple[Layout, ...] = ("auto", "panes", "list")
FAR = 10**6


def changed(view: View, key_id: str, frame: Frame, page: int, rows: Sequence[Shown]) -> View:
    """The view after a key, by its id in ``gputop.paint.keys``.

    ``page`` is the height of the process table, ``rows`` are all of its rows.
    """
    moves = {"up": -1, "down": 1, "page_up": -page, "page_down": page, "first": -FAR, "last": FAR}
    if key_id in moves:
        if view.focus == "gpus":
            return other_gpu(view, frame, max(-1, min(1, moves[key_id])))
        return _other_process(view, frame, moves[key_id], rows)
    if key_id in ("previous_gpu", "next_gpu"):
        return other_gpu(view, frame, -1 if key_id == "previous_gpu" else 1)
    if key_id == "section":
        return replace(view, focus="gpus" if view.focus == "processes" else "processes")
    if key_id in ("longer", "shorter"):
        return zoomed(view, 1 if key_id == "longer" else -1)
    if key_id == "tree":
        return replace(view, tree=TREES[(TREES.index(view.tree) + 1) % len(TREES)])
    if key_id == "layout":
        return replace(view, layout=LAYOUTS[(LAYOUTS.index(view.layout) + 1) % len(LAYOUTS)])
    if key_id == "invert":
        return replace(view, inverted=not view.inverted)
    if key_id == "sort_next":
        keys = view.columns
        at = keys.index(view.sort) if view.sort in keys else -1
        return replace(view, sort=keys[(at + 1) % len(keys)], inverted=False)
    if key_id == "release":
        if view.filter:
            return replace(view, filter=NO_FILTER, message=None)
        return replace(view, gpu=None, process=None, scroll=0, message=None)
    return view


def other_gpu(view: View, frame: Frame, step: int) -> View:
    """The next or previous GPU selected, round and round."""
    gpus = frame.snapshot.gpus
    if not gpus:
        return view
    at = (selected_gpu(frame, view) + step) % len(gpus)
    return replace(view, gpu=gpus[at].static.uuid, process=None)


def _other_process(view: View, frame: Frame, step: int, rows: Sequence[Shown]) -> View:
    if not rows:
        return view
    at = process_table.cursor(rows, frame, view)
    to = max(0, min(len(rows) - 1, at + step))
    return replace(view, process=process_table.key_of(rows[to].process))
