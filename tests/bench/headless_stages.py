"""Stages of a tick without a screen, for ``tests.bench.instructions``: reading GPUs and host, recording, a page."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from gputop.diagnosis.engine import Diagnoser
from gputop.export.feed import Feed
from gputop.export.page import Choice
from gputop.model.snapshot import Snapshot
from gputop.monitor import Monitor
from gputop.recording.rounding import Rounder
from gputop.recording.writer import RecordingWriter
from gputop.session.session import Session

Tick = Callable[[int], object]


def headless_stages(name: str, snapshots: list[Snapshot], warm: int, folder: Path) -> dict[str, Tick]:
    """What ``record``, ``export`` and the API do with each of these snapshots, after the first ``warm``."""
    rounder, writer, diagnoser = Rounder(), RecordingWriter(str(folder / f"{name}.jsonl.gz")), Diagnoser()
    feed, monitor = Feed(Session(Monitor(charts=False)), Choice(False, ())), Monitor(charts=False)
    rounded = [rounder.take(snapshot) for snapshot in snapshots]
    for snapshot, (round_, line) in zip(snapshots[:warm], rounded, strict=False):
        writer.write(round_, (), line)
        monitor.feed(snapshot)
        feed.take(snapshot)
        diagnoser.take(snapshot)
    stages: dict[str, Tick] = {
        "round": lambda i: rounder.take(snapshots[warm + i]),
        "write": lambda i: writer.write(rounded[warm + i][0], (), rounded[warm + i][1]),
        "feed, no charts": lambda i: monitor.feed(snapshots[warm + i]),
        "diagnose, no words": lambda i: diagnoser.take(snapshots[warm + i]),
        "export takes": lambda i: feed.take(snapshots[warm + i]),
        "a page": lambda i: feed.page(),
    }
    return {f"{name}: {stage}": tick for stage, tick in stages.items()}


def reading_stages() -> dict[str, Tick]:
    """Reading the stand-in GPUs of the environment, and the host, once a second: lists of processes take turns."""
    from gputop.sources.activity.rungs import Rungs
    from gputop.sources.host import HostCollector
    from gputop.sources.nvml.session import NvmlSession

    host, session = HostCollector(), NvmlSession(more_rungs=Rungs(1.0, "/proc").of)

    def read(_: int) -> None:
        time.sleep(1.0)
        session.read(0, time.time())
        session.ask_seldom(0, time.time())

    def look(_: int) -> None:
        time.sleep(1.0)
        host.read(time.monotonic())

    for warm in range(3):
        read(warm)
        look(warm)
    return {"read 8 GPUs": read, "read the host": look}
