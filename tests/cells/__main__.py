"""Draws every state anew."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.cells.golden_grids import drawn, golden_path
from tests.nvml.stand_in import build

with tempfile.TemporaryDirectory() as folder:
    build(Path(folder))
    for name, parts in drawn(Path(folder), Path(folder)).items():
        for size in parts.sizes:
            golden_path(name, size).write_text(parts.text(size), encoding="utf-8")
