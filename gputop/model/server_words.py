"""Words about an inference server: for a GPU's title, for a table, for a report."""

from __future__ import annotations

from gputop.model.durations import per_second
from gputop.model.quantity import NOT_MEASURED
from gputop.model.serving import TIMES, WORDS, Bounds, ServerRow


def server_forms(row: ServerRow) -> tuple[str, ...]:
    """Return summaries of a server, longest first.

    Example: ``vLLM localhost:8000: 12 requests/s, 1430 tokens/s, first token p99 0.5-1 s, queue 3, KV cache 41 %``.
    """
    requests, tokens = rate(row.requests_per_s, "requests/s"), rate(row.tokens_per_s, "tokens/s")
    queue = "" if row.queue is None else f"queue {row.queue:.0f}"
    cache = "" if row.kv_cache_pct is None else f"KV cache {row.kv_cache_pct:.0f} %"
    preempted = rate(row.preemptions_per_s or None, "preemptions/s")
    first = row.first_token_p99_s or row.first_response_p99_s
    late = (
        ""
        if first is None
        else f"first {'token' if row.first_token_p99_s else 'response'} p99 {bounds(first)}"
    )
    kinds = (
        (requests, tokens, late, queue, cache, preempted),
        (requests, tokens, queue, cache),
        (tokens or requests, queue, cache),
        (tokens or requests, queue),
        (tokens or requests,),
    )
    forms = [", ".join(filter(None, parts)) for parts in kinds if any(parts)]
    return tuple(
        sorted({*forms, *(f"{row.label}: {form}" for form in forms)}, key=len, reverse=True)
    )


def server_lines(row: ServerRow) -> list[str]:
    """Return a server's measurements in at most three lines.

    The lines are rates, times, and reasons for missing values.
    """
    if row.error is not None:
        return [f"{row.label}: {row.error}"]
    counts = [rate(row.requests_per_s, "requests/s"), rate(row.tokens_per_s, "tokens/s"),
              rate(row.prompt_tokens_per_s, "prompt tokens/s")]  # fmt: skip
    now = [
        f"{name} {value:.0f}{unit}"
        for name, value, unit in (
            ("queue", row.queue, ""),
            ("running", row.running, ""),
            ("KV cache", row.kv_cache_pct, " %"),
            ("prefix hits", row.prefix_hit_pct, " %"),
        )
        if value is not None
    ]
    over = "" if row.window_s is None else f" (over {row.window_s:.0f} s)"
    parts = (*counts, *now, rate(row.preemptions_per_s, "preemptions/s"))
    measured = ", ".join(part for part in parts if part) or NOT_MEASURED
    times = [
        f"{words} p50 {bounds(getattr(row, f'{key}_p50_s'))}, p99 {bounds(getattr(row, f'{key}_p99_s'))}"
        for key, words in TIMES.items()
        if getattr(row, f"{key}_p50_s") is not None or getattr(row, f"{key}_p99_s") is not None
    ]
    lines = [f"{row.label}: {measured}{over}", *(["; ".join(times)] if times else [])]
    missing: dict[str, list[str]] = {}
    for key, reason in row.unavailable.items():
        words = WORDS.get(key) or TIMES[key.rpartition("_p")[0]]
        missing.setdefault(reason, []).append(words)
    reasons = [f"{', '.join(dict.fromkeys(names))}: {reason}" for reason, names in missing.items()]
    return [*lines, *([f"n/a: {'; '.join(reasons)}"] if reasons else [])]


def rate(value: float | None, unit: str) -> str:
    """Format a rate: ``12 requests/s``.

    Empty if unknown, ``0 requests/s`` without requests.
    """
    if value is None:
        return ""
    return f"{per_second(value) if value > 0.0 else '0'} {unit}"


def bounds(bucket: Bounds | None) -> str:
    """Format a quantile's bucket: ``0.25-0.5 s``.

    Other forms are ``at most 1 ms`` and ``above 80 s``; n/a without a bucket.
    """
    if bucket is None:
        return NOT_MEASURED
    low, high = bucket
    if high is None:
        return f"above {_time(low)}"
    if low <= 0.0:
        return f"at most {_time(high)}"
    (least, unit), (upper, other) = (_time(value).split(" ") for value in (low, high))
    return f"{least}-{upper} {unit}" if unit == other else f"{least} {unit}-{upper} {other}"


def _time(seconds: float) -> str:
    """Format a bucket's bound with the server's own digits."""
    return f"{seconds:g} s" if seconds >= 1.0 else f"{1000.0 * seconds:g} ms"
