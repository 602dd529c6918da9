"""Snapshots that nobody would expect: any value absent, zero, tiny, huge or whole, any text, any number of GPUs."""

from __future__ import annotations

import random
from typing import Any, TypeVar, get_args

from msgspec import Struct

from gputop.model.feeders import MainLooks, WaitEnd
from gputop.model.metrics import GPU_METRICS, HOST_METRICS, PROCESS_METRICS, Metric
from gputop.model.sm import SmLack, SmSource
from gputop.model.snapshot import (
    CgroupName,
    Event,
    FeedTime,
    GpuSample,
    GpuStatic,
    HostSample,
    Machine,
    MainTime,
    OwnCost,
    ProcessSample,
    ProcessStatic,
    Role,
    Snapshot,
)
from gputop.sources.simulation.life import slurm

Time = TypeVar("Time", FeedTime, MainTime)
T0 = 1_780_000_000.0
HUGE = 1e15
TEXTS = (
    "", "a", "NVIDIA H100 80GB HBM3", "x" * 400, "名前 ジョブ", "e\u0301", "\U0001f525\U0001f525", "ﷺ", "a b  c",
    "‮right-to-left",
    "python train.py --config 'a b' | tee log", "\u200b\ufeff", "|,;:~!\"'", "0", "-1", "GPU-0",
)  # fmt: skip


def number(draw: random.Random, metric: Metric) -> Any:
    """A value within the metric's bounds, or None."""
    if draw.random() < 0.2:
        return None
    if metric.unit == "bool":
        return draw.random() < 0.5
    low = 0.0 if metric.low is None else metric.low
    high = HUGE if metric.high is None else metric.high
    value = draw.choice(
        [low, high, draw.uniform(low, high), draw.uniform(low, min(high, 100.0)), low + 1e-9]
    )
    if metric.unit == "bytes":
        value = float(round(value))
    return value if metric.is_valid(value) else low


def _values(draw: random.Random, kind: type[Struct], metrics: dict[str, Metric]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in kind.__struct_fields__:
        metric = metrics.get(name)
        if metric is None or metric.unit == "text":
            continue
        value = number(draw, metric)
        whole = "Count" in kind.__annotations__[name]
        if value is not None and "bool" in kind.__annotations__[name]:
            value = bool(value)
        elif value is not None and whole:
            value = int(min(value, 2**53))
        values[name] = value
    return values


def _text(draw: random.Random) -> str | None:
    return draw.choice((None, *TEXTS))


def _gpu(draw: random.Random, index: int) -> GpuSample:
    static = GpuStatic(
        index,
        f"GPU-{index}",
        _text(draw) or "GPU",
        _text(draw),
        draw.choice((None, 1, 132)),
        mig_enabled=draw.choice((None, True, False)),
        mig_parent=draw.choice((None, None, "GPU-0")),
    )
    values = _values(draw, GpuSample, dict(GPU_METRICS))
    lost = _text(draw) if draw.random() < 0.2 else None
    return GpuSample(
        static,
        **values,
        sm_source=draw.choice(get_args(SmSource)),
        sm_window_s=draw.choice((None, 0.25, 30.0)),
        sm_age_s=draw.choice((None, 0.0, 500.0)),
        sm_low_pct=draw.choice((None, 0.7)),
        sm_high_pct=draw.choice((None, 0.0, 100.0)),
        sm_lack=None if (why := _text(draw)) is None else SmLack((why,)),
        lost_reason=lost,
        lost_since=draw.choice((None, T0 - 1e6)) if lost else None,
        unavailable={key: "no reason at all" for key, value in values.items() if value is None},
    )


def _static(draw: random.Random) -> ProcessStatic:
    facts: dict[str, Any] = {
        name: _text(draw)
        for name in ProcessStatic.__struct_fields__
        if name not in ("batch_job", "contained_in", "rank")
    }
    facts["rank"] = draw.choice((None, 0, 7, 2**20))
    jobs = None, slurm(8821), CgroupName(*(_text(draw) or "x" for _ in range(2)))
    return ProcessStatic(**facts, batch_job=draw.choice(jobs), contained_in=draw.choice(jobs))


def _times(draw: random.Random, part: str, kind: type[Time]) -> Time:
    return kind(
        *(number(draw, PROCESS_METRICS[f"{part}_{state}_pct"]) for state in kind.__struct_fields__)
    )


def _process(draw: random.Random, gpus: int) -> ProcessSample:
    values = _values(draw, ProcessSample, dict(PROCESS_METRICS))
    for fixed in ("pid", "starttime", "ppid", "gpu"):
        values.pop(fixed, None)
    return ProcessSample(
        draw.randrange(1, 2**22),
        draw.choice((None, 0, 700, 2**40)),
        draw.choice((None, 0, 1, 4_000_000)),
        draw.choice(get_args(Role)),
        draw.choice((None, *range(gpus + 1))),
        **values,
        feed=_times(draw, "feed", FeedTime),
        main=_times(draw, "main", MainTime),
        type=draw.choice((None, "C", "G", "M")),
        state=draw.choice((None, "R", "S", "D", "Z", "T")),
        main_looks=draw.choice((None, MainLooks(), MainLooks((("queue", 2), ("run", 1))))),
        waits_for=draw.choice(
            (None, (), (WaitEnd("pipe", 67.0, (4, 5)), WaitEnd("child", 33.0, (), "its children")))
        ),
        static=_static(draw),
    )


def random_snapshot(seed: int, t: float = T0, gpus: int = 3, processes: int = 6) -> Snapshot:
    """The same seed gives the same snapshot."""
    draw = random.Random(seed)
    rows = {
        (p.pid, p.starttime, p.gpu): p for p in (_process(draw, gpus) for _ in range(processes))
    }
    return Snapshot(
        t,
        Machine(_text(draw) or "host", _text(draw), _text(draw)),
        tuple(_gpu(draw, index) for index in range(gpus)),
        tuple(rows.values()),
        HostSample(**_values(draw, HostSample, dict(HOST_METRICS))),
        draw.choice((0.25, 1.0, 60.0)),
        tuple(
            Event(t, "mark", _text(draw) or "mark", draw.choice((None, 0, 99)))
            for _ in range(draw.randrange(3))
        ),
        draw.choice((None, OwnCost(0.1, 3e7), OwnCost())),
        draw.choice(({}, {"nvml": 12.0}, {"proc": 1e6})),
        tuple(text for text in (_text(draw), _text(draw)) if text),
    )
