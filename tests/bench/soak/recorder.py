"""Recordings at full speed: files that change each hour, the oldest deleted, recorders begun and ended."""

from __future__ import annotations

import os
import tempfile
import threading
from typing import Any

from gputop.recording.writer import Recorder, RecordingWriter
from tests.bench.soak.measure import Growth, descriptors
from tests.bench.soak.snapshots import ticks

MOST_BYTES = 4 << 20
RECORDERS = 20
FRAMES = 5


def recorded(count: int) -> dict[str, Any]:
    """A directory with an upper size, then twenty short recordings: files, descriptors and threads left."""
    before, threads = descriptors(), threading.active_count()
    growth, most, names = Growth(count), before, set()
    with tempfile.TemporaryDirectory() as directory:
        writer = RecordingWriter(directory, most_bytes=MOST_BYTES)
        for tick, snapshot in enumerate(ticks(count)):
            writer.write(snapshot)
            growth.look(tick)
            names.add(writer.path)
            most = max(most, descriptors())
        writer.close()
        kept = [entry.stat().st_size for entry in os.scandir(directory)]
    for _ in range(RECORDERS):
        with tempfile.TemporaryDirectory() as directory:
            recorder = Recorder(directory)
            for snapshot in ticks(FRAMES):
                recorder.offer(snapshot)
            recorder.close()
            if recorder.error is not None or recorder.frames != FRAMES:
                raise RuntimeError(f"{recorder.frames} frames: {recorder.error}")
    return {
        "ticks": count,
        "growth": growth.account(),
        "files_written": len(names),
        "files_kept": len(kept),
        "mb_kept": round(sum(kept) / 1e6, 1),
        "descriptors": [before, most, descriptors()],
        "threads_left": threading.active_count() - threads,
    }
