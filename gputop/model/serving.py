"""Counters of inference servers: requests, tokens, waiting times, queue."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from gputop.model.bounds import Reasons, Text
from gputop.model.clean_text import clean_text

ServerKind = Literal["vllm", "sglang", "triton", "tgi"]
LABELS: Mapping[ServerKind, str] = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "triton": "Triton",
    "tgi": "TGI",
}
PROGRAMS: Mapping[ServerKind, str] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "triton": "tritonserver",
    "tgi": "text-generation",
}
"""The program of each kind, by the name under which ``model.feeders`` knows it."""
MOST_SERVERS = 8
MOST_PLACE = 128
_MOST_WORDS = 200
Amount = Annotated[float, Meta(ge=0.0, le=1e15)]
"""A number that a server can have counted."""
Bounds = tuple[Amount, Amount | None]
"""Bounds of a quantile in seconds.

The quantile lies above the first and at most at the second; None if only the last bucket holds it.
"""


NO_REASONS: Mapping[str, str] = MappingProxyType({})


class ServerRow(Struct, frozen=True, omit_defaults=True):
    """Measurements of one inference server over ``window_s`` seconds.

    None is not measured; ``unavailable`` has the reasons. ``place`` is host and port. Requests are completed requests,
    tokens are generated tokens. ``queue`` and ``running`` are requests now, ``kv_cache_pct`` is the fill of the fullest
    engine's KV cache, ``preemptions_per_s`` are requests evicted from the cache, ``prefix_hit_pct`` is the share of
    prompt tokens that were in the cache already. ``error`` says in one line why nothing was read.
    """

    place: Text
    kind: ServerKind | None = None
    window_s: Amount | None = None
    requests_per_s: Amount | None = None
    tokens_per_s: Amount | None = None
    prompt_tokens_per_s: Amount | None = None
    queue: Amount | None = None
    running: Amount | None = None
    first_token_p50_s: Bounds | None = None
    first_token_p99_s: Bounds | None = None
    first_response_p50_s: Bounds | None = None
    first_response_p99_s: Bounds | None = None
    between_tokens_p50_s: Bounds | None = None
    between_tokens_p99_s: Bounds | None = None
    kv_cache_pct: Amount | None = None
    preemptions_per_s: Amount | None = None
    prefix_hit_pct: Amount | None = None
    unavailable: Reasons = NO_REASONS
    error: Text | None = None

    @property
    def label(self) -> str:
        """``vLLM localhost:8000``."""
        return f"{LABELS[self.kind]} {self.place}" if self.kind is not None else self.place


WORDS: Mapping[str, str] = {
    "requests_per_s": "requests", "tokens_per_s": "tokens", "prompt_tokens_per_s": "prompt tokens", "queue": "queue",
    "running": "running", "kv_cache_pct": "KV cache", "preemptions_per_s": "preemptions",
    "prefix_hit_pct": "prefix hits",
}  # fmt: skip
"""Display names of the numbers."""
TIMES = {
    "first_token": "first token",
    "first_response": "first response",
    "between_tokens": "between tokens",
}
NUMBERS = ("window_s", *WORDS)
QUANTILES = tuple(f"{what}_{share}_s" for what in TIMES for share in ("p50", "p99"))


def checked_server(row: ServerRow) -> ServerRow | None:
    """Return a row with harmless texts.

    None if the bounds of a quantile are impossible.
    """
    for low, high in filter(None, (getattr(row, key) for key in QUANTILES)):
        if high is not None and high < low:
            return None
    reasons = {
        key: _words(row.unavailable[key])
        for key in (*NUMBERS, *QUANTILES)
        if key in row.unavailable
    }
    error = row.error and _words(row.error)
    return replace(row, place=clean_text(row.place)[:MOST_PLACE], unavailable=reasons, error=error)


def _words(text: str) -> str:
    return clean_text(text)[:_MOST_WORDS]
