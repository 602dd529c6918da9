"""Programs that watch themselves, run under the stand-in driver."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.nvml.stand_in import Scenario
from tests.support.command import ran

ROOT = Path(__file__).parents[2]


def program_on(scenario: Scenario, folder: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a program under the stand-in; its text is dedented."""
    scenario.write()

    def run(
        code: str, *, timeout: float = 90.0, launcher: tuple[str, ...] = (), **environment: str
    ) -> Any:
        path = folder / "program.py"
        path.write_text(textwrap.dedent(code))
        return ran(
            folder, str(path), launcher=launcher or (sys.executable,), timeout=timeout,
            environ=scenario.environment(), **environment,
        )  # fmt: skip

    run.scenario = scenario  # type: ignore[attr-defined]
    return run


def started(scenario: Scenario, folder: Path, code: str) -> subprocess.Popen[str]:
    """A program under the stand-in that goes on running; its stdout is a pipe."""
    (folder / "program.py").write_text(textwrap.dedent(code))
    return subprocess.Popen(
        [sys.executable, "program.py"],
        cwd=folder,
        env={**scenario.environment(), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def said(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])
