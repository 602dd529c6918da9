"""What a start imports before the first picture: each module there costs a quarter of a millisecond and more."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nvml.stand_in import Scenario
from tests.support.pty_program import ROOT, PtyProgram

LIST = ROOT / "tests" / "golden" / "first_picture.txt"
LATER = frozenset((
    "ast", "asyncio", "ctypes.util", "dataclasses", "difflib", "email", "hashlib", "html", "http", "json",
    "locale", "logging", "platformdirs", "psutil", "random", "rich", "ssl", "subprocess",
    "textual", "textwrap",
))  # fmt: skip
FROM_3_11_ON = frozenset(("inspect", "msgspec.inspect", "platform", "typing_extensions", "uuid"))
"""The same where msgspec is imported without them: Python 3.10 lacks what it takes from typing_extensions."""
"""Libraries that are needed later or never. What msgspec, nvidia-ml-py and Python take along is not ours to choose."""
WHAT_TO_DO = f"""\
imported before the first picture. Import it where it is used, or after the picture; if the first picture cannot do
without it, say in docs/design/speed.md what it costs, and add it to {LIST.relative_to(ROOT)}."""


@pytest.mark.nvml
def test_a_start_imports_nothing_before_the_first_picture_that_is_not_listed(
    nvml_scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    scenario = nvml_scenario(8)
    scenario.write()
    imported = _imported({**scenario.environment(), "XDG_CONFIG_HOME": str(tmp_path)}, tmp_path / "modules")
    ours = {name for name in imported if name.partition(".")[0] == "gputop"}
    listed = set(LIST.read_text(encoding="utf-8").split())
    assert not ours - listed, f"{sorted(ours - listed)}: {WHAT_TO_DO}"
    early = imported & (LATER | FROM_3_11_ON if sys.version_info >= (3, 11) else LATER - {"ast"})
    assert not early, f"{sorted(early)}: {WHAT_TO_DO}"
    assert not listed - ours, f"no longer imported: take {sorted(listed - ours)} out of {LIST.relative_to(ROOT)}"


def _imported(environment: dict[str, str], file: Path) -> set[str]:
    """The modules that a start without arguments imports until its first picture is drawn."""
    script = str(ROOT / "tests" / "support" / "until_first_picture.py")
    with PtyProgram(env=environment, within=(sys.executable, script, str(file))) as program:
        program.end()
    return set(file.read_text(encoding="utf-8").split())
