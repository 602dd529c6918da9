"""Sum up what each inference server served.

A server's quantiles are known as buckets over half a minute each, which cannot be joined. So the median is the bucket
that held longest, and the 99th percentile the worst bucket.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any

from msgspec import Struct

from gputop.model.serving import TIMES, WORDS, Bounds, ServerKind, ServerRow
from gputop.report.time_means import TimeMeans

_PEAKS = {"queue": "queue_max", "kv_cache_pct": "kv_cache_max_pct"}
"""Metrics whose highest value is reported, too."""


class ServerReport(Struct, frozen=True):
    """One server over a recording.

    Means are over the ``seconds`` in which it answered; it was silent for ``silent_s``. ``…_p50_s`` is the bucket that
    held the median longest, ``…_p99_s`` the worst bucket of the 99th percentile.
    """

    place: str
    kind: ServerKind | None
    seconds: float
    silent_s: float
    requests_per_s: float | None = None
    tokens_per_s: float | None = None
    prompt_tokens_per_s: float | None = None
    queue: float | None = None
    queue_max: float | None = None
    running: float | None = None
    first_token_p50_s: Bounds | None = None
    first_token_p99_s: Bounds | None = None
    first_response_p50_s: Bounds | None = None
    first_response_p99_s: Bounds | None = None
    between_tokens_p50_s: Bounds | None = None
    between_tokens_p99_s: Bounds | None = None
    kv_cache_pct: float | None = None
    kv_cache_max_pct: float | None = None
    preemptions_per_s: float | None = None
    prefix_hit_pct: float | None = None
    error: str | None = None
    """Reason of the last silence."""


class _Server:
    """Sums of one server."""

    def __init__(self) -> None:
        self._kind: ServerKind | None = None
        self._seconds = self._silent_s = 0.0
        self._means = TimeMeans()
        self._peaks: dict[str, float] = {}
        self._buckets: dict[str, dict[Bounds, float]] = {key: {} for key in TIMES}
        self._worst: dict[str, Bounds] = {}
        self._error: str | None = None

    def add(self, row: ServerRow, seconds: float) -> None:
        self._kind = row.kind or self._kind
        if row.error is not None:
            self._silent_s += seconds
            self._error = row.error
            return
        self._seconds += seconds
        for key in WORDS:
            self._means.add(key, getattr(row, key), seconds)
        for key, peak in _PEAKS.items():
            if (value := getattr(row, key)) is not None:
                self._peaks[peak] = max(self._peaks.get(peak, 0.0), value)
        for key, held in self._buckets.items():
            usual, late = getattr(row, f"{key}_p50_s"), getattr(row, f"{key}_p99_s")
            if usual is not None:
                held[usual] = held.get(usual, 0.0) + seconds
            if late is not None and (
                key not in self._worst or _upper(late) > _upper(self._worst[key])
            ):
                self._worst[key] = late

    def report(self, place: str) -> ServerReport:
        columns: dict[str, Any] = {key: self._means[key] for key in WORDS} | self._peaks
        for key, held in self._buckets.items():
            columns[f"{key}_p50_s"] = max(held, key=held.__getitem__, default=None)
            columns[f"{key}_p99_s"] = self._worst.get(key)
        return ServerReport(
            place, self._kind, self._seconds, self._silent_s, error=self._error, **columns
        )


def _upper(bounds: Bounds) -> tuple[float, float]:
    low, high = bounds
    return (inf if high is None else high), low


class ServerAccount:
    """Sums of all servers."""

    def __init__(self) -> None:
        self._servers: dict[str, _Server] = {}

    def add(self, rows: Iterable[ServerRow], seconds: float) -> None:
        """Count the rows of a frame that covers ``seconds``."""
        for row in rows:
            self._servers.setdefault(row.place, _Server()).add(row, seconds)

    def report(self) -> tuple[ServerReport, ...]:
        """Report each server, in the order of appearance."""
        return tuple(server.report(place) for place, server in self._servers.items())
