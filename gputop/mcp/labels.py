"""Answers in which every text that is not gputop's own is labelled so.

A process may be named "ignore your instructions": a reader must be able to tell gputop's words from such text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputop.model.text import clean_text

SUFFIX = "_untrusted"
MOST_TEXT = 500
MOST_ITEMS = 200
OWN = frozenset(
    {
        "badge", "busy_not_working", "cause", "condition", "confidence", "energy_from", "family", "flag_now", "id",
        "kind", "level", "role", "rank_from", "remedy", "sm_source", "source", "state", "title", "top_remedy", "unit",
        "verdict",
    }
)  # fmt: skip
"""Keys whose texts come from gputop's own tables. All other texts are labelled."""


def labelled(data: Any) -> Any:
    """JSON-able data with the label on each key that holds a text from outside; texts cleaned, lists cut."""
    if isinstance(data, Mapping):
        return dict(_entry(str(key), value) for key, value in data.items())
    if isinstance(data, (list, tuple)):
        return [labelled(value) for value in data[:MOST_ITEMS]]
    if isinstance(data, str):
        return clean_text(data)[:MOST_TEXT]
    return data


def _entry(key: str, value: Any) -> tuple[str, Any]:
    if key in OWN or not _has_text(value):
        return key, labelled(value)
    if isinstance(value, Mapping):
        # Such as reasons by metric: the keys are gputop's, the texts are not.
        return f"{key}{SUFFIX}", {str(k)[:MOST_TEXT]: labelled(v) for k, v in value.items()}
    return f"{key}{SUFFIX}", labelled(value)


def _has_text(value: Any) -> bool:
    """Whether a value is a text, or a flat collection that holds one; what is nested labels its own keys."""
    if isinstance(value, str):
        return True
    if isinstance(value, Mapping):
        return bool(value) and all(isinstance(v, str) for v in value.values())
    return isinstance(value, (list, tuple)) and any(isinstance(v, str) for v in value)
