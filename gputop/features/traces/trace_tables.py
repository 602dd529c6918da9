"""Tables of a trace report: steps, categories, kernels, synchronisations."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.features.traces.kernels import CATEGORY_WORDS, CategoryRow, KernelRow
from gputop.features.traces.trace_report import (
    Measures,
    StepShare,
)
from gputop.model.quantity import number
from gputop.output.document import (
    Bar,
    Cell,
    Table,
)


def ms(value: float) -> str:
    """Milliseconds with three significant digits."""
    return (
        f"{value:.0f}" if value >= 999.5 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
    )


_MOST_SYNCS = 5


def step_table(m: Measures, limit: int) -> Table:
    """Table of the steps; of many the first and the odd ones."""
    rows = m.steps_table
    longest = max((row.ms for row in rows), default=1.0)
    shown = [
        ("…",) + ("",) * 8 if row is None else _step_row(row, longest) for row in _few(rows, limit)
    ]
    return Table(
        ("step", "", "ms", "compute", "comm", "copy", "idle", "data", ""), tuple(shown), "<=>>>>>><"
    )


def _few(rows: Sequence[StepShare], limit: int) -> list[StepShare | None]:
    """All steps, or the first ones and the odd ones.

    None marks steps left out.
    """
    if len(rows) <= limit:
        return list(rows)
    odd = [row for row in rows[2:] if row.flag == "slow"][: limit - 3]
    shown: list[StepShare | None] = list(rows[: limit - 1 - len(odd)])
    return [*shown, None, *(row for row in odd if row not in shown)]


def _step_row(row: StepShare, longest_ms: float) -> tuple[Cell, ...]:
    """A step's row; the bar is relative to the longest step."""
    shares = {"compute": row.compute, "comm": row.comm, "copy": row.copy, "idle": row.idle}
    bar = Bar(tuple((name, name, value * row.ms / longest_ms) for name, value in shares.items()))
    cells = [f"{value:.1f}" for value in (*shares.values(), row.data)]
    return (row.step, bar, f"{row.ms:.1f}", *cells, row.flag or "")


def category_table(m: Measures) -> Table:
    """Table of the time of each category of kernels."""
    rows = tuple(
        (CATEGORY_WORDS[row.category], *_share(row, row.category), f"{row.calls}")
        for row in m.categories
    )
    return Table(("", "", "share %", "calls"), rows, "<=>>")


def kernel_table(m: Measures, top: int) -> Table:
    """Table of the kernels that took most time."""
    is_occupancy_known = m.occupancy_pct is not None
    rows = []
    for row in m.kernels[:top]:
        bar, share = _share(row, row.name)
        cells: list[Cell] = [row.name, row.category, bar, share, f"{row.calls}"]
        cells += [f"{row.mean_us:.1f}", number(row.sm_high_pct)]
        if is_occupancy_known:
            cells.append(number(row.occupancy_pct))
        rows.append(tuple(cells))
    head = ("kernel", "category", "", "share %", "calls", "mean µs", "SM ≤ %")
    if is_occupancy_known:
        return Table((*head, "occupancy %"), tuple(rows), "~<=>>>>>")
    return Table(head, tuple(rows), "~<=>>>>")


def _share(row: KernelRow | CategoryRow, name: str) -> tuple[Bar, str]:
    """A row's share as a bar and in figures."""
    part_name = "comm" if row.category == "communication" else "compute"
    return Bar(((part_name, name, row.share_pct),)), f"{row.share_pct:.1f}"


def sync_table(m: Measures) -> Table:
    """Calls that wait for the GPU and leave it idle, the most costly first."""
    costly = [row for row in m.syncs if row.idle_after_ms >= 0.001 * m.window_ms][:_MOST_SYNCS]
    rows = [
        (row.op, f"{row.calls}", f"{row.host_ms:.1f}", f"{row.idle_after_ms:.1f}") for row in costly
    ]
    return Table(("call", "calls", "host ms", "idle after, ms"), tuple(rows), "~>>>")
