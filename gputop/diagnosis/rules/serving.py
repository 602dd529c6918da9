"""Rules for inference servers: a full KV cache, low demand."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.diagnosis.rules.base import Rule, RuleResult
from gputop.diagnosis.rules.feeding import (
    LEAST_RX,
    front_computes,
    main_runs,
    works,
)
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.thresholds import FULL_CACHE_PCT, IDLE_PCT
from gputop.diagnosis.types import HOLDING_MEMORY
from gputop.model.quantity import pct
from gputop.model.server_words import server_forms


def _cache_is_full(s: Signals) -> bool:
    row = s.tick.serving
    is_full = (
        row is not None and (row.kv_cache_pct or 0.0) >= FULL_CACHE_PCT and (row.queue or 0.0) > 0.0
    )
    return s.conditions.waits and is_full


def _tell_full_cache(s: Signals) -> RuleResult:
    row = s.tick.serving
    told = "" if row is None else server_forms(row)[0]
    line = f"requests wait for a place in the KV cache; the GPU is idle {s.idle:.0f} % of the time"
    return RuleResult((line, told), confidence="high")


KV_CACHE_FULL = Rule(
    id="kv_cache_full",
    title="short of memory: the KV cache is full",
    short="KV cache full",
    condition=f"idle ≥ {IDLE_PCT:.0f} %; the server on this GPU (--server-url) says that its KV cache is ≥ "
    f"{FULL_CACHE_PCT:.0f} % full and requests wait",
    state="starved",
    matches=_cache_is_full,
    tell=_tell_full_cache,
    remedy="more memory for the cache (vLLM --gpu-memory-utilization, SGLang --mem-fraction-static), an FP8 cache "
    "(--kv-cache-dtype), a shorter --max-model-len, smaller weights, more GPUs",
    remedy_short="FP8 cache, shorter context, more GPUs",
)


WAITS_FOR_REQUESTS = 0.5
"""Share of the idle time in which a main thread sits in accept or an event loop that makes it a server."""


def _listens(s: Signals) -> bool:
    """A process with a listening socket, its own or its parent's, whose main thread waits for requests."""
    waits = s.host.waits
    f = s.host.feeders
    if waits is None or ((s.host.mean.listens or 0.0) < 0.5 and not s.host.served) or main_runs(s):
        return False
    if s.host.loaders and (f is None or f.feeder_kind not in ("helpers", "beside")):
        return False
    # Threads of a server wait for clients, unless data comes in over connections that the server opened.
    if (
        works(s)
        and f is not None
        and (f.feeder_kind != "threads" or (s.host.rx or 0.0) >= LEAST_RX)
    ):
        return False
    for_requests = waits.poll + waits.pipe + waits.other if s.host.served else waits.poll
    return for_requests >= WAITS_FOR_REQUESTS * s.idle / 100.0


def _low_demand(s: Signals) -> bool:
    if not s.conditions.waits or front_computes(s):
        return False
    return (s.tick.server is not None and not s.host.loaders) or _listens(s)


def _tell_low_demand(s: Signals) -> RuleResult:
    server = f"{s.tick.server} is a server"
    if s.tick.server is None:
        name = s.tick.name
        server = (
            f"the parent of {name} takes requests"
            if s.host.served
            else f"{name} listens on a socket of its own"
        )
    line = (
        f"{server} and waits for requests: util {s.util_pct:.0f} %, idle {s.idle:.0f} % of the "
        "time, no loaders"
    )
    return RuleResult((line,))


def _tell_job_demand(s: Signals) -> RuleResult:
    line = f"{s.demand}: util {s.util_pct:.0f} %, SM {pct(s.mean.sm)}"
    return RuleResult((line,))


LOW_DEMAND = Rule(
    id="low_demand",
    title=f"low demand: {HOLDING_MEMORY}",
    short="low demand",
    condition=f"idle ≥ {IDLE_PCT:.0f} %; no loaders; the command is a server (vllm, sglang, tritonserver, …), or the "
    f"main thread waits for connections in ≥ {100 * WAITS_FOR_REQUESTS:.0f} % of the idle time, or for a parent "
    "that does",
    state="idle_allocated",
    role="information",
    matches=_low_demand,
    tell=_tell_low_demand,
    remedy="nothing to fix: batch{gpu_memory:, consolidate on fewer GPUs}, MIG",
    remedy_short="batch{gpu_memory:, consolidate}, MIG",
)

LOW_DEMAND_OF_JOB = replace(
    LOW_DEMAND, matches=lambda s: bool(s.demand) and not s.holds_up, tell=_tell_job_demand
)
"""Asked first: of the job as a whole neither a GPU that looks busy nor one that is idle says the truth."""
