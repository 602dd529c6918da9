"""Runs the local source and prints its snapshots as JSON lines: the other half of the tests against the stand-in.

A library is found by LD_LIBRARY_PATH only when a program starts, so these tests need a program. Arguments: ``once``, or
``live SECONDS``; then its options as JSON, with how many snapshots come at ``least``, however long that takes, how
long one reading may take, ``wait_s``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gputop.model.sm import SmOptions
from gputop.model.snapshot import GpuSample, Snapshot
from gputop.model.source import SourceError, UsageError
from gputop.session.arrivals import Arrivals
from gputop.sources import local
from gputop.sources.doctor_report import examine
from gputop.sources.local import LocalSource
from gputop.sources.selection import MachineOptions
from tests.nvml.stand_in import Scenario

PATIENT_S = 30.0
"""How long one reading waits for what is late, also for a source: longer than gputop, as a machine may be crowded."""


def plain(value: Any) -> Any:
    """Records, mappings and tuples as what JSON knows; of a GPU's sample also the words of why SM is lacking."""
    if isinstance(value, Struct):
        names = (
            *value.__struct_fields__,
            *(("sm_reason",) if isinstance(value, GpuSample) else ()),
        )
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple) else value


def show(began: float, snapshot: Snapshot) -> None:
    print(
        json.dumps({"after": time.monotonic() - began, **plain(snapshot)}, allow_nan=False),
        flush=True,
    )


def live(source: LocalSource, seconds: float, least: int) -> None:
    began, arrivals = time.monotonic(), Arrivals(source)
    arrivals.start()
    # A crowded machine gets to fewer snapshots in that time.
    while (left := began + seconds - time.monotonic()) > 0 or (least > 0 and left > -PATIENT_S):
        for snapshot in arrivals.wait(max(left, 1.0)):
            least -= 1
            show(began, snapshot)


def with_sm(options: dict[str, Any]) -> dict[str, Any]:
    """What was asked of the sources of SM activity, as one argument."""
    sm = {name: options.pop(name) for name in SmOptions.__struct_fields__ if name in options}
    return {**options, "sm": SmOptions(**sm)}


NO_MORE: Mapping[str, str] = {}
CALM_S = 8.0
"""What a crowded machine may add to that; whoever waited for a call that hangs would take half a minute."""


def read(
    scenario: Scenario, *arguments: str, environ: Mapping[str, str] = NO_MORE, **options: Any
) -> list[Any]:
    """What one run of this program prints: snapshots or an error, then how it ended; or the doctor's report."""
    scenario.write()
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.local_reader", *arguments, json.dumps(options)],
        env={**scenario.environment(), **environ}, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


class Run:
    """What one run of the reader printed: snapshots or an error, and how it ended."""

    def __init__(self, scenario: Scenario, *arguments: str, **options: Any) -> None:
        *self.snapshots, self.end = read(scenario, *arguments, **options)

    @property
    def last(self) -> dict[str, Any]:
        snapshot: dict[str, Any] = self.snapshots[-1]
        return snapshot

    def gpu(self, position: int) -> dict[str, Any]:
        gpu: dict[str, Any] = self.last["gpus"][position]
        return gpu


def main() -> int:
    mode, *rest = sys.argv[1:]
    options = with_sm(json.loads(rest[-1])) if rest and rest[-1].startswith("{") else {}
    if mode == "doctor":
        print(json.dumps(examine(**options), allow_nan=False))
        return 0
    wait_s = options.pop("wait_s", PATIENT_S)
    least = options.pop("least", 2)
    local.SM_READER_WAIT_S = wait_s
    source = LocalSource(MachineOptions(**options))
    began = time.monotonic()
    try:
        if mode == "once":
            show(began, source.read_once(wait_s).snapshot)
        else:
            live(source, float(rest[0]), least)
    except (SourceError, UsageError) as error:
        print(
            json.dumps(
                {
                    "error": type(error).__name__,
                    "text": str(error),
                    "after": time.monotonic() - began,
                }
            )
        )
    closing = time.monotonic()
    source.close()
    print(
        json.dumps({"closed_in": time.monotonic() - closing, "textual": "textual" in sys.modules})
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
