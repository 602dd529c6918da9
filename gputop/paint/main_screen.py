"""The main screen: division of rows, and the rows.

Height is given out in a fixed order: header, every GPU on at least one line, the selected GPU's words, the host, the
processes; the rest makes panes taller. The result has exactly the asked size, whatever that is.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from gputop.diagnosis.verdict.summary import summarize
from gputop.model.clean_text import terminal_safe
from gputop.monitor import Frame
from gputop.paint import gpu_list, header, host_rows, panes, process_table, screen_division
from gputop.paint.cells import shorten
from gputop.paint.hint_row import LEAST_HEIGHT, hint_line, last_hint
from gputop.paint.line import Line, Painted, Row, ScreenRows, Target, for_terminal, text_row
from gputop.paint.panes import ShownGpu
from gputop.paint.process_filter import NO_FILTER
from gputop.paint.view import View, selected_gpu
from gputop.paint.words import badge_rows, gpu_label, verdict_lines

LEAST_SIZE = (20, 4)
LEAST_TABLE = 3
"""Rows of the process table: its title, its heads and one process. With fewer the title stands alone."""
LEAST_TITLED = 46
"""Rows of a screen whose host always has a heading, with the totals of the GPUs in it."""
LEAST_CHART_WIDTH, LEAST_CHART_ROWS = 60, 3
"""With fewer rows the selected GPU of the list gets no chart of its own."""

_BELOW: dict[str, Any] = {
    "process": None, "scroll": 0, "command_at": 0, "sort": "", "inverted": False, "tree": "auto",
    "columns": (), "filter": NO_FILTER, "search": "", "tagged": frozenset(),
}  # fmt: skip
"""What of a view concerns the process table alone, each as nothing: GPUs and host show the same whatever it is."""


def main_screen(frame: Frame, view: View, width: int, height: int) -> Painted:
    """The whole screen in exactly ``height`` rows of ``width`` cells."""
    return Painter().paint(frame, view, width, height)


class Painter:
    """Paints screens and keeps their common part.

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
        """Return the screen of one frame in exact size."""
        if width < LEAST_SIZE[0] or height < LEAST_SIZE[1]:
            rows = [text_row("too small", width), *[Line().row(width)] * (height - 1)][:height]
            return Painted(rows, [None] * height)
        shown = self.shown_rows(frame, view)
        self.process_count = len(shown)
        hinted = bool(view.hint) and height >= LEAST_HEIGHT
        # Looking back changes nothing above the processes: the time line takes its rows from them.
        upper = height - 1 if hinted else height
        key = (replace(view, **_BELOW), width, upper)
        if frame is not self._frame or key != self._key:
            self._top = _upper(frame, view, width, upper)
            self._frame, self._key = frame, key
        bar: list[Row] = []
        foot: list[Target | None] = []
        if view.replay is not None:
            from gputop.paint.replay_bar import bar_height, replay_bar

            room = screen_division.bar_room(
                height - len(self._top.rows), bar_height(frame, view.replay)
            )
            bar, foot = replay_bar(frame, view, view.replay, width, room)
        elif hinted:
            line = hint_line(last_hint(frame, view), width)
            bar, foot = [line.row(width, "bar")], [line.target()]
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
        """Return the table's rows, computed once per frame.

        A key that is held asks often.
        """
        key = (
            view.sort,
            view.inverted,
            view.tree,
            view.filter,
            view.glyphs,
            selected_gpu(frame, view),
        )
        if frame is not self._shown_for or key != self._shown_key:
            shown = process_table.shown_rows(frame, view)
            # Nothing changes its place below the eye of somebody who tags.
            if view.tagged and key == self._shown_key:
                shown = process_table.in_order_of(shown, self._shown)
            self._shown, self._shown_for, self._shown_key = shown, frame, key
        return self._shown

    def _add_processes(
        self,
        out: ScreenRows,
        frame: Frame,
        view: View,
        shown: list[process_table.ShownProcess],
        width: int,
    ) -> None:
        if out.left < 1:
            return
        count = sum([not row.branch for row in shown])
        title = process_table.title(view, width, count)
        out.add(title.row(width), title.target())
        if out.left < LEAST_TABLE - 1:
            if out.left > 0:
                out.add(text_row("their rows need a higher screen", width, "dim", 2))
            return
        out.add(process_table.head(view, width), Target("header", None))
        if not shown:
            reason = process_table.nothing_words(frame, view)
            out.add(text_row(shorten(terminal_safe(reason), width - 3), width, "dim", 2))
            return
        at = process_table.cursor(shown, frame, view)
        room = out.left
        first = max(0, min(view.scroll, len(shown) - room))
        if view.process is not None and at >= 0:
            first = max(min(first, at), at - room + 1)
        for i in range(first, min(first + room, len(shown))):
            row = process_table.row(shown[i], view, width, selected=i == at)
            out.add(row, Target("process", process_table.key_of(shown[i].process)))

    def target(self, row: int, column: int = 0) -> Target | None:
        """Return the target of a painted cell."""
        target = self._targets[row] if 0 <= row < len(self._targets) else None
        return target.at_column(column) if target is not None else None


def _upper(frame: Frame, view: View, width: int, height: int) -> ScreenRows:
    """Header, GPUs and host: everything above the process table."""
    out = ScreenRows(height)
    bar, counts = header.header(frame, view, width), header.summary(frame, view, width)
    out.add(bar.row(width), bar.target())
    out.add(counts.row(width), counts.target("count"))
    gpus = [ShownGpu(frame, view, position) for position in range(len(frame.shown.gpus))]
    if not gpus:
        return out
    if view.layout == "panes":
        is_done = _add_panes(out, gpus, width, least=1)
    elif view.layout == "scroll":
        least = screen_division.LEAST_BESIDE
        is_done = _add_panes(out, gpus, width, least) or _add_scrolled_panes(out, gpus, width)
    else:
        is_done = False
    if not is_done:
        _add_list(out, gpus, width)
    return out


def _add_scrolled_panes(out: ScreenRows, gpus: list[ShownGpu], width: int) -> bool:
    """Add as many panes as fit around the selected GPU, where they are, and the host.

    False where not even one pane fits.
    """
    if width < LEAST_CHART_WIDTH:
        return False
    frame, view, count = gpus[0].frame, gpus[0].view, len(gpus)
    first, heights = screen_division.forced_panes(count, selected_gpu(frame, view), out.left)
    if sum(heights) > out.left:
        return False
    title_widths = panes.title_widths(frame)
    shown = gpus[first : first + len(heights)]
    for g, rows in zip(shown, heights, strict=True):
        out.extend(panes.pane(g, width, rows, title_widths), _target(g))
    if len(shown) < count and out.left > 0:
        numbers = f"GPU {gpu_label(shown[0].gpu)} to {gpu_label(shown[-1].gpu)} of {count}"
        place = (
            Line()
            .add("─", "rule")
            .add(f" {numbers}   ", "dim")
            .add("[", "title.key", "previous_gpu")
        )
        place.add(" ", "dim").add("]", "title.key", "next_gpu").add(" scroll ", "dim").rule(width)
        out.add(place.row(width), place.target())
    if out.left > 0:
        out.add(host_rows.load(frame, view, width))
    return True


def _target(g: ShownGpu) -> Target:
    return Target("gpu", g.gpu.static.uuid)


def _add_list(out: ScreenRows, gpus: list[ShownGpu], width: int) -> None:
    """Add one line for each GPU.

    Then the words of the selected one, and the host on one line where there is room.
    """
    frame, view = gpus[0].frame, gpus[0].view
    selected = gpus[selected_gpu(frame, view)]
    chart = 0 if width < 60 else 11 if width < 100 else width // 4
    labels = max(len(gpu_label(g.gpu)) for g in gpus)
    if out.left > len(gpus) + 2 or out.left > 8:
        out.add(gpu_list.list_header(width, chart, labels, view.span_s))
    room = screen_division.listed(len(gpus), out.left)
    first = max(0, min(selected.position - room // 2, len(gpus) - room))
    for g in gpus[first : first + room]:
        out.add(gpu_list.list_row(g, width, chart, labels, selected=g is selected), _target(g))
    # Left below the chart: four rows of words, the host, the table's two heads; the chart has a title and a time line.
    badges = badge_rows(summarize(selected.d), width - 2)
    rows_below = out.left - 9
    rows = screen_division.chart_below_list(len(gpus), out.left, rows_below - badges)
    if rows < LEAST_CHART_ROWS:
        # The chart stays: then the words of badges take rows of processes.
        rows = screen_division.chart_below_list(len(gpus), out.left, rows_below)
    has_chart = width >= LEAST_CHART_WIDTH and rows >= LEAST_CHART_ROWS
    if has_chart or out.left >= 8:
        named = gpu_list.list_title(selected, room, width)
        out.add(named.row(width), named.target())
    if has_chart:
        out.extend(panes.chart(selected, width, rows, titled=False), _target(selected))
    words = max(1, min(4 + badges, out.left - 6)) if out.left >= 8 else min(2, out.left)
    for spans in verdict_lines(selected.gpu, selected.d, width - 2, words):
        out.add(Line().add(" ").add_all(spans).row(width))
    if out.left >= 6:
        out.add(host_rows.load(frame, view, width, indent=1))


def _add_panes(out: ScreenRows, gpus: list[ShownGpu], width: int, least: int) -> bool:
    """Add panes as tall as the height allows, and the host.

    False when ``least`` rows a GPU beside one small pane do not fit.
    """
    frame, view, count = gpus[0].frame, gpus[0].view, len(gpus)
    load, attribution = (
        host_rows.load(frame, view, width),
        host_rows.attribution_rows(frame, view, width),
    )
    # The host in one row; with a heading and what it did meanwhile where a GPU waits for it, or there is much room.
    has_title = count > 2 and (
        bool(attribution) or (width >= host_rows.LEAST_TOTALS and out.height >= LEAST_TITLED)
    )
    host = [load, *attribution]
    if has_title:
        host.insert(0, host_rows.title(frame, width, [g.gpu for g in gpus]))
    heights = screen_division.pane_heights(
        count, selected_gpu(frame, view), width, out.left - len(host) - 2
    )
    if not heights or min(heights) < least:
        return False
    per_line = -(-count // len(heights))
    title_widths = panes.title_widths(frame)
    chart = round((width - panes.LABEL_WIDTH) * 0.3)
    for line, rows in enumerate(heights):
        group = gpus[line * per_line : (line + 1) * per_line]
        if rows == 1:
            if 1 not in heights[:line]:
                out.add(gpu_list.list_header(width, chart, title_widths[0], view.span_s))
            out.add(
                gpu_list.list_row(group[0], width, chart, title_widths[0], selected=False),
                _target(group[0]),
            )
            continue
        # If the last line has fewer panes, they are wider.
        widths = [width // len(group) + (i < width % len(group)) for i in range(len(group))]
        is_full = rows >= screen_division.LEAST_FULL and (per_line > 1 or count <= 2)
        below = max(panes.rows_below(g, rows) for g in group)
        painted = [
            panes.full_pane(g, wide, rows, title_widths, below)
            if is_full
            else panes.pane(g, wide, rows, title_widths)
            for g, wide in zip(group, widths, strict=True)
        ]
        ends = tuple((sum(widths[: i + 1]), g.gpu.static.uuid) for i, g in enumerate(group))
        for row in range(rows):
            beside = Line()
            for pane_rows in painted:
                beside.add_all(pane_rows[row])
            out.add(beside.row(width), Target("gpu", ends[0][1], ends))
    out.extend(host)
    return True
