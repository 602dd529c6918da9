"""One job of a GPU with a loader on a made-up /proc, and the collector that reads it."""

from __future__ import annotations

from pathlib import Path

from gputop.model.snapshot import ProcessSample
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.processes.collector import ProcessCollector
from tests.proc_trees.fake_proc import FakeProc

T0 = 1_780_000_000.0
JOB = GpuProcess(0, 100, 4e9, "C", 50.0)
SECOND_NS = 1_000_000_000


def one_job(tmp_path: Path) -> FakeProc:
    """A fixture: pid 100 on GPU 0 with some threads, and its loader 110."""
    made = FakeProc(tmp_path)
    made.group("")
    made.process(1, "systemd", "/sbin/init", ppid=0, session=1)
    made.process(
        100,
        threads={101: "pt_nccl_watchdg", 102: "python", 103: "pt_data_pin", 104: "cuda-EvtHandlr"},
    )
    made.process(110, "pt_data_worker", ppid=100)
    return made


def collector_of(fake: FakeProc) -> ProcessCollector:
    """A collector whose waits are sampled by ``sample`` alone."""
    return without_thread(ProcessCollector(str(fake.proc), str(fake.sys)))


def without_thread(collector: ProcessCollector) -> ProcessCollector:
    """The collector, which samples no waits by itself any more."""
    collector.shares.sampler.close()
    return collector


def sample(collector: ProcessCollector, now: float, times: int = 1) -> None:
    """Sample waits as the sampler's thread does between two readings."""
    for number in range(times):
        collector.shares.sampler.sample(now + number / 10)


def by_pid(samples: tuple[ProcessSample, ...]) -> dict[int, ProcessSample]:
    return {sample.pid: sample for sample in samples}
