"""Reads the metrics that inference servers publish."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf, isfinite
from time import monotonic
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.fleet_settings import is_loopback
from gputop.model.serving import LABELS, MOST_SERVERS, Bounds, ServerKind, ServerRow
from gputop.model.snapshot import Snapshot
from gputop.model.source import PassingOn, Source, UsageError
from gputop.model.text_table import table_rows
from gputop.sources.activity.http_get import checked, get, place_of, trouble
from gputop.system.worker import Worker

# What a page says, and what two of them say together.
#
# The names are those that the servers document: vLLM (docs.vllm.ai, "Production Metrics"), SGLang (docs.sglang.io,
# "Production Metrics"), Triton (docs.nvidia.com, "Metrics" of the Triton Inference Server), TGI (huggingface.co,
# "Metrics" of text-generation-inference). Pure: a page is a text, and time is passed in.

WINDOW_S = 30.0
"""Rates and quantiles are over this long: as the verdict that they stand beside."""
LEAST_S = 0.9
"""Two readings closer than this give no rate."""
_EARLY = "needs two readings, a second apart"
MOST_LINE = 8192
MOST_LINES = 50_000
"""Lines that are looked at, a second's worth of which must stay cheap; a server of many models has some thousand."""
MOST_SERIES = 4096
"""Series of one metric, over models, engines and buckets."""
_SAMPLE = re.compile(r'([A-Za-z_:][\w:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t\r]*')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_PARALLEL = ("tp_rank", "pp_rank", "moe_ep_rank")
"""Ranks that work on the same request: where each of them reports, only the first one counts. Of SGLang's queues by
priority the one without a priority is the sum."""


class PageError(ValueError):
    """The page is not a server's; the text says why."""


class ServerDialect(Struct, frozen=True):
    """The metrics of one kind of server.

    ``names`` has for each figure its metric names, the newest first; a histogram without its suffix.
    ``name{label=value}`` selects the samples with that label.
    """

    prefixes: tuple[str, ...]
    names: Mapping[str, tuple[str, ...]]
    scale_s: float = 1.0
    """Seconds in one unit of the histograms."""
    counts_at_end: bool = False
    """Whether tokens are counted when their request ends, and not as they come."""
    absent: Mapping[str, str] = {}
    """Why a figure cannot be had from this kind of server."""


_RATES = {
    "requests": "requests_per_s",
    "tokens": "tokens_per_s",
    "prompt_tokens": "prompt_tokens_per_s",
    "preemptions": "preemptions_per_s",
}
_COUNTERS = (*_RATES, "prefix_hits", "prefix_queries")
"""``prefix_…`` are tokens of prompts, and those of them that the prefix cache held."""
_GAUGES = {"queue": ("queue", 1.0, inf), "running": ("running", 1.0, inf), "kv_cache": ("kv_cache_pct", 100.0, 1.0)}
"""What holds now: its name in a row, the row's units in one, and the most that can be. ``kv_cache`` is a share."""
_HISTOGRAMS = ("first_token", "first_response", "between_tokens")


def _names(table: str) -> dict[str, tuple[str, ...]]:
    """The names of each figure, a line each."""
    return {key: tuple(names.split()) for key, names in table_rows(table)}


# ``token_rate`` is tokens a second as SGLang itself works them out. Triton's TensorRT-LLM backend takes every request
# at once, and keeps those that wait itself.
_OF: Mapping[ServerKind, ServerDialect] = {
    "vllm": ServerDialect(
        ("vllm:",),
        _names("""
            requests        vllm:request_success_total
            tokens          vllm:generation_tokens_total
            prompt_tokens   vllm:prompt_tokens_total
            queue           vllm:num_requests_waiting
            running         vllm:num_requests_running
            kv_cache        vllm:kv_cache_usage_perc vllm:gpu_cache_usage_perc
            preemptions     vllm:num_preemptions_total
            prefix_hits     vllm:prefix_cache_hits_total vllm:gpu_prefix_cache_hits_total
            prefix_queries  vllm:prefix_cache_queries_total vllm:gpu_prefix_cache_queries_total
            first_token     vllm:time_to_first_token_seconds
            between_tokens  vllm:inter_token_latency_seconds vllm:time_per_output_token_seconds
        """),
    ),
    "sglang": ServerDialect(
        ("sglang:",),
        _names("""
            requests        sglang:num_requests_total sglang:e2e_request_latency_seconds_count
            tokens          sglang:generation_tokens_total
            prompt_tokens   sglang:prompt_tokens_total
            queue           sglang:num_queue_reqs
            running         sglang:num_running_reqs
            token_rate      sglang:gen_throughput
            kv_cache        sglang:token_usage
            preemptions     sglang:num_retracted_requests_total
            prefix_hits     sglang:cached_tokens_total
            prefix_queries  sglang:prompt_tokens_total
            first_token     sglang:time_to_first_token_seconds
            between_tokens  sglang:inter_token_latency_seconds sglang:time_per_output_token_seconds
        """),
        counts_at_end=True,
    ),
    "triton": ServerDialect(
        ("nv_inference_", "nv_trt_llm_"),
        _names("""
            requests        nv_inference_request_success
            queue           nv_trt_llm_request_metrics{request_type=waiting} nv_inference_pending_request_count
            running         nv_trt_llm_request_metrics{request_type=scheduled}
            kv_cache        nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}
            first_response  nv_inference_first_response_histogram_ms
        """),
        scale_s=1e-3,
        absent={
            "tokens": "Triton does not count them",
            "prompt_tokens": "Triton does not count them",
            "first_token": "Triton has the time to the first response",
            "first_response": "Triton publishes it with --metrics-config histogram_latencies=true",
            "between_tokens": "Triton does not time them",
        },
    ),
    "tgi": ServerDialect(
        ("tgi_",),
        _names("""
            requests       tgi_request_success
            tokens         tgi_request_generated_tokens_sum
            prompt_tokens  tgi_request_input_length_sum
            queue          tgi_queue_size
            running        tgi_batch_current_size
        """),
        counts_at_end=True,
        absent={
            "first_token": "TGI does not time it",
            "between_tokens": "TGI's mean time includes the prompt's",
        },
    ),
}


def _published(key: str, name: str) -> str:
    """Return the name of a metric's samples."""
    return f"{name}_bucket" if key in _HISTOGRAMS else name.partition("{")[0]


_KNOWN = {_published(key, name) for dialect in _OF.values() for key, names in dialect.names.items() for name in names}
_PREFIXES = tuple(prefix for dialect in _OF.values() for prefix in dialect.prefixes)


class Histogram(Struct, frozen=True):
    """Counts since the server's start at or below each bound (seconds)."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]


class ServingPage(Struct, frozen=True):
    """Values of one page, over all models and engines.

    Keys that are not published are absent.
    """

    kind: ServerKind
    values: Mapping[str, float]
    histograms: Mapping[str, Histogram]


def read_page(text: str) -> ServingPage:
    """Parse one page. Raises PageError for a foreign one.

    A last line without its newline was cut off and is left out.
    """
    series = _series(text[: text.rfind("\n") + 1].split("\n"))
    if series is None:
        raise PageError("answers, but not with a Prometheus page")
    kind = next((kind for kind in LABELS if any(name.startswith(_OF[kind].prefixes) for name in series)), None)
    if kind is None:
        raise PageError(f"its page has no metrics of {', '.join(LABELS.values())}")
    values: dict[str, float] = {}
    histograms: dict[str, Histogram] = {}
    for key, names in _OF[kind].names.items():
        samples = next((rows for name in names if (rows := _samples(series, key, name)) is not None), None)
        if samples is None:
            continue
        if key in _HISTOGRAMS:
            if (histogram := _histogram(samples, _OF[kind].scale_s)) is not None:
                histograms[key] = histogram
        else:
            found = [value for _, value in samples]
            # The fullest of several engines is the first to hold requests back.
            values[key] = max(found, default=0.0) if key == "kv_cache" else sum(found)
    return ServingPage(kind, values, histograms)


_Samples = list[tuple[dict[str, str], float]]


def _samples(series: Mapping[str, _Samples], key: str, name: str) -> _Samples | None:
    """Return a metric's samples, or None; ``name{label=value}`` selects."""
    rows = series.get(_published(key, name))
    label, _, wanted = name.partition("{")[2].removesuffix("}").partition("=")
    if rows is None or not label:
        return rows
    return [row for row in rows if row[0].get(label) == wanted] or None


def _series(lines: Iterable[str]) -> dict[str, _Samples] | None:
    """Return known samples by name, None where no line is a sample."""
    rows_by_name: dict[str, _Samples] = {}
    samples, read = False, 0
    for line in lines:
        is_known = line.startswith(_PREFIXES)
        if not line or line.startswith("#") or len(line) > MOST_LINE or (samples and not is_known):
            continue
        read += 1
        if read > MOST_LINES:
            raise PageError(f"its page has more than {MOST_LINES:,} lines of metrics")
        match = _SAMPLE.fullmatch(line)
        value = None if match is None else _number(match[3])
        if match is None or value is None:
            continue
        samples = True
        if is_known:
            rows = rows_by_name.setdefault(match[1], [])
            if match[1] in _KNOWN and isfinite(value) and len(rows) < MOST_SERIES:
                labels = dict(_LABEL.findall(match[2] or ""))
                if all(labels.get(rank, "0") in ("", "0") for rank in _PARALLEL) and not labels.get("priority"):
                    rows.append((labels, value))
    return {name: rows for name, rows in rows_by_name.items() if rows or name not in _KNOWN} if samples else None


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _histogram(rows: Sequence[tuple[dict[str, str], float]], scale_s: float) -> Histogram | None:
    """Sum a histogram over models and engines with equal buckets."""
    groups: dict[tuple[tuple[str, str], ...], dict[float, float]] = {}
    for labels, count in rows:
        bound = _number(labels.get("le", ""))
        if bound is None or bound != bound:
            return None
        rest = tuple(sorted((key, value) for key, value in labels.items() if key != "le"))
        groups.setdefault(rest, {})[bound] = count
    bounds = sorted(next(iter(groups.values())))
    if bounds[-1] != inf or any(sorted(group) != bounds for group in groups.values()):
        return None
    counts = tuple(sum(group[bound] for group in groups.values()) for bound in bounds)
    return Histogram(tuple(bound * scale_s for bound in bounds), counts)


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
        found = {**self._rates(before, page, seconds), **_gauges(page), **_quantiles(before, page, seconds)}
        columns: dict[str, Any] = {name: figure for name, figure in found.items() if not isinstance(figure, str)}
        reasons = {name: figure for name, figure in found.items() if isinstance(figure, str)}
        return ServerRow(self.place, page.kind, seconds if has_rate else None, **columns, unavailable=reasons)

    def _rates(self, before: ServingPage, page: ServingPage, seconds: float) -> dict[str, float | str]:
        """Return rates between two pages, or reasons."""
        dialect, runs = _OF[page.kind], page.values.get("running", 0.0) > 0.0
        new = {key: page.values[key] - was for key, was in before.values.items() if key in page.values}
        rates: dict[str, float | str] = {}
        for key, name in _RATES.items():
            if key not in new:
                rates[name] = _EARLY if key in page.values else dialect.absent.get(key, _unpublished(page.kind))
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
            rates["prefix_hit_pct"] = _EARLY if seconds < LEAST_S else f"no prompt in the last {seconds:.0f} s"
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
    dialect = _OF[page.kind]
    found: dict[str, Bounds | str] = {}
    for key in _HISTOGRAMS:
        histogram, earlier = page.histograms.get(key), before.histograms.get(key)
        for share, words in ((0.5, "p50"), (0.99, "p99")):
            name = f"{key}_{words}_s"
            if histogram is None or earlier is None or histogram.bounds != earlier.bounds:
                if key != "first_response" or key in dialect.names:
                    found[name] = dialect.absent.get(key, _unpublished(page.kind))
            elif seconds < LEAST_S:
                found[name] = _EARLY
            else:
                found[name] = quantile(earlier, histogram, share) or f"no request in the last {seconds:.0f} s"
    return found


def _unpublished(kind: ServerKind) -> str:
    return f"this {LABELS[kind]} does not publish it"


def _restarted(before: ServingPage, after: ServingPage) -> bool:
    """Whether a counter fell, or another server answers."""
    if before.kind != after.kind or any(
        after.values[key] < value for key, value in before.values.items() if key in _COUNTERS and key in after.values
    ):
        return True
    return any(
        (now := after.histograms.get(key)) is not None
        and now.bounds == was.bounds
        and any(late < early for early, late in zip(was.counts, now.counts, strict=True))
        for key, was in before.histograms.items()
    )


# Inference servers beside a source: their pages read on a thread of their own, their rows joined to its snapshots.
#
# Whatever a server does (silent, endless, not a page, gone) costs a line in the notices, and nothing else waits for it.

TIMEOUT_S = 1.0
"""How long each wait for a server may take; a whole answer has three seconds."""
LEAST_APART_S = 1.0
RATES_WAIT_S = 4.0
"""How long a single reading waits for rates: an answer may take three seconds, the next begins a second later."""
SILENT_APART_S = 10.0
"""How long a server that did not answer is left alone."""
OPTION = "--server-url"


def addresses(text: str, *, typed: bool = False) -> tuple[str, ...]:
    """Return the addresses in a setting, separated by commas.

    An address without a path means ``/metrics``. ``typed`` ones come from the command line and may name this machine
    alone. Raises UsageError.
    """
    from urllib.parse import urlsplit

    urls = []
    for address in filter(None, (part.strip() for part in text.split(","))):
        url = checked(address, OPTION, "http://localhost:8000/metrics")
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None:
            raise UsageError(f"{OPTION}: leave user and password out of the address: they would stand in lists of "
                             "processes")  # fmt: skip
        if typed and not is_loopback(parts.hostname or ""):
            raise UsageError(
                f"{OPTION} {place_of(url)}: on the command line this machine alone (localhost); another host only by "
                f'the configuration file: server_url = "http://HOST:PORT/metrics"'
            )
        urls.append(url if parts.path not in ("", "/") else f"{parts.scheme}://{parts.netloc}/metrics")
    if len(urls) > MOST_SERVERS:
        raise UsageError(f"{OPTION}: at most {MOST_SERVERS} servers, not {len(urls)}")
    return tuple(dict.fromkeys(urls))


class ServerWatch:
    """Reads each server about once a second on a thread of its own.

    A server that is silent, endless, gone or no page costs one notice and delays no other.
    """

    def __init__(self, urls: Sequence[str], clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._heard = threading.Condition()
        self._workers = [self._worker(url) for url in urls]

    def start(self) -> None:
        """Begin to read."""
        for worker in self._workers:
            worker.ask()

    def rows(self) -> tuple[ServerRow, ...]:
        """Return the newest row of each server, without blocking."""
        return tuple([row for worker in self._workers if (row := worker.latest) is not None])

    def rates(self, wait_s: float) -> tuple[ServerRow, ...]:
        """Wait for a rate, or a reason, of each server; return the rows.

        Waits ``wait_s`` seconds at most.
        """
        end = monotonic() + wait_s
        with self._heard:
            while (remaining_s := end - monotonic()) > 0.0 and not self._is_complete():
                self._heard.wait(remaining_s)
        return self.rows()

    def close(self) -> None:
        """End the threads; one waiting for an answer ends with it."""
        for worker in self._workers:
            worker.stop()

    def _is_complete(self) -> bool:
        rows = self.rows()
        return len(rows) == len(self._workers) and all(
            row.error is not None or row.window_s is not None for row in rows
        )

    def _worker(self, url: str) -> Worker[ServerRow]:
        window = ServerWindow(place_of(url))

        def tell() -> None:
            with self._heard:
                self._heard.notify_all()

        def pause_s() -> float:
            row = worker.latest
            apart_s = LEAST_APART_S if row is None or row.error is None else SILENT_APART_S
            return max(LEAST_S, apart_s - worker.took_s)

        worker = Worker("server", lambda: self._row(url, window), tell, again=pause_s)
        return worker

    def _row(self, url: str, window: ServerWindow) -> ServerRow:
        try:
            text = get(url, TIMEOUT_S)
            # The counts are those of the answer, which may come late, and the first one latest.
            return window.add(self._clock(), read_page(text))
        except PageError as error:
            return window.fail(str(error))
        except (OSError, ValueError) as error:
            return window.fail(trouble(error))
        except Exception as error:  # noqa: BLE001 - the last frame of a thread that must outlive any answer
            return window.fail(f"its page cannot be read ({type(error).__name__})")


class Serving(PassingOn):
    """Adds the servers' rows to another source's snapshots."""

    def __init__(self, source: Source, watch: ServerWatch) -> None:
        super().__init__(source)
        self._watch = watch

    def start(self, notify: Callable[[], None]) -> None:
        self._watch.start()
        super().start(notify)

    def passed(self, snapshot: Snapshot) -> Snapshot:
        return with_rows(snapshot, self._watch.rows())

    def close(self) -> None:
        self._watch.close()
        super().close()


def with_rows(snapshot: Snapshot, rows: Sequence[ServerRow]) -> Snapshot:
    """Add servers' rows to a snapshot, with a notice per failure."""
    if not rows:
        return snapshot
    troubles = [f"server {row.place}: {row.error}" for row in rows if row.error is not None]
    return replace(snapshot, servers=tuple(rows), notices=(*snapshot.notices, *troubles))


def with_servers(source: Source, urls: str) -> Source:
    """Add the servers of a setting to a source; itself without any.

    Raises UsageError.
    """
    servers = addresses(urls)
    return Serving(source, ServerWatch(servers)) if servers else source
