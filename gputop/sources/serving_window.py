"""Computes an inference server's rates and quantiles from its pages."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from math import inf
from typing import Any

from gputop.model.serving import LABELS, Bounds, ServerKind, ServerRow
from gputop.sources.serving_page import DIALECTS, HISTOGRAMS, Histogram, ServingPage

WINDOW_S = 30.0
"""Rates and quantiles are over this long: as the verdict that they stand beside."""
LEAST_S = 0.9
"""Two readings closer than this give no rate."""
_EARLY = "needs two readings, a second apart"


_RATES = {
    "requests": "requests_per_s",
    "tokens": "tokens_per_s",
    "prompt_tokens": "prompt_tokens_per_s",
    "preemptions": "preemptions_per_s",
}
_COUNTERS = (*_RATES, "prefix_hits", "prefix_queries")
"""``prefix_…`` are tokens of prompts, and those of them that the prefix cache held."""
_GAUGES = {
    "queue": ("queue", 1.0, inf),
    "running": ("running", 1.0, inf),
    "kv_cache": ("kv_cache_pct", 100.0, 1.0),
}
"""What holds now: its name in a row, the row's units in one, and the most that can be. ``kv_cache`` is a share."""


def quantile(before: Histogram, after: Histogram, share: float) -> Bounds | None:
    """Return the bucket of a quantile of what two pages added, if any."""
    new = [late - early for early, late in zip(before.counts, after.counts, strict=True)]
    if new[-1] <= 0.0:
        return None
    place = next(i for i, count in enumerate(new) if count >= share * new[-1])
    low = after.bounds[place - 1] if place else 0.0
    high = after.bounds[place]
    return max(0.0, low), None if high == inf else high


class ServerWindow:
    """One server's pages of the last ``WINDOW_S`` seconds.

    Starts over after a restart of the server.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self._pages: deque[tuple[float, ServingPage]] = deque()

    def add(self, t: float, page: ServingPage) -> ServerRow:
        """Add a page read at monotonic ``t`` and return the row."""
        pages = self._pages
        if pages and _restarted(pages[-1][1], page):
            pages.clear()
        pages.append((t, page))
        while len(pages) > 2 and pages[1][0] <= t - WINDOW_S:
            pages.popleft()
        return self._row(*pages[0], *pages[-1])

    def fail(self, words: str) -> ServerRow:
        """Return a row with only an error; later pages start over."""
        kind = self._pages[-1][1].kind if self._pages else None
        if self._pages:
            last = self._pages[-1]
            self._pages.clear()
            # Its counters go on: the next page gives a rate over the silence, unless it was restarted.
            self._pages.append(last)
        return ServerRow(self.place, kind, error=words)

    def _row(self, begun: float, before: ServingPage, now: float, page: ServingPage) -> ServerRow:
        seconds = now - begun
        has_rate = seconds >= LEAST_S
        found = {
            **self._rates(before, page, seconds),
            **_gauges(page),
            **_quantiles(before, page, seconds),
        }
        columns: dict[str, Any] = {
            name: figure for name, figure in found.items() if not isinstance(figure, str)
        }
        reasons = {name: figure for name, figure in found.items() if isinstance(figure, str)}
        return ServerRow(
            self.place, page.kind, seconds if has_rate else None, **columns, unavailable=reasons
        )

    def _rates(
        self, before: ServingPage, page: ServingPage, seconds: float
    ) -> dict[str, float | str]:
        """Return rates between two pages, or reasons."""
        dialect, runs = DIALECTS[page.kind], page.values.get("running", 0.0) > 0.0
        new = {
            key: page.values[key] - was for key, was in before.values.items() if key in page.values
        }
        rates: dict[str, float | str] = {}
        for key, name in _RATES.items():
            if key not in new:
                rates[name] = (
                    _EARLY
                    if key in page.values
                    else dialect.absent.get(key, _unpublished(page.kind))
                )
            elif seconds < LEAST_S:
                rates[name] = _EARLY
            elif key == "tokens" and (own := self._own_rate(seconds)):
                rates[name] = own
            elif dialect.counts_at_end and "tokens" in key and runs and new[key] <= 0.0:
                rates[name] = f"{LABELS[page.kind]} counts tokens when their request ends"
            else:
                rates[name] = new[key] / seconds
        if "prefix_hits" not in new or "prefix_queries" not in new:
            rates["prefix_hit_pct"] = _unpublished(page.kind)
        elif seconds < LEAST_S or new["prefix_queries"] <= 0.0:
            rates["prefix_hit_pct"] = (
                _EARLY if seconds < LEAST_S else f"no prompt in the last {seconds:.0f} s"
            )
        else:
            rates["prefix_hit_pct"] = min(100.0, 100.0 * new["prefix_hits"] / new["prefix_queries"])
        return rates

    def _own_rate(self, seconds: float) -> float:
        """Return tokens a second by the server's own rate, or 0.

        The server keeps the last value when nothing runs any more, so only running seconds count.
        """
        tokens = sum(
            (later - earlier) * page.values.get("token_rate", 0.0)
            for (earlier, _), (later, page) in pairwise(self._pages)
            if page.values.get("running", 1.0) > 0.0
        )
        return tokens / seconds


def _gauges(page: ServingPage) -> dict[str, float | str]:
    """Return current gauges, or reasons."""
    found: dict[str, float | str] = {}
    for key, (name, scale, most) in _GAUGES.items():
        value = page.values.get(key)
        if value is None:
            found[name] = _unpublished(page.kind)
        elif 0.0 <= value <= most:
            found[name] = scale * value
        else:
            found[name] = f"this {LABELS[page.kind]} says {value:g}, which cannot be"
    return found


def _quantiles(before: ServingPage, page: ServingPage, seconds: float) -> dict[str, Bounds | str]:
    """Return request times between two pages, or reasons."""
    dialect = DIALECTS[page.kind]
    found: dict[str, Bounds | str] = {}
    for key in HISTOGRAMS:
        histogram, earlier = page.histograms.get(key), before.histograms.get(key)
        for share, words in ((0.5, "p50"), (0.99, "p99")):
            name = f"{key}_{words}_s"
            if histogram is None or earlier is None or histogram.bounds != earlier.bounds:
                if key != "first_response" or key in dialect.names:
                    found[name] = dialect.absent.get(key, _unpublished(page.kind))
            elif seconds < LEAST_S:
                found[name] = _EARLY
            else:
                found[name] = (
                    quantile(earlier, histogram, share) or f"no request in the last {seconds:.0f} s"
                )
    return found


def _unpublished(kind: ServerKind) -> str:
    return f"this {LABELS[kind]} does not publish it"


def _restarted(before: ServingPage, after: ServingPage) -> bool:
    """Whether a counter fell, or another server answers."""
    if before.kind != after.kind or any(
        after.values[key] < value
        for key, value in before.values.items()
        if key in _COUNTERS and key in after.values
    ):
        return True
    return any(
        (now := after.histograms.get(key)) is not None
        and now.bounds == was.bounds
        and any(late < early for early, late in zip(was.counts, now.counts, strict=True))
        for key, was in before.histograms.items()
    )
