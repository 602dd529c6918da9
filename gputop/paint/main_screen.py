"""The main screen: which block gets how many rows, and the rows themselves.

Height is given out in a fixed order: header, every GPU on at least one line, the selected GPU's words, the host, the
processes; what is left makes panes taller. The result has exactly the asked size, whatever that is.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.text import terminal_safe
from gputop.monitor import Frame
from gputop.paint import big_pane, gpu_list, header, hint, host, layout, panes, process_table
from gputop.paint.glyphs import ascii_only
from gputop.paint.line import Line, Painted, Row, Target, words_target
from gputop.paint.replay_bar import bar_rows, bar_targets
from gputop.paint.text import shorten
from gputop.paint.view import View, selected_gpu
from gputop.paint.words import gpu_label

HOST_ROWS = 4
LEAST_PANE_WIDTH = 96
LEAST_CHART_WIDTH, LEAST_CHART_ROWS = 60, 3
"""Smaller than this the selected GPU of the list gets no chart of its own."""
LEAST_SIZE = (20, 4)
LEAST_ABOVE_LANES = 8
"""A pane has lanes when so many rows are left for its chart, numbers and words."""


class _Rows:
    """Collects rows with their targets and stops at the screen's height."""

    def __init__(self, height: int) -> None:
        self.height = height
        self.rows: list[Row] = []
        self.targets: list[Target | None] = []

    def add(self, row: Row, target: Target | None = None) -> None:
        if len(self.rows) < self.height:
            self.rows.append(row)
            self.targets.append(target)

    def extend(self, rows: list[Row], target: Target | None = None) -> None:
        for row in rows:
            self.add(row, target)

    @property
    def left(self) -> int:
        return self.height - len(self.rows)


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
        self._top = _Rows(0)
        self._targets: list[Target | None] = []
        self._shown_for: Frame | None = None
        self._shown_key: tuple[object, ...] = ()
        self._shown: list[process_table.Shown] = []
        self._drawn_key: tuple[object, ...] = ()
        self._drawn: dict[tuple[int, bool], Row] = {}
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
        bar: list[Row] = []
        foot: list[Target | None] = []
        if view.replay is not None:
            selected = selected_gpu(frame, view)
            bar = bar_rows(frame, view.replay, selected, view.glyphs, width, height, view.utc_offset_s)
            foot = bar_targets(bar, frame, view.replay, selected, width, height)
        elif view.hint and height >= hint.LEAST_HEIGHT:
            bar, foot = [hint.hint_row(view.hint, width)], [hint.hint_target(view.hint, width)]
        height -= len(bar)
        above = replace(
            view, process=None, scroll=0, command_at=0, sort="", inverted=False, search="", tagged=frozenset()
        )
        key = (above, width, height)
        if frame is not self._frame or key != self._key:
            self._top = _upper(frame, view, width, height)
            self._frame, self._key = frame, key
        out = _Rows(height)
        out.rows, out.targets = list(self._top.rows), list(self._top.targets)
        self.process_room = max(1, out.left - 2)
        self._add_processes(out, frame, view, shown, width)
        empty = Line().row(width)
        while out.left > 0:
            out.add(empty)
        rows = out.rows + bar
        out.targets += foot
        if view.glyphs.name == "ascii":
            rows = [_refit(tuple((ascii_only(text), style) for text, style in row), width) for row in rows]
        self._targets = out.targets
        return Painted(rows, out.targets)

    def shown_rows(self, frame: Frame, view: View) -> list[process_table.Shown]:
        """As ``process_table.shown_rows``, made once for each frame and order: a key that is held asks often."""
        key = (view.sort, view.inverted, view.tree, view.filter, view.glyphs)
        if frame is not self._shown_for or key != self._shown_key:
            self._shown = process_table.shown_rows(frame, view)
            self._shown_for, self._shown_key = frame, key
            self._drawn.clear()
        return self._shown

    def _add_processes(
        self, out: _Rows, frame: Frame, view: View, shown: list[process_table.Shown], width: int
    ) -> None:
        if out.left < 3:
            return
        count = sum(not row.branch for row in shown)
        title = process_table.title(frame, view, width, count)
        out.add(title, process_table.title_target(title))
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
        key, drawn = (view.columns, view.tagged, view.command_at, width), self._drawn
        if key != self._drawn_key:
            drawn.clear()
            self._drawn_key = key
        for i in range(first, min(first + room, len(shown))):
            row = drawn.get((i, i == at))
            if row is None:
                row = drawn[i, i == at] = process_table.row(shown[i], view, width, selected=i == at)
            out.add(row, Target("process", process_table.key_of(shown[i].process)))

    def target(self, row: int, column: int = 0) -> Target | None:
        """What a cell of the screen painted last stands for."""
        target = self._targets[row] if 0 <= row < len(self._targets) else None
        return target.at(column) if target is not None else None


def _upper(frame: Frame, view: View, width: int, height: int) -> _Rows:
    """Header, GPUs and host: everything above the process table."""
    out = _Rows(height)
    top = header.header(frame, view, width)
    out.add(top, header.header_target(top))
    out.add(header.summary(frame, view, width), header.summary_target(frame, view, width))
    gpus = len(frame.snapshot.gpus)
    if gpus and view.layout != "list" and view.density == "standard" and _big(gpus, width, height):
        _big_panes(out, frame, view, width)
    elif gpus and not (view.layout != "list" and _panes(out, frame, view, width)):
        _list(out, frame, view, width)
    return out


def _refit(row: Row, width: int) -> Row:
    """ASCII forms can be longer than what they replace: bring the row back to its width."""
    return row if sum(len(text) for text, _ in row) == width else Line().add_all(row).row(width)


def _big(gpus: int, width: int, height: int) -> bool:
    return width >= 80 and ((gpus == 1 and height >= 28) or (gpus == 2 and height >= 46))


def _big_panes(out: _Rows, frame: Frame, view: View, width: int) -> None:
    """One or two GPUs: tall charts with lanes, words, numbers, and the host on one line."""
    selected = selected_gpu(frame, view)
    gpus = frame.snapshot.gpus
    count = len(gpus)
    lanes = len(big_pane.LANES) + 1
    # Titles and time axes, lanes, three rows of words, two of numbers, two of the host, the table's head.
    needed = count * 2 + lanes + 3 + 2 + 2 + 2
    room = out.left - needed - layout.LEAST_PROCESSES
    air = room - 9 * count >= 3
    rows = layout.big_chart(5 if count == 1 else 4, room - (3 if air else 0), count, out.height)
    empty = Line().row(width)
    for position in range(count):
        out.extend(big_pane.chart(frame, view, position, width, rows), Target("gpu", gpus[position].static.uuid))
        if position == selected:
            out.extend(big_pane.lanes(frame, view, position, width))
            if air:
                out.add(empty)
            out.extend(big_pane.said(frame, view, position, width, 3))
            if air:
                out.add(empty)
            out.extend(big_pane.numbers(frame, view, position, width))
    out.add(host.load(frame, view, width))
    out.add(host.attribution_rows(frame, view, width)[0])
    if air:
        out.add(empty)


def _columns(width: int, gpus: int) -> int:
    """How many panes stand side by side."""
    most = max(1, min(width // LEAST_PANE_WIDTH, 3, gpus))
    return layout.panes_beside(most, gpus) if width >= 2 * LEAST_PANE_WIDTH + 8 else 1


class _Block(Struct, frozen=True):
    position: int
    rows: int


def _panes(out: _Rows, frame: Frame, view: View, width: int) -> bool:
    """Panes as tall as the height allows; False when even one row a GPU beside one small pane does not fit."""
    if width < LEAST_PANE_WIDTH:
        return False
    count = len(frame.snapshot.gpus)
    selected = selected_gpu(frame, view)
    beside = _columns(width, count)
    free = out.left - HOST_ROWS - 2
    if beside > 1:
        rows = layout.side_by_side(-(-count // beside), free, view.density)
        if not rows:
            return False
        _grid(out, frame, view, width, beside, rows)
    else:
        sizes = layout.stacked(count, free, view.density)
        if sizes is None:
            return False
        blocks = [_Block(i, sizes[0] if i == selected else sizes[1]) for i in range(count)]
        _stack(out, frame, view, width, blocks)
    out.add(host.title(frame, view, width))
    out.add(host.load(frame, view, width))
    out.extend(host.attribution_rows(frame, view, width))
    return True


def _stack(out: _Rows, frame: Frame, view: View, width: int, blocks: list[_Block]) -> None:
    labels = max(len(gpu_label(gpu)) for gpu in frame.snapshot.gpus)
    chart = round((width - panes.LABEL_WIDTH) * 0.3)
    heads = next((block.position for block in blocks if block.rows == 1), None)
    for block in blocks:
        if block.position == heads:
            out.add(gpu_list.list_header(width, chart, labels, view.span_s))
        position, rows = block.position, block.rows
        target = Target("gpu", frame.snapshot.gpus[position].static.uuid)
        if rows == 1:
            out.add(gpu_list.list_row(frame, view, position, width, chart, labels, selected=False), target)
        else:
            out.extend(_pane(frame, view, position, width, rows), target)


def _pane(frame: Frame, view: View, position: int, width: int, rows: int) -> list[Row]:
    """One pane; a tall one has the host's lanes below its chart, on the same time axis."""
    lanes = 1 + len(big_pane.LANES)
    if rows - 1 - lanes < LEAST_ABOVE_LANES:
        return [panes.title(frame, view, position, width), *panes.body(frame, view, position, width, rows - 1)]
    beside = panes.LABEL_WIDTH + panes.chart_width(width) + 1 + big_pane.AXIS_WIDTH
    return [
        panes.title(frame, view, position, width),
        *panes.body(frame, view, position, width, rows - 1 - lanes),
        *(Line().add_all(row).row(width) for row in big_pane.lanes(frame, view, position, beside)),
    ]


def _grid(out: _Rows, frame: Frame, view: View, width: int, beside: int, rows: int) -> None:
    """Panes side by side, filled row by row; where the last row has fewer panes, they are wider."""
    count = len(frame.snapshot.gpus)
    for first in range(0, count, beside):
        here = min(beside, count - first)
        widths = [width // here + (1 if i < width % here else 0) for i in range(here)]
        group = [_pane(frame, view, first + i, widths[i], rows) for i in range(here)]
        ends = tuple(sum(widths[: i + 1]) for i in range(len(group)))
        uuids = tuple(gpu.static.uuid for gpu in frame.snapshot.gpus[first : first + len(group)])
        target = Target("gpu", uuids[0], tuple(zip(ends, uuids, strict=True)))
        for row in range(rows):
            line = Line()
            for pane in group:
                line.add_all(pane[row])
            out.add(line.row(width), target)


def _list(out: _Rows, frame: Frame, view: View, width: int) -> None:
    """One line a GPU, then the words of the selected one, and the host on one line where there is room."""
    gpus, selected = frame.snapshot.gpus, selected_gpu(frame, view)
    chart = 0 if width < 60 else 11 if width < 100 else width // 4
    labels = max(len(gpu_label(gpu)) for gpu in gpus)
    if out.left > len(gpus) + 2 or out.left > 8:
        out.add(gpu_list.list_header(width, chart, labels, view.span_s))
    room = layout.listed(len(gpus), out.left)
    first = max(0, min(selected - room // 2, len(gpus) - room))
    for position in range(first, first + room):
        row = gpu_list.list_row(frame, view, position, width, chart, labels, selected=position == selected)
        out.add(row, Target("gpu", gpus[position].static.uuid))
    d = frame.diagnoses[selected]
    evidence, remedy, extra = panes.words_for(gpus[selected], d, view.glyphs, width - 2)
    # Left below the chart: four rows of words, the host, the table's two heads; the chart has a title and a time line.
    left = out.left - 9
    rows = layout.few_listed_chart(left) if len(gpus) <= 2 else layout.grown(0, left, out.left)
    if width >= LEAST_CHART_WIDTH and rows >= LEAST_CHART_ROWS and view.density == "standard":
        out.extend(big_pane.chart(frame, view, selected, width, rows), Target("gpu", gpus[selected].static.uuid))
    elif out.left >= 8:
        rule = view.glyphs.rule
        line = Line().add(rule, "rule").add(f" {gpu_label(gpus[selected])} ", "title")
        if room < len(gpus):
            line.add(f" {room} of {len(gpus)} GPUs shown, [ ] for the others ", "dim")
        named = line.rule(width, rule).row(width)
        out.add(named, words_target(named, (("[", "previous_gpu"), ("] for", "next_gpu"))))
    words = max(1, min(4, out.left - 6)) if out.left >= 8 else min(2, out.left)
    said = panes.spoken(d, view.glyphs, evidence, remedy, width - 2, words) + extra
    for spans in panes.first_rows(said, words, width - 2, view.glyphs):
        out.add(Line().add(" ").add_all(spans).row(width))
    if out.left >= 6:
        out.add(host.load(frame, view, width, indent=1))
