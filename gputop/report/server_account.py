"""What inference servers served over a recording: mean rates, the queue, and the usual and the worst waiting times.

A server's quantiles are known as buckets over half a minute each; those of half minutes cannot be joined to one of the
whole. So the median is told as the bucket that stood longest, and the 99th percentile as the worst bucket that stood.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any

from msgspec import Struct

from gputop.model.serving import TIMES, WORDS, Bounds, ServerKind, ServerRow

_PEAKS = {"queue": "queue_max", "kv_cache_pct": "kv_cache_max_pct"}
"""Of these the highest value is told as well."""


class ServerReport(Struct, frozen=True):
    """One server. Means are over the ``seconds`` in which it answered; ``silent_s`` are those in which it did not.

    ``…_p50_s`` is the bucket of the median that stood longest, ``…_p99_s`` the worst of the 99th percentile.
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
    """Why it was silent last."""


class _Server:
    def __init__(self) -> None:
        self.kind: ServerKind | None = None
        self.seconds = self.silent_s = 0.0
        self.sums: dict[str, tuple[float, float]] = {}
        self.peaks: dict[str, float] = {}
        self.buckets: dict[str, dict[Bounds, float]] = {key: {} for key in TIMES}
        self.worst: dict[str, Bounds] = {}
        self.error: str | None = None

    def add(self, row: ServerRow, seconds: float) -> None:
        self.kind = row.kind or self.kind
        if row.error is not None:
            self.silent_s += seconds
            self.error = row.error
            return
        self.seconds += seconds
        for key in WORDS:
            value = getattr(row, key)
            if value is not None:
                total, of = self.sums.get(key, (0.0, 0.0))
                self.sums[key] = total + value * seconds, of + seconds
                if key in _PEAKS:
                    self.peaks[_PEAKS[key]] = max(self.peaks.get(_PEAKS[key], 0.0), value)
        for key in TIMES:
            usual, late = getattr(row, f"{key}_p50_s"), getattr(row, f"{key}_p99_s")
            stood = self.buckets[key]
            if usual is not None:
                stood[usual] = stood.get(usual, 0.0) + seconds
            if late is not None and (key not in self.worst or _upper(late) > _upper(self.worst[key])):
                self.worst[key] = late

    def report(self, place: str) -> ServerReport:
        columns: dict[str, Any] = {key: total / of for key, (total, of) in self.sums.items() if of > 0.0} | self.peaks
        for key, stood in self.buckets.items():
            columns[f"{key}_p50_s"] = max(stood, key=lambda bounds: stood[bounds]) if stood else None
            columns[f"{key}_p99_s"] = self.worst.get(key)
        return ServerReport(place, self.kind, self.seconds, self.silent_s, error=self.error, **columns)


def _upper(bounds: Bounds) -> tuple[float, float]:
    low, high = bounds
    return (inf if high is None else high), low


class ServerAccount:
    """Takes the rows of every frame."""

    def __init__(self) -> None:
        self._servers: dict[str, _Server] = {}

    def add(self, rows: Iterable[ServerRow], seconds: float) -> None:
        """Count the rows of a frame that stands for so many seconds."""
        for row in rows:
            self._servers.setdefault(row.place, _Server()).add(row, seconds)

    def report(self) -> tuple[ServerReport, ...]:
        """One for each server, in the order in which they were first seen."""
        return tuple(server.report(place) for place, server in self._servers.items())
