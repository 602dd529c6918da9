"""A long run remembers neither every process, GPU, user and command that it ever saw, nor every tick."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.model.snapshot import CgroupName, Event, GpuSample, ProcessSample, ProcessStatic, Snapshot
from gputop.monitor import MOST_GPUS, Monitor
from gputop.paint.main_screen import Painter
from gputop.paint.view import View
from gputop.recording.decode import LineDecoder
from gputop.recording.recent_past import Memory
from gputop.recording.rounding import rounded
from gputop.recording.writer import RecordingWriter
from gputop.session.frame_events import FrameEvents
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.processes.collector import ProcessCollector
from gputop.sources.simulation.simulated import snapshot_at
from tests.proc_trees.fake_proc import FakeProc
from tests.support.frames import MOMENT
from tests.support.held import held, too_large

LIVES = 800
"""Processes and GPUs that come and go, one of each kind a tick."""
FEWER_LIVES = 150
"""Where each life is a folder of files."""


def _short_lived(ticks: int) -> Iterator[Snapshot]:
    """One GPU and three processes a tick that were never seen before and are never seen again.

    Beside them is a GPU that stays, lost in every other tick.
    """
    model = snapshot_at(MOMENT, started=MOMENT - 60.0)
    stays, comes = model.gpus[0], model.gpus[1]
    gone = GpuSample(stays.static, lost_reason="GPU is lost", unavailable={"util_pct": "lost"})
    p = next(p for p in model.processes if p.role == "gpu")
    for tick in range(ticks):
        new = replace(comes, static=replace(comes.static, uuid=f"MIG-{tick}", index=1), ecc_uncorrected=tick)
        processes: list[ProcessSample] = []
        for number, role in enumerate(("gpu", "loader", "helper")):
            static = ProcessStatic(
                f"user{tick}", f"python -m job{tick}.{number}", f"job{tick}", batch_job=CgroupName(str(tick))
            )
            pid = 1000 + 3 * tick + number
            processes.append(replace(p, pid=pid, starttime=tick, role=role, gpu=number % 2, static=static))  # type: ignore[arg-type]
        events = (Event(MOMENT + tick, "mark", f"mark {tick}", None),)
        yield replace(
            model, t=MOMENT + tick, gpus=(gone if tick % 2 else stays, new), processes=tuple(processes), events=events
        )


def test_nothing_that_is_fed_grows_with_the_processes_and_gpus_that_ever_were() -> None:
    monitor, events, memory, painter = Monitor(), FrameEvents(), Memory(), Painter()
    for tick, snapshot in enumerate(_short_lived(LIVES)):
        frame = monitor.feed(snapshot)
        events.events(frame)
        memory.add(snapshot, lambda: b"")
        if tick % 50 == 0:
            painter.paint(frame, View(), 160, 48)
    assert too_large(monitor, events, memory, painter) == []
    # What is there stays known, and of what is gone the newest.
    uuids = [frame.snapshot.gpus[0].static.uuid, *(f"MIG-{life}" for life in range(LIVES))]
    kept = [uuid for uuid in uuids if frame.history.covered_s(uuid) or frame.history.recent(uuid, "util_pct", 9e9)]
    assert len(kept) == MOST_GPUS
    assert {uuids[0], f"MIG-{LIVES - 1}", f"MIG-{LIVES - 60}"} <= set(kept)


def test_a_recording_goes_on_however_many_mig_instances_were_made_anew(tmp_path: Path) -> None:
    ticks = 1030
    model = snapshot_at(MOMENT, started=MOMENT - 60.0)
    writer = RecordingWriter(str(tmp_path / "r.jsonl"))
    for tick in range(ticks):
        new = replace(model.gpus[0], static=replace(model.gpus[0].static, uuid=f"MIG-{tick}"))
        writer.write(rounded(replace(model, t=MOMENT + tick, gpus=(new,), processes=())))
    writer.close()
    # What was written is read, all of it.
    decoder = LineDecoder()
    read = [each for each in map(decoder.feed, (tmp_path / "r.jsonl").read_bytes().splitlines()) if each is not None]
    assert [each.gpus[0].static.uuid for each in read] == [f"MIG-{tick}" for tick in range(ticks)]
    assert not decoder.damaged and too_large(decoder) == []


@pytest.mark.slow
def test_the_reader_of_processes_forgets_those_that_ended(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    fake.process(1, "systemd", "/sbin/init", ppid=0)
    collector = ProcessCollector(str(fake.proc), str(fake.sys))
    for life in range(FEWER_LIVES):
        pid = 100 + 2 * life
        fake.process(pid, command=f"python job{life}", starttime=life, threads={pid + 1: "pt_data_pin"})
        samples = collector.read(MOMENT + 4.0 * life, [GpuProcess(0, pid, 1e9, "C", 5.0)])
        assert [s.pid for s in samples if s.state is not None] == [pid]
        fake.end(pid)
    assert [pair for pair in held(collector) if pair[0] > FEWER_LIVES // 2] == []
    collector.close()
    assert len(list((tmp_path / "proc").iterdir())) < 5
