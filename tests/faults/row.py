"""One row of the fault matrix, and the machine on which its fault is made to happen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gputop.model.metrics import GPU_METRICS
from tests.nvml.stand_in import Scenario
from tests.support.pty_program import ROOT, PtyProgram

NOTHING = "–"


@dataclass(frozen=True)
class Row:
    """A fault and what gputop does then.

    ``proof`` makes the fault happen and checks the rest. ``sees`` is shown to the user, word for word; a dash means
    that nothing is. ``status`` is the exit status, None where the program goes on.
    """

    name: str
    sees: str
    status: int | None
    proof: Callable[[Row, World], None]
    slow: bool = False
    """True if the proof takes more than some three seconds."""


@dataclass(frozen=True)
class World:
    """A stand-in driver, an empty home and a program to run there."""

    directory: Path
    make: Callable[..., Scenario]

    def environment(
        self, scenario: Scenario, more: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        scenario.write()
        home = self.directory / "home"
        home.mkdir(exist_ok=True)
        return {
            **scenario.environment(),
            "PYTHONPATH": str(ROOT),
            "HOME": str(home),
            **(more or {}),
        }

    def run(
        self, scenario: Scenario, *arguments: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """``gputop ARGUMENTS`` to its end."""
        return ended(
            [sys.executable, "-m", "gputop", *arguments],
            self.environment(scenario, env),
            self.directory,
        )

    def screen(
        self, scenario: Scenario, *arguments: str, env: Mapping[str, str] | None = None, **more: Any
    ) -> PtyProgram:
        """The live screen in a terminal of its own."""
        return PtyProgram(*arguments, env=self.environment(scenario, env), **more)


def ended(
    command: Sequence[str], environment: Mapping[str, str], cwd: Path
) -> subprocess.CompletedProcess[str]:
    """A command that was run to its end."""
    return subprocess.run(
        command,
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
        check=False,
    )


def holds(row: Row, done: subprocess.CompletedProcess[str]) -> None:
    """The columns of a command that ended: its status, what it said, in one line, and no traceback."""
    assert done.returncode == row.status, done.stderr
    assert row.sees == NOTHING or row.sees in done.stdout + done.stderr, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 1


LONG_S = 300
"""Longer than a test takes on any machine: a watcher is killed once its test has seen enough."""


class Watcher:
    """The local source in another process, read snapshot by snapshot while its driver is changed."""

    def __init__(self, scenario: Scenario, **options: Any) -> None:
        scenario.write()
        arguments = ["live", str(LONG_S), json.dumps({"interval_s": 0.25, **options})]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.local_reader", *arguments],
            env=scenario.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.last: dict[str, Any] = {}

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def until(
        self, wanted: Callable[[dict[str, Any]], bool], snapshots: int = 60
    ) -> dict[str, Any]:
        """The first snapshot that is as wanted. Raises AssertionError when it does not come."""
        assert self._process.stdout is not None
        for _ in range(snapshots):
            line = self._process.stdout.readline()
            assert line, "the source ended: " + (
                self._process.stderr.read() if self._process.stderr else ""
            )
            self.last = json.loads(line)
            if wanted(self.last):
                return self.last
        raise AssertionError(f"never came: {str(self.last)[:3000]}")


def is_healthy(gpu: Mapping[str, Any]) -> bool:
    """Whether a GPU has its values, SM activity with them."""
    return (
        gpu["lost_reason"] is None
        and gpu["util_pct"] is not None
        and gpu["sm_active_pct"] is not None
    )


def is_explained(gpu: Mapping[str, Any]) -> bool:
    """No value is missing without a reason."""
    absent = {key for key in GPU_METRICS if gpu[key] is None}
    return gpu["lost_reason"] is not None or all(gpu["unavailable"].get(key) for key in absent)


def is_root() -> bool:
    return os.geteuid() == 0
