"""Stages of a tick without a screen, for ``tests.bench.instructions``: reading GPUs and host, recording, a page."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gputop.diagnosis.engine import Diagnoser
from gputop.features.export.export_feed import Feed
from gputop.features.export.metrics_page import Choice
from gputop.model.snapshot import Snapshot
from gputop.monitor import Monitor
from gputop.recording.decode import Rounder
from gputop.recording.writer import RecordingWriter
from gputop.session.session import Session

Tick = Callable[[int], object]
HEADLESS = "round", "write", "feed, no charts", "diagnose, no words", "export takes", "a page"
READING = "read 8 GPUs", "read the host"


def of(name: str, stages: Sequence[str]) -> list[str]:
    """The names of the stages of one kind of snapshots."""
    return [f"{name}: {stage}" for stage in stages]


def named(name: str, stages: Sequence[str], *ticks: Tick) -> dict[str, Tick]:
    """The same with what each does."""
    return dict(zip(of(name, stages), ticks, strict=True))


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
    return named(
        name,
        HEADLESS,
        lambda i: rounder.take(snapshots[warm + i]),
        lambda i: writer.write(rounded[warm + i][0], (), rounded[warm + i][1]),
        lambda i: monitor.feed(snapshots[warm + i]),
        lambda i: diagnoser.take(snapshots[warm + i]),
        lambda i: feed.take(snapshots[warm + i]),
        lambda i: feed.page(),
    )


def reading_stages() -> dict[str, Tick]:
    """Reading the stand-in GPUs of the environment, and the host, once a second: lists of processes take turns."""
    from gputop.sources.activity.choose_sources import Rungs
    from gputop.sources.host import HostCollector
    from gputop.sources.nvml.nvml_session import NvmlSession

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
    return dict(zip(READING, (read, look), strict=True))
