"""What an inference server serves, in words: for a GPU's title, for a table, for a report."""

from __future__ import annotations

from gputop.model.quantity import NOT_MEASURED, per_second
from gputop.model.serving import Bounds, ServerRow


def server_forms(row: ServerRow) -> tuple[str, ...]:
    """``vLLM localhost:8000: 12 requests/s, 1430 tokens/s, first token p99 0.5-1 s, queue 3``, the longest first."""
    requests, tokens = rate(row.requests_per_s, "requests/s"), rate(row.tokens_per_s, "tokens/s")
    queue = "" if row.queue is None else f"queue {row.queue:.0f}"
    first = row.first_token_p99_s or row.first_response_p99_s
    late = "" if first is None else f"first {'token' if row.first_token_p99_s else 'response'} p99 {bounds(first)}"
    kinds = (
        (f"{row.label}:", requests, tokens, late, queue),
        (f"{row.label}:", requests, tokens, queue),
        (f"{row.label}:", tokens or requests),
        ("", requests, tokens, late, queue),
        ("", requests, tokens, queue),
        ("", tokens or requests, queue),
        ("", tokens or requests),
    )
    forms = []
    for lead, *parts in kinds:
        said = ", ".join(part for part in parts if part)
        if said:
            forms.append(f"{lead} {said}".strip())
    return tuple(sorted(dict.fromkeys(forms), key=len, reverse=True))


def server_lines(row: ServerRow) -> list[str]:
    """All that is known of a server, in at most three lines: rates, times, why the rest is missing."""
    if row.error is not None:
        return [f"{row.label}: {row.error}"]
    counts = [rate(row.requests_per_s, "requests/s"), rate(row.tokens_per_s, "tokens/s"),
              rate(row.prompt_tokens_per_s, "prompt tokens/s")]  # fmt: skip
    now = [
        f"{name} {value:.0f}" for name, value in (("queue", row.queue), ("running", row.running)) if value is not None
    ]
    over = "" if row.window_s is None else f" (over {row.window_s:.0f} s)"
    said = ", ".join(part for part in (*counts, *now) if part) or NOT_MEASURED
    times = [
        f"{words} p50 {bounds(getattr(row, f'{key}_p50_s'))}, p99 {bounds(getattr(row, f'{key}_p99_s'))}"
        for key, words in (
            ("first_token", "first token"), ("first_response", "first response"), ("between_tokens", "between tokens"),
        )
        if getattr(row, f"{key}_p50_s") is not None or getattr(row, f"{key}_p99_s") is not None
    ]  # fmt: skip
    lines = [f"{row.label}: {said}{over}", *(["; ".join(times)] if times else [])]
    reasons = dict.fromkeys(row.unavailable.values())
    return [*lines, *([f"n/a: {'; '.join(reasons)}"] if reasons else [])]


def rate(value: float | None, unit: str) -> str:
    """``12 requests/s``; empty where it is not known, ``0 requests/s`` where nothing came."""
    if value is None:
        return ""
    return f"{per_second(value) if value > 0.0 else '0'} {unit}"


def bounds(given: Bounds | None) -> str:
    """The bucket that holds a quantile, n/a without one: ``0.25-0.5 s``, ``at most 1 ms``, ``above 80 s``."""
    if given is None:
        return NOT_MEASURED
    low, high = given
    if high is None:
        return f"above {_time(low)}"
    if low <= 0.0:
        return f"at most {_time(high)}"
    (least, unit), (most, other) = (_time(value).split(" ") for value in (low, high))
    return f"{least}-{most} {unit}" if unit == other else f"{least} {unit}-{most} {other}"


def _time(seconds: float) -> str:
    """A bucket's bound as the server's page has it, without digits that it does not have."""
    return f"{seconds:g} s" if seconds >= 1.0 else f"{1000.0 * seconds:g} ms"
