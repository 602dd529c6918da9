"""What is recorded is rounded the same whatever was recorded before it, and nothing is remembered for ever."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.model.feeders import MainLooks, Outsider, WaitEnd
from gputop.model.sm import SmLack
from gputop.recording.format import (
    GPU_COLUMNS,
    HOST_COLUMNS,
    MEMBER_FRAMES,
    PROCESS_COLUMNS,
    RecordedColumn,
    RecordingError,
)
from gputop.recording.writer import Rounder
from gputop.sources.simulation.simulated import snapshot_at
from tests.support.frames import MOMENT
from tests.support.recording_frames import with_values

ODD: dict[str, list[Any]] = {
    "number": [None, 0.0, -0.0, 7, 7.0, 123456, 123456.0, 99.999, math.nan, math.inf, 2.0**70, 12345.6],
    "whole": [None, 0, 1, 12345, 2**65],
    "flag": [None, True, False],
    "text": [None, "a", "b", "x\x1b[31m"],
    "main_looks": [None, MainLooks(), MainLooks((("lock", 2), ("run", 1)))],
    "waits_for": [None, (), (WaitEnd("pipe", 80.0, (4, 5)), WaitEnd("network", 20.0, (), "x\x1b[31m"))],
    "sm_lack": [None, SmLack(("a", "x\x1b[31m"), "b", "denied")],
    "outsiders": [None, (), (Outsider("eve", "x\x1b[31m", 12.0),)],
}


def changed(sample: Any, columns: tuple[RecordedColumn, ...], draw: random.Random) -> Any:
    """The sample with other values in some of its columns, or with other reasons."""
    given = {
        c.key: draw.choice(ODD[c.check if c.typed is None else c.key])
        for c in draw.sample(columns, draw.choice((0, 0, 1, 3)))
    }
    kept = {key: getattr(sample, key) for key in ("pid", "starttime", "role", "sm_source") if key in given}
    if draw.random() < 0.2:
        kept["unavailable"] = draw.choice(({}, {"util_pct": "refused"}))
    return with_values(sample, given | kept)


def test_any_changes_are_rounded_as_each_snapshot_by_itself() -> None:
    draw, rounder = random.Random(1), Rounder()
    node = snapshot_at(MOMENT, gpus=2, started=MOMENT - 600.0)
    now = node = replace(node, processes=node.processes[:3])
    for second in range(MEMBER_FRAMES + 20):
        here = [changed(process, PROCESS_COLUMNS, draw) for process in now.processes]
        if draw.random() < 0.2:
            here = here[1:] if here else list(node.processes)
        if here:
            here[0] = replace(here[0], static=replace(here[0].static, user=draw.choice(("ml", "root"))))
        cards = now.gpus if draw.random() < 0.9 else node.gpus[: draw.randrange(3)]
        gpus = tuple(changed(gpu, GPU_COLUMNS, draw) for gpu in cards)
        host, notices = changed(now.host, HOST_COLUMNS, draw), ("late",) if draw.random() < 0.1 else ()
        now = replace(now, t=MOMENT + second, gpus=gpus, processes=tuple(here), host=host, notices=notices)
        (back, line), (alone, line_alone) = rounder.take(now), Rounder().take(now)
        assert back == alone
        assert json.loads(line) == json.loads(line_alone)


def test_who_rounds_for_days_remembers_no_process_that_ended_long_ago() -> None:
    node, rounder = snapshot_at(MOMENT, started=MOMENT - 600.0), Rounder()
    for second in range(3 * MEMBER_FRAMES):
        process = replace(node.processes[0], pid=5000 + second)
        rounder.take(replace(node, t=MOMENT + second, gpus=node.gpus[:1], processes=(process,)))
    assert len(rounder._encoder._introduced) <= MEMBER_FRAMES
    assert len(rounder._decoder._facts) <= MEMBER_FRAMES


def test_a_clock_before_1970_is_named() -> None:
    with pytest.raises(RecordingError, match="clock is set before 1970"):
        Rounder().take(snapshot_at(-5.0, started=-9.0))
