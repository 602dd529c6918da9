"""Write a recording as JSON lines or CSV in constant memory."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal, TextIO

from gputop.model.expression import nearest
from gputop.model.metrics import GPU_METRICS, GPU_STATE, GPU_STATIC, HOST_METRICS, SM_PROVENANCE
from gputop.model.quantity import csv_cell
from gputop.model.snapshot import Event, GpuSample, Snapshot, value
from gputop.monitor import SmSources
from gputop.output.snapshot_data import SCHEMA, snapshot_data
from gputop.recording.reader import Recording

if TYPE_CHECKING:
    from gputop.recording.decode import RecordingFilter

_HOST = "host."
GPU_KEYS = ("t", *GPU_STATIC, *GPU_METRICS, *SM_PROVENANCE, *GPU_STATE)
HOST_KEYS = tuple(_HOST + key for key in HOST_METRICS)


def dump(
    path: str,
    out: TextIO,
    form: Literal["json", "csv"],
    *,
    begin: float | None = None,
    end: float | None = None,
    columns: Sequence[str] | None = None,
    recording_filter: RecordingFilter | None = None,
    gaps: list[Event] | None = None,
) -> int:
    """Write frames from ``begin`` to ``end``, Unix seconds; return their number.

    CSV has one row a GPU and frame. JSON has one object a line: without ``columns`` the whole snapshot as ``once``
    gives it, with changes of the SM source among its events; else one object a GPU and frame. ``columns`` are catalogue
    keys of a GPU, and of the host after ``host.``. ``gaps`` receives the gaps between these frames, which CSV has no
    place for. Raises RecordingError, and ValueError for an unknown column.
    """
    chosen = None if columns is None else _known_columns(columns)
    with closing(Recording(path, recording_filter)) as recording:
        frames = recording.snapshots(begin, end)
        if gaps is not None:
            frames = _noting_gaps(frames, gaps)
        return _csv(frames, out, chosen or GPU_KEYS) if form == "csv" else _json(frames, out, chosen)


def _noting_gaps(frames: Iterator[Snapshot], gaps: list[Event]) -> Iterator[Snapshot]:
    for snapshot in frames:
        gaps += [event for event in snapshot.events if event.kind == "gap"]
        yield snapshot


def _known_columns(columns: Sequence[str]) -> tuple[str, ...]:
    valid = (*GPU_KEYS, *HOST_KEYS)
    columns = ["index" if column == "gpu" else column for column in columns]
    for column in columns:
        if column not in valid:
            raise ValueError(f"no column {column!r}{nearest(column, valid)}")
    # Rows without time and GPU could not be told apart.
    return (*(key for key in ("t", "index") if key not in columns), *columns)


def _reader(column: str) -> Callable[[Snapshot, GpuSample], object]:
    """Reader of a column's cell; None where a frame repeats a value."""
    if column == "t":
        return lambda snapshot, gpu: round(snapshot.t, 3)
    if column.startswith(_HOST):
        key = column.removeprefix(_HOST)
        return lambda snapshot, gpu: None if "proc" in snapshot.repeats else value(snapshot.host, key)
    if column in GPU_STATIC:
        return lambda snapshot, gpu: value(gpu, column)
    return lambda snapshot, gpu: None if "nvml" in snapshot.repeats else value(gpu, column)


def _csv(frames: Iterator[Snapshot], out: TextIO, columns: Sequence[str]) -> int:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    readers = [_reader(column) for column in columns]
    count = 0
    for snapshot in frames:
        count += 1
        for gpu in snapshot.gpus:
            writer.writerow([csv_cell(read(snapshot, gpu)) for read in readers])
    return count


def _json(frames: Iterator[Snapshot], out: TextIO, columns: Sequence[str] | None) -> int:
    readers = {column: _reader(column) for column in columns or ()}
    sources = SmSources()
    count = 0
    for snapshot in frames:
        count += 1
        if columns is not None:
            for gpu in snapshot.gpus:
                out.write(_text({column: read(snapshot, gpu) for column, read in readers.items()}))
            continue
        data = snapshot_data(snapshot)
        switch_texts = [(gpu.static.index, sources.switch(gpu)) for gpu in snapshot.gpus]
        switches = [Event(snapshot.t, "mark", text, index) for index, text in switch_texts if text is not None]
        data["events"] = [
            {"t": round(event.t, 3), "kind": event.kind, "gpu": event.gpu, "text": event.text}
            for event in (*snapshot.events, *switches)
        ]
        out.write(_text({**data, "schema": SCHEMA}))
    return count


def _text(data: dict[str, Any]) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":")) + "\n"
