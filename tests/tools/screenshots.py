"""The pictures of the README: ``python -m tests.tools.screenshots`` makes them anew, a test says when they are old."""

from __future__ import annotations

import sys
from pathlib import Path

from gputop.cli import main
from gputop.sources.simulation.scenarios import SCENARIOS

FOLDER = Path(__file__).parents[2] / "screenshots"
SIZES = {"main": (None, "160x48"), "small": (None, "80x24"), "one_gpu": ("one_gpu", "120x36")}


def pictures() -> dict[str, list[str]]:
    """File name → arguments of ``gputop screenshot`` after the output: three sizes, and each scenario."""
    made = {f"{name}.svg": _arguments(scenario, size) for name, (scenario, size) in SIZES.items()}
    for name in SCENARIOS:
        made.setdefault(f"scenario_{name}.svg", _arguments(name, "120x30"))
    return made


def _arguments(scenario: str | None, size: str) -> list[str]:
    return ["screenshot", "demo", *([scenario] if scenario else []), "--size", size]


def write(folder: Path) -> None:
    """Make every picture in a folder."""
    for name, arguments in pictures().items():
        if main([*arguments, "-o", str(folder / name)]) != 0:
            sys.exit(f"{name} could not be made")


if __name__ == "__main__":
    for old in FOLDER.glob("*.svg"):
        old.unlink()
    write(FOLDER)
