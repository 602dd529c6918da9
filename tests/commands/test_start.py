"""What a start does not import before the first picture: what is used later, or never."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nvml.stand_in import Scenario
from tests.support.pty_program import ROOT, PtyProgram

LIBRARIES = frozenset((
    "asyncio", "dataclasses", "difflib", "email", "hashlib", "html", "http", "httpx",
    "logging", "mcp", "pathlib", "platformdirs", "psutil", "rich", "ssl", "textual",
))  # fmt: skip
"""Libraries that are needed later or never. What msgspec, nvidia-ml-py and Python take along is not ours to choose."""
PARTS = frozenset((
    "alerting", "alerts", "api", "export", "fleet", "integrations", "loader_bench", "parser", "player", "proof",
    "prove", "recorder", "reference", "report", "screens", "secret_rules", "simulation", "traces", "web",
))  # fmt: skip
"""Parts of gputop that the first picture does not show: folders, and files by the last word of their name."""


@pytest.mark.nvml
def test_a_start_imports_nothing_before_the_first_picture_that_is_used_later(
    nvml_scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    scenario = nvml_scenario(8)
    scenario.write()
    imported = _imported(
        {**scenario.environment(), "XDG_CONFIG_HOME": str(tmp_path)}, tmp_path / "modules"
    )
    ours = {name for name in imported if name.partition(".")[0] == "gputop"}
    early = imported & LIBRARIES | {name for name in ours if PARTS & set(name.split("."))}
    assert ours, "nothing was drawn"
    assert not early, (
        f"{sorted(early)}: imported before the first picture; import it where it is used, or after it"
    )


def _imported(environment: dict[str, str], file: Path) -> set[str]:
    """The modules that a start without arguments imports until its first picture is drawn."""
    script = str(ROOT / "tests" / "support" / "until_first_picture.py")
    with PtyProgram(env=environment, within=(sys.executable, script, str(file))) as program:
        program.end()
    return set(file.read_text(encoding="utf-8").split())
