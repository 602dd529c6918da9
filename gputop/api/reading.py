"""Read this machine, recordings and traces for a program."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from gputop.api.watch_options import checked_interval, gpus_text
from gputop.model.snapshot import Snapshot
from gputop.model.source import Source, SourceError
from gputop.monitor import Frame, Monitor
from gputop.recording.reader import read_snapshots
from gputop.session.arrivals import Arrivals
from gputop.session.session import Session
from gputop.sources.local import LocalSource
from gputop.sources.marks import send_mark
from gputop.sources.one_reading import WAIT_S
from gputop.sources.selection import MachineOptions

if TYPE_CHECKING:
    from gputop.features.traces.trace_ranks import TraceReport


_LOOK_S = 1.0
"""How often a wait checks whether it was ended."""


def snapshot(
    *, gpus: str | int | Iterable[int | str] | None = None, wait_s: float = WAIT_S
) -> Snapshot:
    """Return one reading of this machine, as ``gputop once``.

    Every GPU is read twice, which takes about 0.3 s. ``gpus`` are all, or indices and UUIDs. After ``wait_s`` seconds
    it returns an incomplete reading, whose ``notices`` name the gaps. Raises SourceError where no GPU can be read,
    UsageError for a GPU that does not exist.
    """
    with closing(LocalSource(MachineOptions(gpus=_only(gpus)))) as source:
        reading = source.read_once(wait_s)
    if not reading.has_measured:
        problem = "; ".join(reading.snapshot.notices) or "no GPU could be read"
        raise SourceError(f"{problem}: see `gputop doctor`")
    return reading.snapshot


def frames(
    interval: float = 1.0,
    *,
    gpus: str | int | Iterable[int | str] | None = None,
    source: Source | None = None,
) -> Frames:
    """Return an iterator over frames of this machine, or of ``source``.

    One comes every ``interval`` seconds. Measuring begins with the first one,
    which raises SourceError where no GPU can be read.
    """
    if source is None:
        options = MachineOptions(
            interval_s=checked_interval(interval, strict=True), gpus=_only(gpus)
        )
        source = LocalSource(options, own_process=False)
    return Frames(source)


def _only(gpus: str | int | Iterable[int | str] | None) -> str | None:
    return None if (chosen := gpus_text(gpus)) == "all" else chosen


class Frames:
    """Iterates over frames without an end, for one loop at a time::

        with gputop.frames() as frames:
            for frame in frames:
                print(frame.diagnoses[0].title, frame.snapshot.gpus[0].sm_active_pct)

    ``close``, a ``with`` block, or the end of the loop's object end the measuring. A loop slower than the interval gets
    the newest frame, not those that it missed.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._session = Session(Monitor(source.interval_s))
        self._fresh = threading.Event()
        self._arrivals = Arrivals(source, self._fresh)
        self._started = self._closed = False

    def __iter__(self) -> Iterator[Frame]:
        return self

    def __next__(self) -> Frame:
        while not self._closed:
            if (frame := self._poll()) is not None:
                return frame
            self._fresh.wait(_LOOK_S)
            self._fresh.clear()
        raise StopIteration

    def __enter__(self) -> Frames:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop measuring; a loop ends."""
        if not self._closed:
            self._closed = True
            if self._started:
                self._source.close()
            self._fresh.set()

    def __del__(self) -> None:
        self.close()

    def _poll(self) -> Frame | None:
        if not self._started:
            self._started = True
            self._arrivals.start()
        frame = None
        for reading in self._arrivals.new():
            frame = self._session.take(reading)
        return frame


def mark(text: str) -> int:
    """Send a mark to every recorder, screen and watch of this user.

    Returns how many have it.
    """
    return send_mark(str(text), time.time()).reached


def load(path: str | os.PathLike[str]) -> Iterator[Frame]:
    """Iterate over the frames of a recording, diagnosed again.

    ``path`` is a file or a folder. Raises RecordingError at the first frame.
    """
    monitor: Monitor | None = None
    for recorded in read_snapshots(os.fspath(path)):
        monitor = monitor or Monitor(recorded.interval_s)
        yield monitor.feed(recorded)


def trace(*paths: str | os.PathLike[str]) -> TraceReport:
    """Report the time of a step, from files of a profiler.

    Files are torch.profiler's or Nsight Systems', one for each rank, or a folder of them. Raises TraceError for other
    files, and OSError.
    """
    from gputop.features.traces.trace_analysis import StepChoice
    from gputop.features.traces.trace_ranks import report_traces, trace_files

    names = [os.fspath(path) for path in paths]
    if not names:
        raise ValueError("trace needs at least one file")
    return report_traces(
        trace_files(names), StepChoice(None), from_folder=any(map(os.path.isdir, names))
    )
