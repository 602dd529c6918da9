"""A machine with the stand-in dcgmi, and what a test asks about it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputop.sources.activity.dcgmi import Dmon
from gputop.sources.activity.fallback_chain import MeasuredActivity, SmReadFailed, Waiting
from gputop.sources.procfs import parse_stat
from tests.nvml.stand_in import uuid_of


class Host:
    """A machine with the stand-in dcgmi: what it was asked to do, and whether it still runs."""

    def __init__(self, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._log = log
        self._monkeypatch = monkeypatch
        self.does("rows")
        monkeypatch.setenv("DCGMI_LOG", str(log))

    def does(self, what: str) -> None:
        self._monkeypatch.setenv("DCGMI_DOES", what)

    def started(self, what: str) -> list[int]:
        """The pids that were started for ``discovery`` or ``dmon``."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [int(line.split()[0]) for line in lines if line.split()[1] == what]

    def asked(self) -> list[str]:
        return [line.partition(" ")[2] for line in self._log.read_text().splitlines()]


def until(dmon: Dmon, wanted: Callable[[MeasuredActivity | Waiting | SmReadFailed], bool]) -> Any:
    """Ask until the answer is as wanted."""
    deadline = time.monotonic() + 60.0
    while True:
        try:
            got: MeasuredActivity | Waiting | SmReadFailed = dmon.activity(
                uuid_of(0), time.monotonic()
            )
        except SmReadFailed as failure:
            got = failure
        if wanted(got):
            return got
        assert time.monotonic() < deadline, got
        time.sleep(0.01)


def _stat(directory: Path) -> bytes:
    """What /proc says of a process; nothing of one that has just ended."""
    try:
        return (directory / "stat").read_bytes()
    except OSError:
        return b""


def is_gone(group: int, tries: int = 2000) -> bool:
    """Whether no process of a session still runs, within a moment; zombies are their parent's business."""
    for _ in range(tries):
        stats = [parse_stat(data) for data in map(_stat, Path("/proc").glob("[0-9]*"))]
        if not any(
            stat is not None and stat.session == group and stat.state not in "ZX" for stat in stats
        ):
            return True
        time.sleep(0.01)
    return False
