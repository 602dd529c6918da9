"""A process that sleeps is asked only whether it has run: what is said of it must be what reading everything says."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from gputop.model.snapshot import ProcessSample
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.processes.tree.watched import (
    NEEDS_TWO,
    STAT_AGAIN_S,
    ProcessReading,
    WatchedProcess,
)
from gputop.sources.procfs import Descriptors, ProcessFiles
from tests.proc_trees.fake_proc import FakeProc
from tests.proc_trees.one_job import JOB, collector_of, sample

PAGE = 4096


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def watched(fake: FakeProc, pid: int) -> WatchedProcess:
    return WatchedProcess(str(fake.proc), pid, 5000, Descriptors())


def read(process: WatchedProcess, now: float) -> ProcessReading:
    reading = process.read_counters(now)
    assert reading is not None
    return reading


def test_who_is_read_only_when_it_ran_says_what_one_says_who_is_read_in_full(
    fake: FakeProc,
) -> None:
    random = Random(7)
    fake.process(100)
    fake.process(200)
    lazy, full = watched(fake, 100), watched(fake, 200)
    facts = {"cpu_ticks": 0, "run_ns": 1, "wait_ns": 0, "read_bytes": 0, "write_bytes": 0}
    now, still = 0.0, 0
    for _ in range(60):
        now += random.choice((1.0, 1.3, 2.0))
        if random.random() < 0.4:
            facts = {key: value + random.randrange(1_000_000) for key, value in facts.items()}
            fake.process(
                100,
                state=random.choice("SSSDRZ"),
                wchan=random.choice(("do_poll", "futex_wait_queue", "0")),
                threads=random.choice((None, None, {101: "pool"})),
                **facts,  # type: ignore[arg-type]
            )
        for name in ("stat", "io", "wchan"):
            text = (fake.proc / "100" / name).read_text()
            fake.write(f"proc/200/{name}", text.replace("100 (", "200 (", 1))
        times = (fake.proc / "100/schedstat").read_text().rsplit(" ", 1)[0]
        fake.write("proc/200/schedstat", f"{times} {now:.0f}{random.randrange(10**9)}\n")
        one, other = read(lazy, now), read(full, now)
        assert one == other
        still += lazy.main_slept
        assert not full.main_slept
    assert 12 < still < 48


def test_threads_that_go_on_with_the_main_one_s_work_count_as_it_from_their_first_reading_on(
    fake: FakeProc,
) -> None:
    """PyTorch computes gradients in threads of its own, for which the main thread waits."""

    def ran(main_ns: int, thread_ns: int) -> None:
        fake.process(100, run_ns=main_ns, threads={101: "pt_autograd_0"})
        fake.write("proc/100/task/101/schedstat", f"{thread_ns} 0 1\n")

    ran(0, 7 * 10**9)
    process = watched(fake, 100)
    assert read(process, 0.0).main_run_pct is None
    process.continue_in(["101"])
    ran(500_000_000, 7_400_000_000)
    reading = read(process, 1.0)
    assert (reading.main_run_pct, reading.main_run_ns) == (90.0, 500_000_000)
    process.continue_in([])
    ran(1_000_000_000, 7_900_000_000)
    read(process, 2.0)
    ran(1_500_000_000, 8_400_000_000)
    assert read(process, 3.0).main_run_pct == 50.0


def test_memory_that_the_kernel_takes_from_a_sleeping_process_is_seen_in_a_while(
    fake: FakeProc,
) -> None:
    fake.process(100)
    process = watched(fake, 100)
    for second in range(4):
        assert read(process, float(second)).rss_bytes == 100 * PAGE
    stat = (fake.proc / "100/stat").read_text()
    fake.write("proc/100/stat", stat.replace(" 4096 100 ", " 4096 60 "))
    seen = [read(process, 4.0 + second).rss_bytes for second in range(int(STAT_AGAIN_S) + 1)]
    assert seen[-1] == 60 * PAGE
    fake.write("proc/100/stat", stat)
    process.read_again()
    assert read(process, 10.0).rss_bytes == 100 * PAGE


def test_disk_rates_are_means_over_a_second_however_often_the_process_is_read(
    fake: FakeProc,
) -> None:
    fake.process(100)
    process = watched(fake, 100)
    assert read(process, 0.0).unavailable["read_bytes_per_s"] == NEEDS_TWO
    rates = []
    for quarter in range(1, 14):
        # It reads until 1.5 s, then sleeps: what it read last is counted although it has not run since.
        if quarter <= 6:
            fake.process(100, read_bytes=quarter * 1000)
        rates.append(read(process, quarter / 4).read_bytes_per_s)
    assert rates[:4] == [4000.0] * 4
    assert (
        rates[4] == pytest.approx(4000.0) and rates[8] == pytest.approx(1000.0) and rates[12] == 0.0
    )


def test_only_who_was_seen_asleep_and_alone_is_taken_for_asleep(fake: FakeProc) -> None:
    # Of one that runs, a kernel without a tick on its core counts the time only later.
    fake.process(100, state="R")
    process = watched(fake, 100)
    for second in range(3):
        stat = (fake.proc / "100/stat").read_text()
        fake.write(
            "proc/100/stat",
            stat.replace(f" {100 * second} 0 0 0 20", f" {100 * second + 100} 0 0 0 20"),
        )
        reading = read(process, float(second))
    assert reading.cpu_pct == 100.0
    # Another thread may work, and end, while the main thread sleeps.
    fake.process(110, threads={111: "pool"})
    process = watched(fake, 110)
    read(process, 0.0)
    read(process, 1.0)
    stat = (fake.proc / "110/stat").read_text()
    fake.write("proc/110/stat", stat.replace(" 0 0 0 0 20 0 2 ", " 50 0 0 0 20 0 1 "))
    assert [read(process, 2.0 + second).cpu_pct for second in range(4)] == [50.0, 0.0, 0.0, 0.0]


def test_a_process_that_ended_or_whose_times_are_not_kept_is_never_taken_for_asleep(
    fake: FakeProc,
) -> None:
    fake.process(100)
    process = watched(fake, 100)
    for second in range(3):
        read(process, float(second))
    assert process.main_slept
    fake.end(100)
    assert process.read_counters(3.0) is None
    fake.process(110)
    fake.write("proc/110/schedstat", "0 0 0\n")
    process = watched(fake, 110)
    for second in range(3):
        read(process, float(second))
        assert not process.main_slept


def test_what_changes_around_a_sleeping_process_is_in_its_next_sample(fake: FakeProc) -> None:
    fake.process(1, "systemd", "/sbin/init", ppid=0, session=1)
    fake.process(100)
    fake.process(110, "pt_data_worker", ppid=100, wchan="do_poll")
    collector = collector_of(fake)

    def samples(second: int, owner: GpuProcess = JOB, util: float = 99.0) -> list[ProcessSample]:
        fake.uptime(1000.0 + second)
        sample(collector, second - 0.6, 4)
        return list(collector.read(float(second), [owner], {0: util}))

    asleep = [samples(second) for second in range(5)]
    assert asleep[4] == [replace(sample, age_s=954.0) for sample in asleep[3]]
    assert samples(5, replace(JOB, gpu_mem_bytes=5e9))[0].gpu_mem_bytes == 5e9
    hidden = replace(JOB, gpu_mem_bytes=None, unavailable={"gpu_mem_bytes": "why"})
    assert samples(6, hidden)[0].unavailable["gpu_mem_bytes"] == "why"
    # While its GPU waits a loader's share counts only once its pipes and threads may have been looked at.
    shares = [
        samples(7 + second, util=0.0 if second else 99.0)[1].feed_poll_pct for second in range(30)
    ]
    assert (shares[0], shares[-1]) == (100.0, 100.0) and None in shares
    collector.close()


def test_a_process_of_another_user_that_sleeps_is_not_read_anew(
    fake: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.process(100)
    process, read_file = watched(fake, 100), ProcessFiles.read

    def read_what_may_be_read(files: ProcessFiles, name: str) -> bytes:
        if name == "io":
            raise PermissionError(name)
        return read_file(files, name)

    monkeypatch.setattr(ProcessFiles, "read", read_what_may_be_read)
    read(process, 0.0)
    fake.process(100, run_ns=10**8)
    readings = [read(process, float(second)) for second in range(1, 6)]
    assert readings[-1] is readings[-2]
