"""Words of JSON's reasons for missing SM activity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import convert

from gputop.model.sm import SmLack


def sm_words(gpu: Mapping[str, Any]) -> str:
    """Return why SM activity of a GPU in JSON is not measured; empty if it is."""
    return "" if gpu["sm_lack"] is None else convert(gpu["sm_lack"], SmLack).words
