"""What was written before: recordings as frames, profilers' traces as reports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gputop.monitor import Frame, Monitor
from gputop.recording.reader import read_snapshots

if TYPE_CHECKING:
    from gputop.traces.ranks import TraceReport


def load(path: str | os.PathLike[str]) -> Iterator[Frame]:
    """The frames of a recording, a file or a folder, diagnosed anew. Raises RecordingError at the first frame."""
    monitor: Monitor | None = None
    for found in read_snapshots(os.fspath(path)):
        if monitor is None:
            monitor = Monitor(found.interval_s)
        yield monitor.feed(found)


def trace(*paths: str | os.PathLike[str]) -> TraceReport:
    """Where a step's time went, from files of torch.profiler or Nsight Systems, each a rank, or a folder of them.

    Raises TraceError for what is not a trace, and OSError.
    """
    from gputop.traces.analyse import Choice
    from gputop.traces.ranks import report_traces, trace_files

    given = [os.fspath(path) for path in paths]
    if not given:
        raise ValueError("trace needs at least one file")
    return report_traces(trace_files(given), Choice(None), from_folder=any(map(os.path.isdir, given)))
