"""Types of measured values, with the bounds of a recording."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

MOST_TEXT = 4096
"""Characters of one text; Linux does not limit /proc/PID/cmdline."""
MOST = 2.0**64
"""The largest number of any measurement."""
Number = Annotated[float, Meta(ge=-MOST, le=MOST)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
UnixTime = Annotated[float, Meta(gt=0.0, lt=1e11)]
"""Seconds since 1970."""
Text = Annotated[str, Meta(max_length=2 * MOST_TEXT)]
Reasons = Annotated[Mapping[str, Text], Meta(max_length=128)]
"""Reasons for missing values, by key."""
