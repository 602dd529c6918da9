"""The letters of other programs for who has them in their fingers. A preset only gives actions other keys."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

Preset = Literal["gputop", "nvitop", "htop"]
PRESETS: Mapping[str, Mapping[str, str]] = MappingProxyType({
    "gputop": MappingProxyType({}),
    "nvitop": MappingProxyType({
        "quit": "q,Q", "environment": "e", "tree": "t", "details": "enter", "signal": "K,f9", "untag": "U,c",
        "layout": "C", "columns": "f2", "first": "home", "last": "end",
    }),
    "htop": MappingProxyType({
        "quit": "q,f10", "signal": "k,f9", "up": "up", "sort_next": "f6", "sort": "o,>", "search": "slash,f3",
        "search_next": "n", "filter": "backslash,f4", "tree": "t,f5", "tag": "space", "columns": "f2,S",
    }),
})  # fmt: skip
"""Preset -> action -> keys, for the actions whose keys differ."""


def wanted_keys(preset: str, own: Mapping[str, str]) -> Mapping[str, str]:
    """The preset's keys, single ones overridden by the user's own."""
    return own if preset == "gputop" else {**PRESETS[preset], **own}
