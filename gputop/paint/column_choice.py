"""Choice of the process table's columns: which are shown, in which order."""

from __future__ import annotations

from gputop.paint.line import Line, Row, text_row
from gputop.paint.process_columns import COLUMNS, columns_for

HEAD_WIDTH, HEAD_ROWS = 13, 2
NAME_WIDTH = 24


def listed(chosen: tuple[str, ...]) -> tuple[str, ...]:
    """Return all columns, the chosen ones first."""
    return (*chosen, *(key for key in COLUMNS if key not in chosen))


def toggled(chosen: tuple[str, ...], key: str) -> tuple[str, ...]:
    """Add or remove a column.

    It is added before COMMAND, which takes the remaining width; the last column stays.
    """
    if key in chosen:
        return tuple(k for k in chosen if k != key) if len(chosen) > 1 else chosen
    if chosen and chosen[-1] == "command":
        return (*chosen[:-1], key, "command")
    return (*chosen, key)


def moved(chosen: tuple[str, ...], key: str, step: int) -> tuple[str, ...]:
    """Move a chosen column by one place.

    -1 is left, 1 is right.
    """
    if key not in chosen:
        return chosen
    at = chosen.index(key)
    to = max(0, min(len(chosen) - 1, at + step))
    rest = [k for k in chosen if k != key]
    rest.insert(to, key)
    return tuple(rest)


def column_rows(chosen: tuple[str, ...], at: str, width: int) -> list[Row]:
    """Return the list of columns.

    A chosen column that does not fit this width says so.
    """
    fits = {place.column.key for place in columns_for(width, chosen)}
    rows = [
        text_row(" columns of the process table; the palette (:) saves them", width, "title"),
        Line().row(width),
    ]
    for key in listed(chosen):
        column = COLUMNS[key]
        on = key in chosen
        line = Line().add(f"  {'[x]' if on else '[ ]'} ", "value" if on else "dim")
        line.add(f"{column.head:<{HEAD_WIDTH}}", "strong" if on else "text").add(
            f"{key:<{NAME_WIDTH}}", "dim"
        )
        words = (
            column.definition
            if not on or key in fits
            else f"(no room at this width) {column.definition}"
        )
        line.fill(words, width)
        rows.append(line.row(width, "select" if key == at else None))
    return rows
