"""Which settings are measured, when it is enough, and which is the answer. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputop.loader_bench.rows import Room, Row, Setting, Shares
from gputop.model.quantity import GIB

MOST_WORKERS = 32
PREFETCH = 2
"""PyTorch's own default."""
MORE_PREFETCH = (4, 8)
LEAST_GAIN = 0.05
"""Two doublings that gain less than this together are the end of the climb."""
ENOUGH = 0.8
"""A batch must be ready within this part of a step: loaders and steps vary."""
UNNOTICED = 0.05
"""The same without workers, where nothing is loaded while the step runs: the loop waits for each batch."""
WITHIN = 1.05
"""Relative to the best: without a step time the smallest setting this close to it is the answer."""
MOSTLY = 0.5
_TAKE_LESS = "larger batches, and in each a few large tensors rather than many small ones or Python objects"


def doublings(cores: int) -> list[int]:
    """0, 1, 2, 4 … up to twice the cores."""
    most = min(2 * max(1, cores), MOST_WORKERS)
    found, workers = [0], 1
    while workers <= most:
        found.append(workers)
        workers *= 2
    return found


def worker_counts(workers: str | int | Iterable[int], cores: int) -> list[int]:
    """The counts that were asked for; ``auto`` are the doublings. Raises ValueError."""
    if workers == "auto":
        return doublings(cores)
    given = [workers] if isinstance(workers, int) else workers
    try:
        counts = sorted({int(count) for count in given})
    except (TypeError, ValueError):
        raise ValueError(f"workers must be 'auto', a number or several, not {workers!r}") from None
    if not counts or counts[0] < 0 or counts[-1] > 4 * MOST_WORKERS:
        raise ValueError(f"workers must be 0 to {4 * MOST_WORKERS}, not {workers!r}")
    return counts


def setting_of(workers: int, prefetch: int = PREFETCH) -> Setting:
    """The setting with so many workers, each ``prefetch`` batches ahead."""
    return Setting(workers, prefetch if workers else None)


def keeps_up(row: Row, need_ms: float | None) -> bool:
    """Whether a job whose batches are needed in ``need_ms`` would not notice this loader."""
    if row.batch_ms is None or need_ms is None:
        return False
    return row.batch_ms <= (need_ms if row.setting.workers else UNNOTICED / ENOUGH * need_ms)


def is_enough(rows: Sequence[Row], need_ms: float | None) -> bool:
    """Whether more workers need not be tried: the need is met, or two doublings have gained too little."""
    known = [row.batch_ms for row in rows if row.batch_ms is not None]
    if not known:
        return False
    if keeps_up(rows[-1], need_ms):
        return True
    return len(known) >= 4 and known[-1] > (1.0 - LEAST_GAIN) * known[-3]


def knee(rows: Sequence[Row], need_ms: float | None) -> list[int]:
    """The counts next to the best of the doublings that are worth a try: one less and one more."""
    best = answer(rows, need_ms)
    if best is None or best.setting.workers < 2:
        return []
    tried = {row.setting.workers for row in rows}
    beside = (
        (best.setting.workers - 1,) if keeps_up(best, need_ms) else (best.setting.workers - 1, best.setting.workers + 1)
    )
    return [count for count in beside if count not in tried]


def answer(rows: Iterable[Row], need_ms: float | None) -> Row | None:
    """The smallest setting that is fast enough; where none is, or no need is known, the smallest near the best.

    Of those near the best one with workers, if there is any: it loads while the step runs.
    """
    known = [row for row in rows if row.batch_ms is not None]
    if not known:
        return None
    enough = [row for row in known if keeps_up(row, need_ms)]
    if enough:
        return min(enough, key=_size)
    least = min(row.batch_ms or 0.0 for row in known)
    near = [row for row in known if (row.batch_ms or 0.0) <= least * WITHIN]
    return min(near, key=lambda row: (row.setting.workers == 0, *_size(row)))


def _size(row: Row) -> tuple[float, ...]:
    setting = row.setting
    return setting.workers, setting.prefetch or 0, setting.pin_memory, row.batch_ms or 0.0


def memory_of(rows: Iterable[Row], workers: int) -> float | None:
    """The memory of so many workers in bytes: a base and an amount per worker, from the measurements."""
    known = [(row.setting.workers, row.memory_bytes) for row in rows if row.memory_bytes is not None]
    if len(known) < 2:
        return None
    (few, low), (many, high) = min(known), max(known)
    if many == few:
        return None
    each = max(0.0, (high - low) / (many - few))
    return low + each * (workers - few)


def too_much(need: float, free: float, most: float) -> str:
    """Why a setting is not tried."""
    return f"not run: would need {need / GIB:.1f} of {free / GIB:.1f} GiB free ({100 * most:.0f} % at most)"


def conclusion_of(best: Row | None, rows: Sequence[Row], step_ms: float | None, need_ms: float | None) -> str:
    """The answer in a sentence."""
    if best is None or best.batch_ms is None:
        reasons = [row.failed for row in rows if row.failed]
        return f"nothing could be measured: {reasons[0]}" if reasons else "nothing could be measured"
    name = f"{best.setting.workers} worker{'' if best.setting.workers == 1 else 's'}"
    if best.setting.prefetch not in (None, PREFETCH):
        name += f" with prefetch_factor={best.setting.prefetch}"
    if need_ms is None or step_ms is None:
        tried = max(row.setting.workers for row in rows if row.batch_ms is not None)
        more = "more gain less than 5 %" if best.setting.workers < tried else "the most that was tried"
        return f"{name}: {best.batch_ms:.1f} ms a batch; {more}"
    if keeps_up(best, need_ms):
        took = f"{best.batch_ms:.1f} ms a batch, and your step takes {step_ms:.0f} ms"
        return f"{name} {'is' if best.setting.workers == 1 else 'are'} enough: {took}; more gain nothing"
    return (
        f"no setting is fast enough: the best, {name}, takes {best.batch_ms:.1f} ms a batch, and your step "
        f"{step_ms:.0f} ms"
    )


def why_of(best: Row | None, room: Room, need_ms: float | None = None) -> str:
    """What limits the loader, from what its workers did, and, where it is not fast enough, what would help."""
    shares = None if best is None else best.shares
    if shares is None or best is None:
        return ""
    if keeps_up(best, need_ms):
        return _did(shares)
    if best.take_ms is not None and best.batch_ms is not None and best.take_ms >= MOSTLY * best.batch_ms:
        return f"{_did(shares)}: limited by the loop's own thread, which takes the batches: more workers do not help"
    if shares.queued > 0.3 * (shares.run + shares.queued) and shares.run + shares.queued >= MOSTLY:
        return f"{_did(shares)}: not enough cores ({room.cores} here): cheaper transforms, OMP_NUM_THREADS=1"
    if shares.run + shares.queued >= MOSTLY:
        return f"{_did(shares)}: CPU-bound: more workers help up to {room.cores} cores, then cheaper transforms"
    if shares.disk >= max(shares.network, 0.2):
        return f"{_did(shares)}: disk-bound: shard small files, cache on local NVMe, prefetch more"
    if shares.network >= 0.2:
        return f"{_did(shares)}: network-bound: cache locally, more workers, larger reads"
    return f"{_did(shares)}: workers mostly wait for something else, such as a sleep or a lock; more of them help"


def taking_of(best: Row | None, step_ms: float | None) -> str:
    """What it costs the loop to take a ready batch, where that is a large part of its step, or of a batch's time where
    no step is known. Empty elsewhere."""
    if best is None or best.take_ms is None or best.batch_ms is None:
        return ""
    if best.take_ms <= (MOSTLY * best.batch_ms if step_ms is None else UNNOTICED * step_ms):
        return ""
    of = "" if step_ms is None else f" of each step of {step_ms:.0f} ms"
    pinned = "" if best.setting.pin_memory else "; with a GPU also pin_memory=True, whose thread takes them in advance"
    return (
        f"taking a batch costs the loop {best.take_ms:.1f} ms{of} even when it is ready, and no number of "
        f"workers can avoid that: {_TAKE_LESS}{pinned}"
    )


def _did(shares: Shares) -> str:
    parts = (("on a core", shares.run), ("queued", shares.queued), ("disk", shares.disk), ("network", shares.network))
    return "workers " + ", ".join(f"{words} {100 * share:.0f} %" for words, share in parts)
