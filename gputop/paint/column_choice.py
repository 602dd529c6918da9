"""Choosing columns: which are shown, in which order. Pure steps on a tuple of keys, and the rows that show it."""

from __future__ import annotations

from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row
from gputop.paint.process_columns import COLUMNS, columns_for
from gputop.paint.text import fit, folded

HEAD_WIDTH = 13
NAME_WIDTH = 24


def listed(chosen: tuple[str, ...]) -> tuple[str, ...]:
    """All columns in the order of the list: the chosen ones as they stand in the table, then the others."""
    return (*chosen, *(key for key in COLUMNS if key not in chosen))


def toggled(chosen: tuple[str, ...], key: str) -> tuple[str, ...]:
    """With a column added at the end (before COMMAND, which takes the remaining width) or removed; one stays."""
    if key in chosen:
        return tuple(k for k in chosen if k != key) if len(chosen) > 1 else chosen
    if chosen and chosen[-1] == "command":
        return (*chosen[:-1], key, "command")
    return (*chosen, key)


def moved(chosen: tuple[str, ...], key: str, step: int) -> tuple[str, ...]:
    """With a chosen column one place further left (-1) or right (1)."""
    if key not in chosen:
        return chosen
    at = chosen.index(key)
    to = max(0, min(len(chosen) - 1, at + step))
    rest = [k for k in chosen if k != key]
    rest.insert(to, key)
    return tuple(rest)


def heading_rows(chosen: tuple[str, ...], width: int) -> list[Row]:
    """What stands above the list: a title, and the line for the configuration that keeps the choice."""
    keep = f"""to keep them, in the configuration file: columns = [{", ".join(f'"{key}"' for key in chosen)}]"""
    return [
        Line().add(" columns of the process table", "title").row(width),
        *(Line().add("  ").add(part, "dim").row(width) for part in folded(keep, width - 4)),
        Line().row(width),
    ]


def column_rows(chosen: tuple[str, ...], at: str, glyphs: Glyphs, width: int) -> list[Row]:
    """The list. A chosen column that does not fit this width says so."""
    fits = {place.column.key for place in columns_for(width, chosen)}
    rows = heading_rows(chosen, width)
    for key in listed(chosen):
        column = COLUMNS[key]
        on = key in chosen
        line = Line().add(f"  {'[x]' if on else '[ ]'} ", "value" if on else "dim")
        line.add(f"{column.head:<{HEAD_WIDTH}}", "strong" if on else "text").add(f"{key:<{NAME_WIDTH}}", "dim")
        words = column.definition if not on or key in fits else f"(no room at this width) {column.definition}"
        line.add(fit(words, max(1, width - line.width - 1), glyphs.more), "text")
        rows.append(line.row(width, "select" if key == at else None))
    return rows
