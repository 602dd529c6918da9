"""What a tick of ``record`` costs, in counts: columns put into words, read back and checked; and that nothing is lost
where a column is taken for the one of the frame before. Nothing here is timed.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import signal
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.commands import record
from gputop.config import Settings
from gputop.model.source import UsageError
from gputop.recording import encode, format
from gputop.recording.decode import Rounder
from gputop.recording.encode import Encoder
from gputop.recording.format import GPU_COLUMNS, HOST_COLUMNS, MEMBER_FRAMES, PROCESS_COLUMNS, Column
from gputop.sources.local import LocalSource, open_local
from gputop.sources.simulation.simulated import snapshot_at
from tests.support.frames import MOMENT


def test_columns_that_stay_the_same_are_put_into_words_once(monkeypatch: pytest.MonkeyPatch) -> None:
    still, encoder, written = snapshot_at(MOMENT, started=MOMENT - 600.0), Encoder(), Counter[str]()
    real = encode._cells

    def counting(values: tuple[Any, ...], column: Any) -> list[str]:
        written[column.key] += 1
        return real(values, column)

    monkeypatch.setattr(encode, "_cells", counting)
    lines = [encoder.frame_lines(replace(still, t=MOMENT + second))[-1] for second in range(5)]
    assert max(written.values()) <= 6, "twice in each of the three tables that have the column"
    assert len({line.partition(b'"host"')[2] for line in lines}) == 1
    # 3 and 3.0 are equal and are not written alike where every digit of a whole number counts.
    gpu = replace(still.gpus[0], pcie_rx_bytes_per_s=123456.0)
    for value in (123456.0, 123456.0, 123456):
        lines = encoder.frame_lines(replace(still, gpus=(replace(gpu, pcie_rx_bytes_per_s=value),)))
    assert b"123456" in lines[-1]


def test_who_rounds_reads_back_and_checks_only_the_columns_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    still, rounder, read, checked = snapshot_at(MOMENT, started=MOMENT - 600.0), Rounder(), list[str](), list[int]()
    real_read, real_check = encode._read, format.Table._checked

    def reading(values: tuple[Any, ...], texts: list[str], column: Any) -> Any:
        read.append(column.key)
        return real_read(values, texts, column)

    def checking(table: Any, columns: list[Any], layout: Any, which: Any = None) -> Any:
        checked.append(len(columns) if which is None else len(which))
        return real_check(table, columns, layout, which)

    monkeypatch.setattr(encode, "_read", reading)
    monkeypatch.setattr(format.Table, "_checked", checking)
    first, *moved = [replace(still.gpus[0], power_w=watts) for watts in (300.0, 300.0, 300.0, 345.67)]
    for second, gpu in enumerate((first, *moved)):
        read.clear()
        checked.clear()
        back, _ = rounder.take(replace(still, t=MOMENT + second, gpus=(gpu, *still.gpus[1:])))
    assert (read, sum(checked)) == (["power_w"], 1)
    assert back.gpus[0].power_w == 345.7


ODD: dict[str, list[Any]] = {
    "number": [None, 0.0, -0.0, 7, 7.0, 123456, 123456.0, 99.999, math.nan, math.inf, 2.0**70, 12345.6],
    "whole": [None, 0, 1, 12345, 2**65],
    "flag": [None, True, False],
    "text": [None, "a", "b", "x\x1b[31m"],
}


def changed(sample: Any, columns: tuple[Column, ...], draw: random.Random) -> Any:
    """The sample with other values in some of its columns, or with other reasons."""
    given = {c.key: draw.choice(ODD[c.check]) for c in draw.sample(columns, draw.choice((0, 0, 1, 3)))}
    kept = {key: getattr(sample, key) for key in ("pid", "starttime", "role", "sm_source") if key in given}
    if draw.random() < 0.2:
        kept["unavailable"] = draw.choice(({}, {"util_pct": "refused"}))
    return replace(sample, **given | kept)


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


def test_record_does_not_ask_at_every_tick_what_gputop_itself_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = list[LocalSource]()

    def opened(*given: Any, **more: Any) -> LocalSource:
        sources.append(open_local(*given, **more))
        raise UsageError("enough")

    monkeypatch.setattr(record, "open_local", opened)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(UsageError):
        record.run(argparse.Namespace(), Settings())
    assert sources[0]._join().own is None
