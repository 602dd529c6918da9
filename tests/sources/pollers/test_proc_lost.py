"""Passes over a /proc that hides, lacks or loses what they read: what is left is told, with a reason for the rest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gputop.cli import mute_psutil
from gputop.model.metrics import HOST_METRICS
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.nvml.gpu_device import GpusReading
from gputop.sources.pollers import host
from gputop.sources.pollers.process import HostReading, KnownGpus, ProcessPoller
from gputop.system.awaited import News
from tests.proc_trees.fake_proc import FakeProc

PID = 100
FILES = {
    "stat": "cpu  1000 0 0 3000 0 0 0 0 0 0\nbtime 1700000000\n",
    "meminfo": "MemTotal: 16777216 kB\nMemFree: 1000 kB\nMemAvailable: 12582912 kB\nBuffers: 0 kB\nCached: 0 kB\n"
    "Active: 0 kB\nInactive: 0 kB\nShmem: 0 kB\nSwapTotal: 2097152 kB\nSwapFree: 1048576 kB\n",
    "vmstat": "pswpin 0\npswpout 0\n",
    "diskstats": "",
    "net/dev": "Inter-| Receive\n face |bytes packets\n",
}  # fmt: skip
BY_PSUTIL = ("cpu_pct", "mem_used_bytes", "swap_used_bytes", "uptime_s")


class Tree:
    """A machine with one GPU process, whose passes are made by hand."""

    def __init__(self, fake: FakeProc) -> None:
        self.fake = fake
        self.fill()
        reading = GpusReading(1.0, (), (GpuProcess(0, PID, 4e9),))
        self.poller = ProcessPoller(
            str(fake.proc), lambda: KnownGpus(reading, is_read=True), news=News()
        )
        self.poller.reads_host = True

    def fill(self) -> None:
        """Mount it."""
        for name, text in FILES.items():
            self.fake.write(f"proc/{name}", text)
        self.fake.uptime(1000.0)
        self.fake.process(PID)

    def take(self) -> HostReading:
        """Return a pass."""
        return self.poller.read()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    fake = FakeProc(tmp_path)
    # In a test alone: in gputop the folder belongs to the program that it runs in.
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(fake.proc))
    monkeypatch.setattr(os, "getloadavg", lambda: (1.0, 1.0, 1.0))
    monkeypatch.setattr(host, "LEAST_HOST_S", 0.0)
    monkeypatch.setattr("gputop.sources.host._SLOW_S", 0.0)
    made = Tree(fake)
    yield made
    made.poller._close()


def test_proc_that_goes_costs_its_values_alone_and_comes_back(tree: Tree) -> None:
    first = tree.take()
    assert first.host.mem_total_bytes == 2.0**34 and first.processes[0].starttime is not None
    shutil.rmtree(tree.fake.proc)
    gone = tree.take()
    for key in BY_PSUTIL:
        assert getattr(gone.host, key) is None, key
        assert "cannot read /proc/" in gone.host.unavailable[key]
    assert gone.host.load1 == 1.0
    # The driver still lists it.
    (process,) = gone.processes
    assert (process.pid, process.gpu_mem_bytes) == (PID, 4e9)
    tree.fake.proc.mkdir()
    tree.fill()
    back = tree.take()
    assert back.host.mem_total_bytes == 2.0**34
    assert not {"mem_used_bytes", "swap_used_bytes", "uptime_s"} & back.host.unavailable.keys()


@pytest.mark.parametrize("file", ["stat", "meminfo", "diskstats", "net/dev"])
@pytest.mark.parametrize("text", [None, "", "garbage\n", "cpu x y z\nMemTotal: many kB\n"])
def test_a_file_that_lacks_or_lies_takes_nothing_else_away(
    tree: Tree, file: str, text: str | None
) -> None:
    tree.take()
    if text is None:
        (tree.fake.proc / file).unlink()
    else:
        tree.fake.write(f"proc/{file}", text)
    pass_ = tree.take()
    others = {"stat": "mem_used_bytes", "meminfo": "uptime_s"}
    kept = others.get(file, "mem_used_bytes")
    assert getattr(pass_.host, kept) is not None
    for key in HOST_METRICS:
        if getattr(pass_.host, key) is None and key in BY_PSUTIL:
            assert pass_.host.unavailable[key], key
    assert pass_.processes[0].starttime is not None


def test_hidepid_hides_the_process_and_not_the_host(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    tree.fake.write("proc/mounts", "proc /proc proc rw,nosuid,hidepid=invisible 0 0\n")
    shutil.rmtree(tree.fake.proc / str(PID))
    pass_ = tree.take()
    (process,) = pass_.processes
    assert (process.pid, process.gpu_mem_bytes, process.state) == (PID, 4e9, None)
    assert "hidepid" in process.unavailable["state"]
    assert pass_.host.mem_total_bytes == 2.0**34 and pass_.knew_gpus


def test_lines_that_a_container_lacks_are_no_fault_and_no_warning(
    tree: Tree, recwarn: pytest.WarningsRecorder
) -> None:
    # As gVisor and lxcfs have it: no swap, no vmstat, no network.
    tree.fake.write("proc/meminfo", "MemTotal: 16777216 kB\nMemFree: 12582912 kB\n")
    for name in ("vmstat", "net/dev"):
        (tree.fake.proc / name).unlink()
    mute_psutil()
    pass_ = tree.take()
    assert pass_.host.mem_total_bytes == 2.0**34
    assert pass_.host.swap_used_bytes is not None
    assert "net/dev" in pass_.host.unavailable["net_rx_bytes_per_s"]
    assert not recwarn.list
