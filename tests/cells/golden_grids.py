"""The states as drawn now, and where their golden grids lie."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.nvml.stand_in import Scenario

GOLDEN = Path(__file__).with_name("golden")


class Drawn(NamedTuple):
    """What one state gave: the first GPU's values under the keys of ``once --json``, and a grid for each size."""

    gpu: dict[str, Any]
    grids: dict[str, list[str]]

    @property
    def sizes(self) -> list[str]:
        return list(self.grids)

    def text(self, size: str) -> str:
        return "\n".join(self.grids[size]) + "\n"


def golden_path(state: str, size: str) -> Path:
    return GOLDEN / f"{state}.{size}.txt"


def drawn(library_folder: Path, folder: Path) -> dict[str, Drawn]:
    """All states, drawn by a program that finds the stand-in library."""
    command = [sys.executable, "-m", "tests.cells.draw", str(folder), str(library_folder)]
    environment = Scenario(folder, library_folder).environment()
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=120
    )
    return {name: Drawn(parts.pop("gpu"), parts) for name, parts in json.loads(done.stdout).items()}
