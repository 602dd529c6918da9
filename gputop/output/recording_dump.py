"""Write a recording as JSON lines or CSV in constant memory."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Literal, TextIO

from gputop.model.clean_text import csv_cell
from gputop.model.metrics import GPU_METRICS, GPU_STATE, GPU_STATIC, SM_PROVENANCE
from gputop.model.snapshot import Event, GpuSample, Snapshot, value
from gputop.monitor import SmSources
from gputop.output.snapshot_data import SCHEMA, snapshot_data
from gputop.recording.reader import Recording

if TYPE_CHECKING:
    from gputop.recording.decode import RecordingFilter

COLUMNS = ("t", *GPU_STATIC, *GPU_METRICS, *SM_PROVENANCE, *GPU_STATE)


def dump(
    path: str,
    out: TextIO,
    form: Literal["json", "csv"],
    *,
    begin: float | None = None,
    end: float | None = None,
    recording_filter: RecordingFilter | None = None,
    gaps: list[Event] | None = None,
) -> int:
    """Write frames from ``begin`` to ``end``, Unix seconds; return their number.

    CSV has one row a GPU and frame. JSON has one object a line: the snapshot as ``once`` gives it, with changes of the
    SM source among its events. ``gaps`` receives the gaps between these frames, which CSV has no place for. Raises
    RecordingError.
    """
    with closing(Recording(path, recording_filter)) as recording:
        frames = recording.snapshots(begin, end)
        if gaps is not None:
            frames = _noting_gaps(frames, gaps)
        return _csv(frames, out) if form == "csv" else _json(frames, out)


def _noting_gaps(frames: Iterator[Snapshot], gaps: list[Event]) -> Iterator[Snapshot]:
    for snapshot in frames:
        gaps += [event for event in snapshot.events if event.kind == "gap"]
        yield snapshot


def _reader(column: str) -> Callable[[Snapshot, GpuSample], object]:
    """Reader of a column's cell; None where a frame repeats a value."""
    if column == "t":
        return lambda snapshot, gpu: round(snapshot.t, 3)
    if column in GPU_STATIC:
        return lambda snapshot, gpu: value(gpu, column)
    return lambda snapshot, gpu: None if "nvml" in snapshot.repeats else value(gpu, column)


def _csv(frames: Iterator[Snapshot], out: TextIO) -> int:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    readers = list(map(_reader, COLUMNS))
    count = 0
    for snapshot in frames:
        count += 1
        for gpu in snapshot.gpus:
            writer.writerow([csv_cell(read(snapshot, gpu)) for read in readers])
    return count


def _json(frames: Iterator[Snapshot], out: TextIO) -> int:
    sources = SmSources()
    count = 0
    for snapshot in frames:
        count += 1
        data = snapshot_data(snapshot)
        switch_texts = [(gpu.static.index, sources.switch(gpu)) for gpu in snapshot.gpus]
        switches = [
            Event(snapshot.t, "mark", text, index)
            for index, text in switch_texts
            if text is not None
        ]
        data["events"] = [
            {"t": round(event.t, 3), "kind": event.kind, "gpu": event.gpu, "text": event.text}
            for event in (*snapshot.events, *switches)
        ]
        out.write(
            json.dumps({**data, "schema": SCHEMA}, allow_nan=False, separators=(",", ":")) + "\n"
        )
    return count
