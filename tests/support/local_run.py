"""One run of the local source in a process of its own, on the stand-in driver."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.nvml.stand_in import Scenario

CALM_S = 8.0
"""What a crowded machine may add to that; whoever waited for a call that hangs would take half a minute."""


class Run:
    """What one run of the reader printed: snapshots or an error, and how it ended."""

    def __init__(self, scenario: Scenario, *arguments: str, **options: Any) -> None:
        scenario.write()
        environment = {**scenario.environment(), **options.pop("environ", {})}
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.local_reader", *arguments, json.dumps(options)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stderr == ""
        *self.snapshots, self.end = [json.loads(line) for line in done.stdout.splitlines()]

    @property
    def last(self) -> dict[str, Any]:
        snapshot: dict[str, Any] = self.snapshots[-1]
        return snapshot

    def gpu(self, position: int) -> dict[str, Any]:
        gpu: dict[str, Any] = self.last["gpus"][position]
        return gpu
