"""Round snapshots to the precision of a recording.

Floats keep four significant digits, more than any of them is measured to. Bytes are whole; counters and times keep
milliseconds. A live run rounds before it diagnoses, so that a replay of its recording gives equal verdicts.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import astuple, replace

from gputop.model.bounds import MOST
from gputop.model.metrics import (
    GPU_METRICS,
    GPU_STATE,
    HOST_METRICS,
    PROCESS_METRICS,
    SM_PROVENANCE,
    Metric,
)
from gputop.model.quantity import rounded as rounded_data
from gputop.model.serving import ServerRow
from gputop.model.snapshot import FeedTime, GpuSample, HostSample, MainTime, ProcessSample, Snapshot

Rounding = Callable[[float], float]
_S = TypeVar("_S", bound=Struct)
_SERVER_DIGITS = 6


def rounded(snapshot: Snapshot) -> Snapshot:
    """Round every number of a snapshot as a recording does.

    Impossible numbers become None.
    """
    return replace(
        snapshot,
        t=round(snapshot.t, 3),
        gpus=_rounded_rows(GpuSample, snapshot.gpus),
        processes=_rounded_rows(ProcessSample, snapshot.processes),
        host=_rounded_rows(HostSample, (snapshot.host,))[0],
        stale={name: round(age, 3) for name, age in snapshot.stale.items()}
        if snapshot.stale
        else snapshot.stale,
        servers=tuple(
            ServerRow(*rounded_data(astuple(row), _SERVER_DIGITS)) for row in snapshot.servers
        ),
    )


def _whole(value: float) -> float:
    return float(round(value))


def _rounding(key: str, metric: Metric | None) -> Rounding:
    """Return the rounding of one field.

    Four digits would erase single bytes of memory, and the steps of counters and times.
    """
    if metric is not None and metric.unit == "bytes":
        return _whole
    if key == "lost_since" or (metric is not None and metric.kind == "counter"):
        return lambda value: round(float(value), 3)
    return lambda value: float(f"{value:.4g}")


def _roundings(kind: type[Struct], *tables: Mapping[str, Metric]) -> list[tuple[int, Rounding]]:
    """Return positions and roundings of a struct's number fields."""
    metrics = ChainMap(*map(dict, tables))
    return [
        (place, _rounding(key, metrics.get(key)))
        for place, key in enumerate(kind.__struct_fields__)
        if kind.__annotations__[key] == "Number | None"
    ]


_ROUNDINGS: Mapping[type[Struct], list[tuple[int, Rounding]]] = {
    GpuSample: _roundings(GpuSample, GPU_METRICS, SM_PROVENANCE, GPU_STATE),
    HostSample: _roundings(HostSample, HOST_METRICS),
    ProcessSample: _roundings(ProcessSample, PROCESS_METRICS),
    FeedTime: _roundings(FeedTime),
    MainTime: _roundings(MainTime),
}
_FIELD_TYPES: Mapping[str, Callable[[Sequence[Any]], Sequence[Any]]] = {
    "feed": lambda values: _rounded_rows(FeedTime, values),
    "main": lambda values: _rounded_rows(MainTime, values),
    "waits_for": lambda values: [_with_whole(ends, "pct") for ends in values],
    "outsiders": lambda values: [_with_whole(outsiders, "cpu_pct") for outsiders in values],
}
_NESTED = {
    kind: [
        (place, _FIELD_TYPES[key])
        for place, key in enumerate(kind.__struct_fields__)
        if key in _FIELD_TYPES
    ]
    for kind in _ROUNDINGS
}


def _with_whole(rows: tuple[_S, ...] | None, key: str) -> tuple[_S, ...] | None:
    """Return rows with whole numbers in one field."""
    return rows and tuple(replace(row, **{key: _whole(getattr(row, key))}) for row in rows)


def _rounded_rows(kind: type[_S], rows: Sequence[_S]) -> tuple[_S, ...]:
    """Round structs of one type, field by field.

    Columns of zeros and None, most fields of processes, are skipped.
    """
    columns: list[Sequence[Any]] = list(zip(*map(astuple, rows), strict=True))
    if not columns:
        return ()
    for place, rounding in _ROUNDINGS[kind]:
        column = columns[place]
        if column.count(None) + column.count(0.0) < len(column):
            columns[place] = [
                value and (rounding(value) if abs(value) <= MOST else None) for value in column
            ]
    for place, round_values in _NESTED[kind]:
        columns[place] = round_values(columns[place])
    return tuple(map(kind, *columns))
