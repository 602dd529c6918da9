"""Durations and sizes as people write them on a command line: ``30s``, ``8h``, ``2G``."""

from __future__ import annotations

import re

from gputop.model.quantity import BINARY, SECONDS
from gputop.model.source import UsageError


def seconds(text: str, option: str) -> float:
    """A duration in seconds. Raises UsageError naming the option."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in SECONDS or float(match[1]) == 0:
        raise UsageError(f"{option} must be a time such as 30s, 10m or 8h, not {text!r}")
    return float(match[1]) * SECONDS[match[2]]


def size_bytes(text: str, option: str) -> int:
    """A size in bytes, with binary units. Raises UsageError naming the option."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,3})?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if match is None or float(match[1]) == 0:
        raise UsageError(f"{option} must be a size such as 500M or 2G, not {text!r}")
    return int(float(match[1]) * BINARY[match[2]])
