"""The main screen: which block gets how many rows, and the rows themselves.

Height is given out in a fixed order: header, every GPU on at least one line, the selected GPU's words, the host, the
processes; what is left makes panes taller. The result has exactly the asked size, whatever that is.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.quantity import terminal_safe
from gputop.monitor import Frame
from gputop.paint import gpu_list, header, host_rows, layout, panes, process_table
from gputop.paint import panes as big_pane
from gputop.paint import view as hint
from gputop.paint.charts import LABEL_WIDTH, chart_width, roomy_chart_width
from gputop.paint.line import Line, Painted, Row, ScreenRows, Target, for_terminal, shorten
from gputop.paint.process_filter import NO_FILTER
from gputop.paint.view import View, selected_gpu

LEAST_PANE_WIDTH = 96
LEAST_SIZE = (20, 4)
LEAST_TABLE = 3
"""Rows of the process table: its title, its heads and one process. With fewer the title stands alone."""
LEAST_ABOVE_LANES = 8
"""A pane has lanes when so many rows are left for its chart, numbers and words."""

_BELOW: dict[str, Any] = {
    "process": None, "scroll": 0, "command_at": 0, "sort": "", "inverted": False, "tree": "auto",
    "columns": (), "filter": NO_FILTER, "search": "", "tagged": frozenset(),
}  # fmt: skip
"""What of a view concerns the process table alone, each as nothing: GPUs and host show the same whatever it is."""


def main_screen(frame: Frame, view: View, width: int, height: int) -> Painted:
    """The whole screen in exactly ``height`` rows of ``width`` cells."""
    return Painter().paint(frame, view, width, height)


class Painter:
    """Paints screen after screen and keeps what the last one had in common with the next.

    While a key is held down only the process table changes; GPUs and host of the same frame are not painted again.
    """

    def __init__(self) -> None:
        self._frame: Frame | None = None
        self._key: tuple[View, int, int] | None = None
        self._top = ScreenRows(0)
        self._targets: list[Target | None] = []
        self._shown_for: Frame | None = None
        self._shown_key: tuple[object, ...] = ()
        self._shown: list[process_table.ShownProcess] = []
        self.process_room = 1
        """Rows that the process table has on the screen painted last."""
        self.process_count = 0
        """Rows that the process table would take in full."""

    def paint(self, frame: Frame, view: View, width: int, height: int) -> Painted:
        """The screen of one frame in exactly ``height`` rows of ``width`` cells."""
        if width < LEAST_SIZE[0] or height < LEAST_SIZE[1]:
            rows = [Line().add("too small").row(width), *[Line().row(width)] * (height - 1)][:height]
            return Painted(rows, [None] * height)
        shown = self.shown_rows(frame, view)
        self.process_count = len(shown)
        hinted = bool(view.hint) and height >= hint.LEAST_HEIGHT
        # Looking back changes nothing above the processes: the time line takes its rows from them.
        upper = height - 1 if hinted else height
        key = (replace(view, **_BELOW), width, upper)
        if frame is not self._frame or key != self._key:
            self._top = _upper(frame, view, width, upper)
            self._frame, self._key = frame, key
        bar: list[Row] = []
        foot: list[Target | None] = []
        if view.replay is not None:
            from gputop.paint.replay_bar import bar_height, bar_rows, bar_targets

            selected, bar_rows_wanted = selected_gpu(frame, view), bar_height(frame, view.replay)
            room = layout.bar_room(height - len(self._top.rows), bar_rows_wanted)
            bar = bar_rows(frame, view.replay, selected, view.glyphs, width, room, view.utc_offset_s, view.past_keys)
            foot = bar_targets(bar, frame, view.replay, selected, view.glyphs, width, room, view.past_keys)
        elif hinted:
            keys = hint.last_hint(frame, view)
            bar, foot = [hint.hint_row(keys, width)], [hint.hint_target(keys, width)]
        top, targets = self._top.rows, self._top.targets
        if view.replay is not None and len(top) >= height:
            # Where the GPUs fill the screen none of them gives way: the state of the past takes the first row.
            top, targets = [*bar[:1], *top[1:]], [*foot[:1], *targets[1:]]
            bar, foot = [], []
        height -= len(bar)
        out = ScreenRows(height)
        out.rows, out.targets = top[:height], targets[:height]
        self.process_room = max(1, out.left - 2)
        self._add_processes(out, frame, view, shown, width)
        empty = Line().row(width)
        while out.left > 0:
            out.add(empty)
        rows = out.rows + bar
        out.targets += foot
        self._targets = out.targets
        return Painted(for_terminal(rows, view.glyphs, width), out.targets)

    def shown_rows(self, frame: Frame, view: View) -> list[process_table.ShownProcess]:
        """As ``process_table.shown_rows``, made once for each frame and order: a key that is held asks often."""
        key = (view.sort, view.inverted, view.tree, view.filter, view.glyphs, selected_gpu(frame, view))
        if frame is not self._shown_for or key != self._shown_key:
            self._shown = process_table.shown_rows(frame, view)
            self._shown_for, self._shown_key = frame, key
        return self._shown

    def _add_processes(
        self, out: ScreenRows, frame: Frame, view: View, shown: list[process_table.ShownProcess], width: int
    ) -> None:
        if out.left < 1:
            return
        count = sum([not row.branch for row in shown])
        title = process_table.title(view, width, count)
        room = out.left
        out.add(title, process_table.title_target(title))
        if room < LEAST_TABLE:
            if room > 1:
                out.add(Line().to(2).add("their rows need a higher screen", "dim").row(width))
            return
        out.add(process_table.head(view, width), Target("header", None))
        if not shown:
            reason = process_table.nothing_words(frame, view)
            out.add(Line().to(2).add(shorten(terminal_safe(reason), width - 3), "dim").row(width))
            return
        at = process_table.cursor(shown, frame, view)
        room = out.left
        first = max(0, min(view.scroll, len(shown) - room))
        if view.process is not None and at >= 0:
            first = max(min(first, at), at - room + 1)
        for i in range(first, min(first + room, len(shown))):
            row = process_table.row(shown[i], view, width, frame.process_history, selected=i == at)
            out.add(row, Target("process", process_table.key_of(shown[i].process)))

    def target(self, row: int, column: int = 0) -> Target | None:
        """What a cell of the screen painted last stands for."""
        target = self._targets[row] if 0 <= row < len(self._targets) else None
        return target.at(column) if target is not None else None


def _upper(frame: Frame, view: View, width: int, height: int) -> ScreenRows:
    """Header, GPUs and host: everything above the process table."""
    out = ScreenRows(height)
    top = header.header(frame, view, width)
    out.add(top, header.header_target(top))
    out.add(header.summary(frame, view, width), header.summary_target(frame, view, width))
    gpus = len(frame.snapshot.gpus)
    if gpus and view.layout != "list" and view.density == "standard" and _big(gpus, width, height):
        big_pane.add_big_panes(out, frame, view, width)
    elif gpus and not (view.layout != "list" and _panes(out, frame, view, width)):
        gpu_list.add_list(out, frame, view, width)
    return out


def _big(gpus: int, width: int, height: int) -> bool:
    return width >= 80 and ((gpus == 1 and height >= 28) or (gpus == 2 and height >= 46))


def _columns(width: int, gpus: int) -> int:
    """How many panes stand side by side."""
    most_columns = max(1, min(width // LEAST_PANE_WIDTH, 3, gpus))
    return layout.panes_beside(most_columns, gpus) if width >= 2 * LEAST_PANE_WIDTH + 8 else 1


class _Block(Struct, frozen=True):
    position: int
    rows: int


def _panes(out: ScreenRows, frame: Frame, view: View, width: int) -> bool:
    """Panes as tall as the height allows; False when even one row a GPU beside one small pane does not fit."""
    if width < LEAST_PANE_WIDTH:
        return False
    count = len(frame.snapshot.gpus)
    selected = selected_gpu(frame, view)
    per_line = _columns(width, count)
    host = _host(frame, view, width)
    free = out.left - len(host) - 2
    if per_line > 1:
        rows = layout.side_by_side(count, per_line, free, view.density)
        if not rows:
            return False
        _grid(out, frame, view, width, per_line, rows)
    else:
        sizes = layout.stacked(count, free, view.density)
        if sizes is None:
            return False
        blocks = [_Block(i, sizes[0] if i == selected else sizes[1]) for i in range(count)]
        _stack(out, frame, view, width, blocks)
    out.extend(host)
    return True


def _host(frame: Frame, view: View, width: int) -> list[Row]:
    """The host in one row; with a heading and what it did meanwhile where a GPU waits for it."""
    load, attribution = host_rows.load(frame, view, width), host_rows.attribution_rows(frame, view, width)
    return [host_rows.title(frame, view, width), load, *attribution] if attribution else [load]


def _stack(out: ScreenRows, frame: Frame, view: View, width: int, blocks: list[_Block]) -> None:
    widths = panes.title_widths(frame)
    labels = widths[0]
    chart = round((width - LABEL_WIDTH) * 0.3)
    heads = next((block.position for block in blocks if block.rows == 1), None)
    for block in blocks:
        if block.position == heads:
            out.add(gpu_list.list_header(width, chart, labels, view.span_s))
        position, rows = block.position, block.rows
        target = Target("gpu", frame.snapshot.gpus[position].static.uuid)
        if rows == 1:
            row = gpu_list.list_row(frame, view, position, width, chart, labels, selected=False)
            out.add(row, target)
        else:
            out.extend(_pane(frame, view, position, width, rows, widths), target)


def _pane(frame: Frame, view: View, position: int, width: int, rows: int, widths: tuple[int, int]) -> list[Row]:
    """One pane; a tall one has the host's lanes below its chart, on the same time, and beside them its verdicts."""
    lanes = 1 + len(big_pane.LANES)
    if rows - 1 - lanes < LEAST_ABOVE_LANES:
        return _above_lanes(frame, view, position, width, rows, widths, chart_width(width))
    columns = roomy_chart_width(width)
    main_width = LABEL_WIDTH + columns + 1 + big_pane.AXIS_WIDTH
    verdict_rows = big_pane.verdicts(frame, view, position, width - main_width - 1, lanes)
    beneath = []
    for i, row in enumerate(big_pane.lanes(frame, view, position, main_width)):
        line = Line().add_all(row).to(main_width)
        beneath.append((line.add_all(verdict_rows[i]) if i < len(verdict_rows) else line).row(width))
    return [*_above_lanes(frame, view, position, width, rows - lanes, widths, columns), *beneath]


def _above_lanes(
    frame: Frame, view: View, position: int, width: int, rows: int, widths: tuple[int, int], columns: int
) -> list[Row]:
    top = panes.title(frame, view, position, width, widths)
    return [top, *panes.body(frame, view, position, width, rows - 1, columns)]


def _grid(out: ScreenRows, frame: Frame, view: View, width: int, per_line: int, rows: int) -> None:
    """Panes side by side, filled row by row; where the last row has fewer panes, they are wider."""
    count, title_widths = len(frame.snapshot.gpus), panes.title_widths(frame)
    for first in range(0, count, per_line):
        in_line = min(per_line, count - first)
        widths = [width // in_line + (1 if i < width % in_line else 0) for i in range(in_line)]
        group = [_pane(frame, view, first + i, widths[i], rows, title_widths) for i in range(in_line)]
        ends = tuple(sum(widths[: i + 1]) for i in range(len(group)))
        uuids = tuple(gpu.static.uuid for gpu in frame.snapshot.gpus[first : first + len(group)])
        target = Target("gpu", uuids[0], tuple(zip(ends, uuids, strict=True)))
        for row in range(rows):
            line = Line()
            for pane, wide in zip(group, widths, strict=True):
                line.lay(pane[row], wide)
            out.add(line.row(width), target)
