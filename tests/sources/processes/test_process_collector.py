"""Process samples on a made-up /proc: rates, roles, refusals and everything that vanishes between two reads."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from gputop.model.snapshot import FeedTime, MainTime, ProcessSample
from gputop.model.wait_shares import WaitShares
from gputop.sources.cgroup import CgroupFolders
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.processes.collector import ProcessCollector
from gputop.sources.processes.count.job_process import JobProcess
from gputop.sources.processes.count.time_shares import TimeShares
from gputop.sources.processes.look.process_threads import Threads
from gputop.sources.processes.tree.job_identity import JobIdentity
from gputop.sources.processes.tree.process_facts import Facts
from gputop.sources.processes.tree.process_table import EXITED, HIDDEN, OTHER_NAMESPACE, YOUNGER
from gputop.sources.processes.tree.process_tree import ProcessPlace
from gputop.sources.processes.tree.watched import ProcessReading, WatchedProcess
from gputop.sources.procfs import Descriptors, Stat
from tests.proc_trees.fake_proc import FakeProc
from tests.proc_trees.one_job import JOB, SECOND_NS, T0, by_pid, collector_of, one_job
from tests.support.descriptors import open_below
from tests.support.pace import slowness

fake = pytest.fixture(one_job)


def test_a_gpu_process_and_its_worker_are_joined_with_what_the_driver_says(fake: FakeProc) -> None:
    job, worker = collector_of(fake).read(T0, [JOB])
    assert (job.role, job.gpu, job.gpu_mem_bytes, job.gpu_time_pct, job.type) == (
        "gpu",
        0,
        4e9,
        50.0,
        "C",
    )
    assert (job.nccl, job.pin_memory, job.pool_threads, job.threads) == (True, True, 1, 5)
    assert (job.static.command, job.static.name, job.age_s) == ("python train.py", "python", 950.0)
    assert (worker.role, worker.gpu, worker.static.loader) == ("loader", 0, "torch")
    assert (worker.gpu_mem_bytes, worker.nccl) == (None, None)


def _worker(fake: FakeProc, collector: ProcessCollector, t: float, **facts: Any) -> ProcessSample:
    """The loader's sample of a reading ``t`` seconds after the first, once its counters are these."""
    fake.process(110, "pt_data_worker", ppid=100, **facts)
    return by_pid(collector.read(T0 + t, [JOB]))[110]


def test_rates_need_two_readings_and_are_over_the_time_between_them(fake: FakeProc) -> None:
    collector = collector_of(fake)
    first = _worker(fake, collector, 0.0)
    assert first.run_pct is None and first.unavailable["run_pct"] == "needs two readings"
    counters = {
        "run_ns": SECOND_NS,
        "wait_ns": SECOND_NS // 2,
        "read_bytes": 4096,
        "write_bytes": 512,
    }
    worker = _worker(fake, collector, 2.0, cpu_ticks=120, **counters)
    assert (worker.main_run_pct, worker.cpu_pct) == pytest.approx((50.0, 60.0))
    assert worker.main_wait_pct == worker.wait_pct == pytest.approx(25.0)
    assert (worker.read_bytes_per_s, worker.write_bytes_per_s) == (2048.0, 256.0)
    assert "run_pct" not in worker.unavailable


def test_rates_are_over_the_time_between_the_counters_not_between_the_ticks(fake: FakeProc) -> None:
    # The first tick came to this process 0.4 s late, as when trees are found on a crowded machine; the second at once.
    moments = iter((T0 + 0.4, T0 + 0.4, T0 + 0.4, T0 + 1.0, T0 + 1.0, T0 + 1.0))
    collector = ProcessCollector(str(fake.proc), str(fake.sys), clock=lambda: next(moments))
    collector.read(T0, [JOB])
    worker = _worker(fake, collector, 1.0, cpu_ticks=60, run_ns=6 * SECOND_NS // 10, read_bytes=600)
    assert (worker.main_run_pct, worker.cpu_pct, worker.read_bytes_per_s) == pytest.approx(
        (100.0, 100.0, 1000.0)
    )


def test_two_readings_at_once_give_no_rate_and_the_first_stays_the_base(fake: FakeProc) -> None:
    collector = collector_of(fake)
    collector.read(T0, [JOB])
    soon = _worker(fake, collector, 0.02, cpu_ticks=1, run_ns=SECOND_NS // 100)
    assert (soon.cpu_pct, soon.main_run_pct) == (None, None)
    assert soon.unavailable["cpu_pct"] == "needs two readings"
    assert _worker(
        fake, collector, 0.4, cpu_ticks=20, run_ns=SECOND_NS // 5
    ).cpu_pct == pytest.approx(50.0)


def test_run_counts_the_threads_of_a_worker_that_has_several(fake: FakeProc) -> None:
    collector, threads = collector_of(fake), {111: "omp"}
    _worker(fake, collector, 0.0, threads=threads)
    worker = _worker(fake, collector, 1.0, threads=threads, cpu_ticks=180, run_ns=SECOND_NS)
    assert (worker.run_pct, worker.main_run_pct) == pytest.approx((180.0, 100.0))


def test_a_clock_that_steps_back_drops_the_pair(fake: FakeProc) -> None:
    collector = collector_of(fake)
    collector.read(T0, [JOB])
    worker = by_pid(collector.read(T0 - 100, [JOB]))[110]
    assert worker.cpu_pct is None
    assert worker.unavailable["cpu_pct"] == "the clock stepped back"
    assert by_pid(collector.read(T0 - 99, [JOB]))[110].cpu_pct == 0.0


def test_a_pid_that_proc_does_not_show_keeps_what_the_driver_says(fake: FakeProc) -> None:
    collector = collector_of(fake)
    (sample,) = collector.read(
        T0, [GpuProcess(2, 999, 1e9, "C", unavailable={"gpu_time_pct": "no samples"})]
    )
    assert (sample.starttime, sample.gpu, sample.gpu_mem_bytes) == (None, 2, 1e9)
    assert sample.unavailable["main_run_pct"] == OTHER_NAMESPACE
    assert sample.unavailable["gpu_time_pct"] == "no samples"
    assert collector.notices == (f"1 GPU process {OTHER_NAMESPACE}: host signals unavailable",)


def test_on_the_host_a_process_that_proc_lacks_has_ended_and_the_driver_holds_its_memory(
    fake: FakeProc,
) -> None:
    (fake.proc / "self/ns").mkdir(parents=True)
    (fake.proc / "self/ns/pid").symlink_to("pid:[4026531836]")
    collector = collector_of(fake)
    (sample,) = collector.read(T0, [GpuProcess(2, 999, 1e9)])
    assert (sample.gpu_mem_bytes, sample.unavailable["state"]) == (1e9, EXITED)
    assert collector.notices == ()


def test_a_process_that_began_after_the_driver_listed_its_pid_is_another_one(
    fake: FakeProc,
) -> None:
    collector = collector_of(fake)
    listed = GpuProcess(0, 500, 1e9)
    collector.read(T0, [listed])
    fake.process(500, "sshd", "sshd", starttime=100_100)
    fake.uptime(1004.0)
    (sample,) = collector.read(T0 + 4, [listed])
    assert sample.starttime is None
    assert sample.unavailable["state"] == YOUNGER


def test_a_process_that_has_ended_keeps_its_name_though_its_pid_belongs_to_another(
    fake: FakeProc,
) -> None:
    collector = collector_of(fake)
    fake.process(500, command="python train_a.py", starttime=90_000)
    listed = GpuProcess(0, 500, 1e9)
    (before,) = collector.read(T0, [listed])
    fake.process(500, "sshd", "sshd", starttime=100_100)
    fake.uptime(1004.0)
    for t in range(4, 20):
        (sample,) = collector.read(T0 + t, [listed])
    assert (sample.starttime, sample.static.command) == (before.starttime, "python train_a.py")
    assert sample.unavailable["state"] == EXITED


def test_a_zombie_is_no_row(fake: FakeProc) -> None:
    collector = collector_of(fake)
    assert {100, 110} <= by_pid(collector.read(T0, [JOB])).keys()
    fake.process(110, "pt_data_worker", "", ppid=100, state="Z")
    assert 110 not in by_pid(collector.read(T0 + 1, [JOB]))


def test_loaders_say_how_many_cores_they_may_use_together(fake: FakeProc) -> None:
    collector = collector_of(fake)
    fake.process(111, "pt_data_worker", ppid=100)
    collector.read(T0, [JOB])
    for pid, cpus in ((100, "0-7"), (110, "0,2-3"), (111, "0-1")):
        fake.write(f"proc/{pid}/status", f"Name:\tpython\nCpus_allowed_list:\t{cpus}\n")
    rows = by_pid(collector.read(T0 + 11, [JOB]))
    loaders = [row for row in rows.values() if row.role == "loader"]
    assert loaders and all(row.allowed_cores == 4.0 for row in loaders)


def test_in_a_container_a_pid_of_the_host_is_not_taken_for_the_process_that_has_it_here(
    fake: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fake.proc / "self/ns").mkdir(parents=True)
    (fake.proc / "self/ns/pid").symlink_to("pid:[4026532200]")
    both = [JOB, GpuProcess(0, 999, 1e9)]
    collector = collector_of(fake)
    assert by_pid(collector.read(T0, [JOB]))[100].starttime is not None
    # 999 was never here: then 100 is a process of the host, too, and the python with that pid here another one.
    seen = by_pid(collector.read(T0 + 1, both))
    assert [seen[pid].unavailable["state"] for pid in (100, 999)] == [OTHER_NAMESPACE] * 2
    assert (seen[100].role, seen[100].gpu_mem_bytes, 110 in seen) == ("gpu", 4e9, False)
    # One that has the driver's device open is the one that is meant: some drivers give the container's own pids.
    (fake.proc / "100" / "fd").mkdir()
    (fake.proc / "100" / "fd" / "3").symlink_to("/dev/nvidiactl")
    assert by_pid(collector_of(fake).read(T0, both))[100].starttime is not None
    monkeypatch.setattr(
        "gputop.sources.processes.tree.process_table.has_own_pids", lambda proc: False
    )
    (fake.proc / "100" / "fd" / "3").unlink()
    assert by_pid(collector_of(fake).read(T0, both))[100].starttime is not None


def test_hidepid_is_named_as_the_reason(fake: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    fake.write("proc/mounts", "proc /proc proc rw,nosuid,hidepid=invisible 0 0\n")
    (sample,) = collector_of(fake).read(T0, [GpuProcess(0, 999)])
    assert sample.unavailable["state"] == HIDDEN


def test_refused_io_and_wait_channel_say_what_would_help(
    fake: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refusing(path: str, flags: int) -> int:
        if path.endswith("/io"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, flags)

    monkeypatch.setattr(os, "open", refusing)
    fake.process(110, "pt_data_worker", ppid=100, wchan="0")
    collector = collector_of(fake)
    worker = by_pid(collector.read(T0, [JOB]))[110]
    assert (worker.read_bytes_per_s, worker.waiting_on) == (None, None)
    assert "run as root for disk evidence" in worker.unavailable["read_bytes_per_s"]
    assert "run as root" in worker.unavailable["waiting_on"]
    assert worker.state == "S"
    assert any("run as root" in notice for notice in collector.notices)


def test_a_kernel_without_schedstat_leaves_cpu_time_and_says_so(fake: FakeProc) -> None:
    collector = collector_of(fake)
    (fake.proc / "110/schedstat").write_text("0 0 0\n")
    collector.read(T0, [JOB])
    worker = by_pid(collector.read(T0 + 1, [JOB]))[110]
    assert (worker.cpu_pct, worker.run_pct) == (0.0, 0.0)
    assert (worker.main_run_pct, worker.wait_pct) == (None, None)
    assert "schedstat" in worker.unavailable["wait_pct"]


def test_a_worker_that_vanishes_is_gone_at_once_and_a_process_that_exits_keeps_its_name(
    fake: FakeProc,
) -> None:
    collector = collector_of(fake)
    collector.read(T0, [JOB])
    fake.end(110)
    assert [s.pid for s in collector.read(T0 + 1, [JOB])] == [100]
    fake.end(100)
    for moment in (T0 + 2, T0 + 3, T0 + 9):
        (job,) = collector.read(moment, [JOB])
        assert (job.starttime, job.state, job.static.command) == (5000, None, "python train.py")
        assert job.unavailable["state"] == EXITED
    assert collector.notices == ()


def test_a_reused_pid_is_not_taken_for_the_old_process(fake: FakeProc) -> None:
    collector = collector_of(fake)
    collector.read(T0, [JOB])
    fake.process(110, "sshd", "sshd", ppid=1, starttime=99_000, cpu_ticks=5000)
    assert [s.pid for s in collector.read(T0 + 1, [JOB])] == [100]
    assert [s.pid for s in collector.read(T0 + 2, [JOB])] == [100]


def test_files_that_vanish_while_the_tree_is_found_are_left_out(fake: FakeProc) -> None:
    (fake.proc / "110/stat").unlink()
    (fake.proc / "777").mkdir()
    assert [s.pid for s in collector_of(fake).read(T0, [JOB])] == [100]


def test_control_characters_never_reach_the_screen(fake: FakeProc) -> None:
    fake.process(100, "py\x1b[31m")
    (fake.proc / "100/cmdline").write_bytes(
        b"python\0\x1b]0;owned\x07\0a\nb\0\xc2\x9b2J\xe2\x80\xae\0"
    )
    job = by_pid(collector_of(fake).read(T0, [JOB]))[100]
    assert job.static.command is not None
    assert job.static.command.isprintable()
    assert job.static.command.startswith("python ?]0;owned?")


def test_command_lines_are_cut_at_four_thousand_characters(fake: FakeProc) -> None:
    (fake.proc / "100/cmdline").write_bytes(b"python\0" + b"x" * 20000)
    command = by_pid(collector_of(fake).read(T0, [JOB]))[100].static.command
    assert command is not None
    assert len(command) == 4096


def test_the_cgroup_gives_job_container_and_throttling(fake: FakeProc) -> None:
    group = "system.slice/slurmstepd.scope/job_8821"
    for periods, throttled in ((10, 0), (30, 10)):
        fake.group(
            group,
            cpu_max="100000 100000\n",
            cpu_stat=f"nr_periods {periods}\nnr_throttled {throttled}\n",
        )
        fake.process(100, cgroup=f"0::/{group}\n")
        if periods == 10:
            collector = collector_of(fake)
            collector.read(T0, [JOB])
    job = by_pid(collector.read(T0 + 2, [JOB]))[100]
    assert job.static.job == "slurm 8821"
    assert job.throttled_pct == 50.0


def test_the_pool_runs_what_the_process_runs_less_main_and_named_threads(fake: FakeProc) -> None:
    threads = {101: "python", 102: "pt_autograd_0"}
    fake.process(100, threads=threads)
    collector = collector_of(fake)
    collector.read(T0, [JOB])
    fake.process(100, threads=threads, cpu_ticks=1000, run_ns=2 * SECOND_NS)
    fake.write("proc/100/task/102/schedstat", f"{3 * SECOND_NS} 0 1\n")
    job = by_pid(collector.read(T0 + 5, [JOB]))[100]
    assert job.pool_threads == 1
    assert job.pool_run_pct == pytest.approx(100.0, abs=0.1)


def test_no_files_stay_open_after_close(fake: FakeProc) -> None:
    collector = collector_of(fake)
    collector.read(T0, [JOB])
    assert len(open_below(fake.proc.parent)) > 1
    collector.read(T0 + 1, [])
    # Of a tree that is no longer shown nothing stays.
    assert open_below(fake.proc.parent) == []
    collector.read(T0 + 2, [JOB])
    collector.close()
    assert open_below(fake.proc.parent) == []


def test_each_measured_value_stands_in_the_field_of_its_own_name() -> None:
    """Here each value is another number."""
    stat = Stat(b"python", "S", 3, 4, 5, 6, 100, 8)
    rates: dict[str, Any] = {
        name: 100.0 + place for place, name in enumerate(ProcessReading.__struct_fields__)
    }
    place = ProcessPlace(stat, 7, 2, "gpu", None, "holds a GPU context")
    facts = Facts("alice", "python train.py", "python", None, "k", JobIdentity(), CgroupFolders())
    watched = WatchedProcess("/nowhere", 7, 100, Descriptors(0))
    member = JobProcess("/nowhere", 7, place, b"", facts, watched)
    member.seen_threads = Threads(True, False, 81, 82.0, None)
    states, waits = FeedTime.__struct_fields__, MainTime.__struct_fields__[:-1]
    member.shares = TimeShares(
        WaitShares(**{state: number / 100.0 for number, state in enumerate(states, 1)}),
        "socket",
        77,
        rx_bytes_per_s=78.0,
        listens=True,
        main=WaitShares(**{wait: number / 100.0 for number, wait in enumerate(waits, 11)}),
        saves=0.21,
        mount="/mnt",
    )
    reading = ProcessReading(**{**rates, "stat": stat, "unavailable": {"io": "x"}})
    sample = member.sample(
        reading, 1000.0, GpuProcess(2, 7, 91.0, "C", 92.0, 93.0, 94.0, 95.0, {"a": "y"})
    )
    wanted = {
        **{name: rates[name] for name in rates if name not in ("stat", "unavailable", "main_run_ns")},
        **{f"feed_{name}_pct": float(number) for number, name in enumerate(states, 1)},
        **{f"main_{name}_pct": float(number) for number, name in enumerate(waits, 11)},
        "gpu_mem_bytes": 91.0, "gpu_time_pct": 92.0, "gpu_mem_time_pct": 93.0, "gpu_encoder_pct": 94.0,
        "gpu_decoder_pct": 95.0, "pool_threads": 81, "pool_run_pct": 82.0, "feeder_threads": 77,
        "feed_by": "socket", "net_rx_bytes_per_s": 78.0, "listens": True, "mount": "/mnt", "main_saves_pct": 21.0,
    }  # fmt: skip
    assert {name: getattr(sample, name) for name in wanted} == wanted
    assert sample.unavailable.items() >= {"io": "x", "a": "y"}.items()


def test_a_mistake_of_the_sampler_is_a_notice_and_the_readings_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collector = ProcessCollector(clock=time.monotonic)
    monkeypatch.setattr(collector.shares.sampler, "sample", lambda *_, **__: 1 / 0)
    job = GpuProcess(0, os.getpid(), 1e9, "C")
    until = time.monotonic() + 20.0 * slowness()
    try:
        while not collector.notices and time.monotonic() < until:
            (sample,) = [
                p
                for p in collector.read(time.monotonic(), [job], {0: 10.0})
                if p.pid == os.getpid()
            ]
            time.sleep(0.2)
    finally:
        collector.close()
    assert collector.notices == ("sampling waits failed: ZeroDivisionError: division by zero",)
    assert sample.role == "gpu"


def test_wait_channels_are_closed_once_nothing_is_sampled() -> None:
    collector = ProcessCollector(clock=time.monotonic)
    sampler, job = collector.shares.sampler, GpuProcess(0, os.getpid(), 1e9, "C")

    def read_until(jobs: list[GpuProcess], is_open: bool) -> None:
        until = time.monotonic() + 20.0 * slowness()
        while sampler._has_channels() is not is_open and time.monotonic() < until:
            collector.read(time.monotonic(), jobs, {0: 10.0})
            time.sleep(0.2)
        assert sampler._has_channels() is is_open

    try:
        read_until([job], True)
        read_until([], False)
    finally:
        collector.close()
