"""A file system that hangs under a job hangs nothing of gputop's, and what became old meanwhile is no evidence."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.model.snapshot import ProcessSample
from gputop.output.snapshot_data import snapshot_data
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.patient_reader import MOST_STUCK, PatientReader
from gputop.sources.processes.collector import ProcessCollector
from tests.proc_trees.running import running
from tests.support.hung_mount import HungMount, why_not
from tests.support.pace import slowness
from tests.support.scenes import Watch, gpu, snap, train, workers

READS = """
import os, sys, time
file = open(sys.argv[1], "rb", buffering=0)
os.chdir(os.path.dirname(sys.argv[1]))
print("ready", flush=True)
while True:
    file.read(4096)
"""


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[HungMount]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    try:
        mount = HungMount(tmp_path / "mount").__enter__()
    except OSError as error:
        pytest.skip(f"a file system in user space cannot be mounted here: {error.strerror}")
    try:
        yield mount
    finally:
        mount.__exit__(None, None, None)


@pytest.mark.slow
def test_a_mount_that_hangs_under_a_job_is_named_and_hangs_no_reading_of_it_or_of_others(
    hung: HungMount,
) -> None:
    words = [sys.executable, "-c", READS, str(hung.file)]
    with (
        running("fork", "1", "burn") as tree,
        subprocess.Popen(words, stdout=subprocess.PIPE) as job,
    ):
        collector = ProcessCollector(clock=time.monotonic)
        gpu_processes = [GpuProcess(0, job.pid, 1e9, "C"), GpuProcess(1, tree.pid, 1e9, "C")]
        seen: list[tuple[ProcessSample, ...]] = []

        def read() -> None:
            for _ in range(8):
                seen.append(collector.read(time.monotonic(), gpu_processes, {0: 10.0, 1: 10.0}))
                time.sleep(0.4)

        try:
            assert job.stdout is not None and job.stdout.readline() == b"ready\n"
            hung.stop()
            reader = threading.Thread(target=read, daemon=True)
            reader.start()
            reader.join(20.0 * slowness())
            assert not reader.is_alive(), "the reader of /proc hangs with the job"
        finally:
            job.kill()
            hung.__exit__(None, None, None)
            collector.close()
    hangs, other = seen[-1][:2]
    assert (hangs.waiting_on, hangs.mount) == ("network", str(hung.folder))
    assert hangs.main_network_pct == pytest.approx(100.0, abs=2.0)
    assert other.mount is None and other.main_network_pct == 0.0
    loaders = [sample for samples in seen for sample in samples if sample.role == "loader"]
    assert max((s.run_pct or 0.0) + (s.wait_pct or 0.0) for s in loaders) > 60.0


def test_a_file_that_never_comes_sets_one_process_aside_and_no_other() -> None:
    comes = threading.Event()

    def read(path: str) -> bytes:
        if path == "/proc/1/cmdline":
            comes.wait()
        return path.encode()

    patient = PatientReader(read, patience_s=0.05)
    assert patient.read("/proc/1/cmdline") is None
    assert [patient.read(f"/proc/{pid}/cmdline") for pid in (2, 3)] == [
        b"/proc/2/cmdline",
        b"/proc/3/cmdline",
    ]
    assert patient.stuck == ("/proc/1/cmdline",)
    begun = threading.active_count()
    assert patient.read("/proc/1/cmdline") is None, "it is not asked again while it hangs"
    assert threading.active_count() == begun
    comes.set()
    until = time.monotonic() + 20.0
    while patient.stuck and time.monotonic() < until:
        time.sleep(0.01)
    assert patient.stuck == () and patient.read("/proc/1/cmdline") == b"/proc/1/cmdline"
    patient.close()


def test_readers_that_are_left_behind_are_bounded() -> None:
    comes = threading.Event()
    patient = PatientReader(lambda path: str(comes.wait()).encode(), patience_s=0.01)
    before = threading.active_count()
    for pid in range(3 * MOST_STUCK):
        assert patient.read(f"/proc/{pid}/cmdline") is None
    assert threading.active_count() - before <= MOST_STUCK
    comes.set()


def test_process_data_older_than_ten_seconds_are_no_evidence_and_say_so() -> None:
    slow = [train(main=2.0), *workers(4, 97.0)]
    fresh = [snap(t, gpu(util=20.0, sm=15.0), slow) for t in range(40)]
    old = [
        replace(snap(t, gpu(util=20.0, sm=15.0), slow), repeats=("proc",), stale={"proc": t - 39.0})
        for t in range(40, 75)
    ]
    watch = Watch()
    watch.feed([*fresh, *old])
    said = dict(watch.said)
    assert said[39].verdict == "dataloader_cpu"
    assert said[48].verdict == "dataloader_cpu", "ten seconds are waited for"
    last = watch.said[-1][1]
    assert last.verdict == "starved_unattributed" and last.feeders is None
    assert any("old" in note and "/proc does not answer" in note for note in last.notes)
    assert snapshot_data(old[-1])["stale"] == {"proc": 35.0}


def test_a_link_out_of_proc_is_read_and_never_followed(tmp_path: Path) -> None:
    from gputop.sources.processes.tree.open_files import held

    folder = tmp_path / "7" / "fd"
    folder.mkdir(parents=True)
    for number, target in enumerate(("socket:[5]", "pipe:[6]", str(tmp_path / "nowhere"))):
        os.symlink(target, folder / str(number))
    mine = held(str(tmp_path), 7)
    assert mine is not None and mine.sockets == {5}
