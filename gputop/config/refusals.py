"""Why a setting does not accept a value: one line that says what it may be. Imported only when one is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args, get_origin

from msgspec import Meta

from gputop.model.cards import LIST_PRICE
from gputop.model.expression import nearest
from gputop.model.feature_table import hook
from gputop.paint.theme import THEME_NAMES

MOST_PRICE = 1e6
_PRICE = 'price must be a number from 0 to 1,000,000, or "list", not {!r}'


def refusal(setting: str, kind: Any, meta: Meta, value: Any) -> str:
    """Why a value is not of a setting's type, or out of its bounds."""
    name = setting.replace("_", "-")
    if kind is bool:
        return f"{name} must be true or false, not {value!r}"
    if kind is float:
        if isinstance(value, bool) or not _is_number(value):
            return f"{name} must be a number, not {value!r}"
        unit = f" {meta.extra['unit']}" if meta.extra else ""
        return f"{name} must be from {meta.ge:,g} to {meta.le:,.10g}{unit}, not {value}"
    if name == "price":
        return _PRICE.format(value)
    if get_origin(kind) is Literal:
        return _not_one_of(get_args(kind), str(value), name)
    if name == "columns":
        return f'columns must be a list of texts such as ["pid", "command"], not {value!r}'
    if name == "keys" and isinstance(value, dict):
        action, bad = next(item for item in value.items() if not isinstance(item[1], str))
        return f'[keys] {action} must be a text such as "q,ctrl+c", not {bad!r}'
    if name == "keys":
        return f'keys must be a table [keys] of lines such as quit = "q,ctrl+c", not {value!r}'
    if name == "alert":
        # Not quoted: an alert may hold addresses with tokens in them.
        return "alert must be tables, each of which begins with a line [[alert]]"
    if name == "fleet":
        return 'fleet must be tables [fleet.NAME] of lines such as url = "https://prometheus.example"'
    return f"{name} must be a text, not {value!r}"


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def _not_one_of(allowed: Iterable[str], value: str, kind: str) -> str:
    return f"no {kind} {value!r}: choose one of {', '.join(allowed)}{nearest(value, allowed)}"


def objection(setting: str, value: Any) -> str | None:
    """What is wrong with a value of the right type, where a setting asks for more than a type; None if it is right."""
    if setting == "theme" and value not in THEME_NAMES:
        return _not_one_of(THEME_NAMES, value, "theme")
    if setting == "price" and value != LIST_PRICE and not 0.0 <= value <= MOST_PRICE:
        return _PRICE.format(value)
    if setting == "columns":
        return _wrong_column(value)
    if setting == "fleet":
        from gputop.model.fleet_settings import fault_of

        fault = fault_of(value)
        return None if fault is None else fault.words
    check: Callable[[Any], str | None] | None = hook("settings", setting)
    return None if check is None else check(value)


def _wrong_column(chosen: tuple[str, ...]) -> str | None:
    """What is wrong with columns of the process table: unknown ones, and duplicates."""
    from gputop.paint.process_columns import COLUMNS

    for column in chosen:
        if column not in COLUMNS:
            return f"no column {column!r}{nearest(column, COLUMNS)}"
        if chosen.count(column) > 1:
            return f"column {column} is listed twice: leave one of them out"
    return None
