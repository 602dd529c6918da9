"""A command line without the number of its rank.

Ranks of one job differ by the digit directly after a rank word. Settings are no ranks: ``--lora_rank 8``, ``--tp 4``.
"""

from __future__ import annotations

import re

from msgspec import Struct

_OF_PARALLELISM = r"(?<![A-Za-z0-9])(?:TP|PP|DP|EP|CP|SP)_?\d+(?![A-Za-z0-9])"
"""vLLM's and SGLang's titles: ``Worker_TP0``, ``scheduler_DP1_TP0``; never ``--tp 4``, which is a size."""
_BY_WORD = (
    r"(?<![A-Za-z0-9_])(?<![A-Za-z0-9]-)(?:(?:local|node|global|world|machine|process)[_-]?)?rank[=: ]?\d+"
    r"(?![A-Za-z0-9.])"
)
"""``--local_rank=0``, ``rank 1``; never ``--lora_rank 8``, which is a setting."""
_BY_PROCESS = r"(?<![A-Za-z0-9_])(?:process|proc)[_-]?(?:id|index)[=: ]\d+(?![A-Za-z0-9.])"
_RANK = re.compile(f"(?:{_OF_PARALLELISM})|(?i:{_BY_WORD})|(?i:{_BY_PROCESS})")
_DIGITS = re.compile(r"\d+")


class RankedCommand(Struct, frozen=True):
    """A command line without its rank, and the numbers that stood there."""

    text: str
    numbers: tuple[int, ...]


def ranked_command(command: str) -> RankedCommand:
    """Return a command line with the digits after rank words taken out.

    A separator before the digits may be ``_``: titles join their parts by it.
    """
    parts = command.replace("_TP", " TP").replace("_PP", " PP").replace("_DP", " DP")
    parts = parts.replace("_EP", " EP").replace("_CP", " CP").replace("_SP", " SP")
    numbers: list[int] = []

    def without_digits(match: re.Match[str]) -> str:
        numbers.extend(int(digits) for digits in _DIGITS.findall(match[0])[-1:])
        return _DIGITS.sub("#", match[0])

    return RankedCommand(_RANK.sub(without_digits, parts), tuple(numbers))
