"""Parameters of a test that the quick part leaves out, because others of their kind are in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def quick_ones(values: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Return all values for ``parametrize``; those beside the quick ones are slow."""
    return [
        value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values
    ]
