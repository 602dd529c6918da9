"""How many examples a property is tried with: few in the quick part, more in the slow one, any number by hand."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

LONGER_BY = "GPUTOP_FUZZ"
"""The environment variable that multiplies them: ``long`` or a number."""
LONG = 500


def _longer() -> int:
    asked = os.environ.get(LONGER_BY, "1")
    return LONG if asked == "long" else int(asked)


def looks(count: int) -> settings:
    """So many examples, however slow the machine; always the same ones unless a long run is asked for."""
    longer = _longer()
    return settings(
        max_examples=count * longer,
        deadline=None,
        derandomize=longer == 1,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.function_scoped_fixture,
        ],
    )
