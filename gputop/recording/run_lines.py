"""The last line of a recording of a program: what ran, how long, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from msgspec import Struct

from gputop.model.quantity import clean_text
from gputop.model.secrets import masked_text
from gputop.recording.format import Damage

MOST_COMMAND = 1000
_MOST_S = 1e10
_STATUSES = range(256)


class RunFacts(Struct, frozen=True):
    """``command`` with its secrets masked, or the name of a program that watches itself; ``seconds`` of wall time;
    ``exit_code`` as a shell has it, None where nobody saw the end."""

    command: str
    seconds: float
    exit_code: int | None = None


def run_value(facts: RunFacts) -> dict[str, Any]:
    """The line's values."""
    told = {} if facts.exit_code is None else {"exit_code": facts.exit_code}
    return {"k": "run", "command": facts.command[:MOST_COMMAND], "seconds": round(facts.seconds, 3), **told}


def run_facts(parsed: Mapping[str, Any]) -> RunFacts:
    """What such a line says. Raises Damage."""
    command, seconds, code = (parsed.get(key) for key in ("command", "seconds", "exit_code"))
    is_time = isinstance(seconds, (int, float)) and isfinite(seconds) and 0.0 <= seconds <= _MOST_S
    if not (isinstance(command, str) and is_time and (code is None or code in _STATUSES)):
        raise Damage("a run that cannot be")
    return RunFacts(masked_text(clean_text(command))[:MOST_COMMAND], float(seconds or 0.0), code)
