"""Settings to measure, when to stop, and which one is the answer. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputop.diagnosis.thresholds import NOTICED_WAIT
from gputop.features.loader_bench.bench_report import BenchRow, LoaderSetting, Room, Shares
from gputop.model.quantity import count

MAX_WORKERS = 32
PREFETCH = 2
"""PyTorch's own default."""
MORE_PREFETCH = (4, 8)
MIN_GAIN = 0.05
"""The climb ends when two doublings together gain less than this share."""
ENOUGH = 0.8
"""Share of a step within which a batch must be ready, since loaders and steps vary.

Without workers nothing is loaded while the step runs, and the loop waits for each batch: there ``NOTICED_WAIT`` is the
bound."""
WITHIN = 1.05
"""Factor to the best time within which the smallest setting is chosen if no step time is known."""
MOSTLY = 0.5


def doublings(cores: int) -> list[int]:
    """Return 0, 1, 2, 4 … up to twice the cores."""
    max_workers = min(2 * max(1, cores), MAX_WORKERS)
    return [0, *(1 << power for power in range(max_workers.bit_length()))]


def worker_counts(workers: str | int | Iterable[int], cores: int) -> list[int]:
    """Return the requested counts, the doublings for ``auto``. Raises ValueError."""
    if workers == "auto":
        return doublings(cores)
    numbers = [workers] if isinstance(workers, int) else workers
    try:
        counts = sorted({int(count) for count in numbers})
    except (TypeError, ValueError):
        raise ValueError(f"workers must be 'auto', a number or several, not {workers!r}") from None
    if not counts or counts[0] < 0 or counts[-1] > 4 * MAX_WORKERS:
        raise ValueError(f"workers must be 0 to {4 * MAX_WORKERS}, not {workers!r}")
    return counts


def setting_of(workers: int, prefetch: int = PREFETCH) -> LoaderSetting:
    """Return the setting with this many workers, each ``prefetch`` batches ahead."""
    return LoaderSetting(workers, prefetch if workers else None)


def keeps_up(row: BenchRow, need_ms: float | None) -> bool:
    """True if a job that needs a batch every ``need_ms`` would not notice this loader."""
    if row.batch_ms is None or need_ms is None:
        return False
    return row.batch_ms <= (need_ms if row.setting.workers else NOTICED_WAIT / ENOUGH * need_ms)


def is_enough(rows: Sequence[BenchRow], need_ms: float | None) -> bool:
    """True if the need is met, or two doublings have gained too little."""
    measured = [row.batch_ms for row in rows if row.batch_ms is not None]
    if not measured:
        return False
    if keeps_up(rows[-1], need_ms):
        return True
    return len(measured) >= 4 and measured[-1] > (1.0 - MIN_GAIN) * measured[-3]


def choose(rows: Iterable[BenchRow], need_ms: float | None) -> BenchRow | None:
    """Return the smallest setting that is fast enough, else the smallest near the best.

    Among those near the best a setting with workers is preferred: it loads while the step runs.
    """
    measured = [row for row in rows if row.batch_ms is not None]
    if not measured:
        return None
    enough = [row for row in measured if keeps_up(row, need_ms)]
    if enough:
        return min(enough, key=_size)
    fastest_ms = min(row.batch_ms or 0.0 for row in measured)
    near = [row for row in measured if (row.batch_ms or 0.0) <= fastest_ms * WITHIN]
    return min(near, key=lambda row: (row.setting.workers == 0, *_size(row)))


def _size(row: BenchRow) -> tuple[float, ...]:
    setting = row.setting
    return setting.workers, setting.prefetch or 0, row.batch_ms or 0.0


def conclusion_of(
    best: BenchRow | None, rows: Sequence[BenchRow], step_ms: float | None, need_ms: float | None
) -> str:
    """Return the answer in a sentence."""
    if best is None or best.batch_ms is None:
        reasons = [row.failed for row in rows if row.failed]
        return (
            f"nothing could be measured: {reasons[0]}" if reasons else "nothing could be measured"
        )
    name = f"{best.setting.workers} worker{'' if best.setting.workers == 1 else 's'}"
    if best.setting.prefetch not in (None, PREFETCH):
        name += f" with prefetch_factor={best.setting.prefetch}"
    if need_ms is None or step_ms is None:
        tried = max(row.setting.workers for row in rows if row.batch_ms is not None)
        more_words = (
            "more gain less than 5 %" if best.setting.workers < tried else "the most that was tried"
        )
        return f"{name}: {best.batch_ms:.1f} ms a batch; {more_words}"
    if keeps_up(best, need_ms):
        took = f"{best.batch_ms:.1f} ms a batch, and your step takes {step_ms:.0f} ms"
        return (
            f"{name} {'is' if best.setting.workers == 1 else 'are'} enough: {took}; more gain "
            "nothing"
        )
    return (
        f"no setting is fast enough: the best, {name}, takes {best.batch_ms:.1f} ms a batch, and your step "
        f"{step_ms:.0f} ms"
    )


def limit_of(best: BenchRow | None, room: Room, need_ms: float | None = None) -> str:
    """Return what limits the loader and, if it is too slow, what would help."""
    shares = None if best is None else best.shares
    if shares is None or best is None:
        return ""
    if keeps_up(best, need_ms):
        return _activity(shares)
    if shares.queued > 0.3 * (shares.run + shares.queued) and shares.run + shares.queued >= MOSTLY:
        return (
            f"{_activity(shares)}: not enough cores ({room.cores} here): cheaper transforms, "
            "OMP_NUM_THREADS=1"
        )
    if shares.run + shares.queued >= MOSTLY:
        return (
            f"{_activity(shares)}: CPU-bound: more workers help up to {count(room.cores, 'core')}, then "
            "cheaper transforms"
        )
    if shares.disk >= max(shares.network, 0.2):
        return (
            f"{_activity(shares)}: disk-bound: shard small files, cache on local NVMe, prefetch "
            "more"
        )
    if shares.network >= 0.2:
        return f"{_activity(shares)}: network-bound: cache locally, more workers, larger reads"
    return (
        f"{_activity(shares)}: workers mostly wait for something else, such as a sleep or a lock; "
        "more of them help"
    )


def _activity(shares: Shares) -> str:
    parts = (
        ("on a core", shares.run),
        ("queued", shares.queued),
        ("disk", shares.disk),
        ("network", shares.network),
    )
    return "workers " + ", ".join(f"{words} {100 * share:.0f} %" for words, share in parts)
