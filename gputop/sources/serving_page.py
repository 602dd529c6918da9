"""Parses the metrics pages of inference servers.

The names are those that the servers document: vLLM (docs.vllm.ai, "Production Metrics"), SGLang (docs.sglang.io,
"Production Metrics"), Triton (docs.nvidia.com, "Metrics" of the Triton Inference Server), TGI (huggingface.co,
"Metrics" of text-generation-inference).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite

from msgspec import Struct

from gputop.model.exposition import Labels, PageLimitError, parse_page, parsed_number
from gputop.model.serving import LABELS, ServerKind

MOST_SERIES = 50_000
"""Series of servers on a page, a second's worth of which must stay cheap; a server of many models has some thousand."""
MOST_OF_METRIC = 4096
"""Series of one metric, over models, engines and buckets."""
LOOKED_AT = 100_000
"""Characters of a foreign page that are looked at for a sample."""
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


HISTOGRAMS = ("first_token", "first_response", "between_tokens")


# ``token_rate`` is tokens a second as SGLang itself works them out. Triton's TensorRT-LLM backend takes every request
# at once, and keeps those that wait itself.
DIALECTS: Mapping[ServerKind, ServerDialect] = {
    "vllm": ServerDialect(
        ("vllm:",),
        {
            "requests": ("vllm:request_success_total",),
            "tokens": ("vllm:generation_tokens_total",),
            "prompt_tokens": ("vllm:prompt_tokens_total",),
            "queue": ("vllm:num_requests_waiting",),
            "running": ("vllm:num_requests_running",),
            "kv_cache": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
            "preemptions": ("vllm:num_preemptions_total",),
            "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
            "prefix_queries": (
                "vllm:prefix_cache_queries_total",
                "vllm:gpu_prefix_cache_queries_total",
            ),
            "first_token": ("vllm:time_to_first_token_seconds",),
            "between_tokens": (
                "vllm:inter_token_latency_seconds",
                "vllm:time_per_output_token_seconds",
            ),
        },
    ),
    "sglang": ServerDialect(
        ("sglang:",),
        {
            "requests": ("sglang:num_requests_total", "sglang:e2e_request_latency_seconds_count"),
            "tokens": ("sglang:generation_tokens_total",),
            "prompt_tokens": ("sglang:prompt_tokens_total",),
            "queue": ("sglang:num_queue_reqs",),
            "running": ("sglang:num_running_reqs",),
            "token_rate": ("sglang:gen_throughput",),
            "kv_cache": ("sglang:token_usage",),
            "preemptions": ("sglang:num_retracted_requests_total",),
            "prefix_hits": ("sglang:cached_tokens_total",),
            "prefix_queries": ("sglang:prompt_tokens_total",),
            "first_token": ("sglang:time_to_first_token_seconds",),
            "between_tokens": (
                "sglang:inter_token_latency_seconds",
                "sglang:time_per_output_token_seconds",
            ),
        },
        counts_at_end=True,
    ),
    "triton": ServerDialect(
        ("nv_inference_", "nv_trt_llm_"),
        {
            "requests": ("nv_inference_request_success",),
            "queue": (
                "nv_trt_llm_request_metrics{request_type=waiting}",
                "nv_inference_pending_request_count",
            ),
            "running": ("nv_trt_llm_request_metrics{request_type=scheduled}",),
            "kv_cache": ("nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}",),
            "first_response": ("nv_inference_first_response_histogram_ms",),
        },
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
        {
            "requests": ("tgi_request_success",),
            "tokens": ("tgi_request_generated_tokens_sum",),
            "prompt_tokens": ("tgi_request_input_length_sum",),
            "queue": ("tgi_queue_size",),
            "running": ("tgi_batch_current_size",),
        },
        counts_at_end=True,
        absent={
            "first_token": "TGI does not time it",
            "between_tokens": "TGI's mean time includes the prompt's",
        },
    ),
}


def _published(key: str, name: str) -> str:
    """Return the name of a metric's samples."""
    return f"{name}_bucket" if key in HISTOGRAMS else name.partition("{")[0]


_KNOWN = {
    _published(key, name)
    for dialect in DIALECTS.values()
    for key, names in dialect.names.items()
    for name in names
}
_PREFIXES = tuple(prefix for dialect in DIALECTS.values() for prefix in dialect.prefixes)


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
    series = _series(text)
    if not series and not parse_page(text[:LOOKED_AT], _is_any).samples:
        raise PageError("answers, but not with a Prometheus page")
    kind = next(
        (
            kind
            for kind in LABELS
            if any(name.startswith(DIALECTS[kind].prefixes) for name in series)
        ),
        None,
    )
    if kind is None:
        raise PageError(f"its page has no metrics of {', '.join(LABELS.values())}")
    values: dict[str, float] = {}
    histograms: dict[str, Histogram] = {}
    for key, names in DIALECTS[kind].names.items():
        samples = next(
            (rows for name in names if (rows := _samples(series, key, name)) is not None), None
        )
        if samples is None:
            continue
        if key in HISTOGRAMS:
            if (histogram := _histogram(samples, DIALECTS[kind].scale_s)) is not None:
                histograms[key] = histogram
        else:
            found = [value for _, value in samples]
            # The fullest of several engines is the first to hold requests back.
            values[key] = max(found, default=0.0) if key == "kv_cache" else sum(found)
    return ServingPage(kind, values, histograms)


_Samples = list[tuple[Labels, float]]


def _samples(series: Mapping[str, _Samples], key: str, name: str) -> _Samples | None:
    """Return a metric's samples, or None; ``name{label=value}`` selects."""
    rows = series.get(_published(key, name))
    label, _, wanted = name.partition("{")[2].removesuffix("}").partition("=")
    if rows is None or not label:
        return rows
    return [row for row in rows if row[0].get(label) == wanted] or None


def _series(text: str) -> dict[str, _Samples]:
    """Return the servers' samples by name. Raises PageError."""
    try:
        page = parse_page(text, _is_of_server, most_series=MOST_SERIES)
    except PageLimitError as error:
        raise PageError(str(error)) from None
    for missing in page.left_out:
        if missing.name in _KNOWN:
            raise PageError(f"its page goes beyond a limit: {missing}")
    rows_by_name: dict[str, _Samples] = {}
    for sample in page.samples:
        rows = rows_by_name.setdefault(sample.name, [])
        if sample.name not in _KNOWN or not isfinite(sample.value):
            continue
        if not _is_counted(sample.labels):
            continue
        if len(rows) >= MOST_OF_METRIC:
            raise PageError(f"its page has more than {MOST_OF_METRIC:,} series of {sample.name}")
        rows.append((sample.labels, sample.value))
    return {name: rows for name, rows in rows_by_name.items() if rows or name not in _KNOWN}


def _is_any(name: str) -> bool:
    return bool(name)


def _is_of_server(name: str) -> bool:
    return name.startswith(_PREFIXES)


def _is_counted(labels: Labels) -> bool:
    """Whether a sample counts beside those of other ranks and priorities."""
    is_first_rank = all(labels.get(rank, "0") in ("", "0") for rank in _PARALLEL)
    return is_first_rank and not labels.get("priority")


def _histogram(rows: Sequence[tuple[Labels, float]], scale_s: float) -> Histogram | None:
    """Sum a histogram over models and engines with equal buckets."""
    groups: dict[tuple[tuple[str, str], ...], dict[float, float]] = {}
    for labels, count in rows:
        bound = parsed_number(labels.get("le", ""))
        if bound is None or bound != bound:
            return None
        rest = tuple(sorted((key, value) for key, value in labels.items() if key != "le"))
        groups.setdefault(rest, {})[bound] = count
    bounds = sorted(next(iter(groups.values())))
    if bounds[-1] != inf or any(sorted(group) != bounds for group in groups.values()):
        return None
    counts = tuple(sum(group[bound] for group in groups.values()) for bound in bounds)
    return Histogram(tuple(bound * scale_s for bound in bounds), counts)
