"""CPU limits: how often they cut a process short, for cgroup v1 and v2, made up and (where allowed) real."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gputop.sources.cgroup import (
    MemoryLimit,
    Throttling,
    cgroup_folders,
    cpu_quota,
    memory_limit,
)
from gputop.sources.processes.tree.process_facts import allowed_cores
from tests.proc_trees.fake_proc import FakeProc

_V2 = "0::/job/step\n"
_V1 = "5:cpu,cpuacct:/job/step\n4:memory:/job\n0::/\n"


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def _v2(fake: FakeProc, periods: int, throttled: int) -> None:
    fake.group("")
    fake.group(
        "job",
        cpu_max="150000 100000\n",
        cpu_stat=f"usage_usec 1\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec 1\n",
        memory_max="1000\n",
        memory_current="900\n",
        memory_stat="inactive_file 100\n",
    )
    fake.group("job/step", cpu_max="max 100000\n", cpu_stat="usage_usec 1\n", memory_max="max\n")


def _v1(fake: FakeProc, periods: int, throttled: int) -> None:
    for path in ("cpu,cpuacct", "memory"):
        fake.group(path)
    fake.write("sys/fs/cgroup/cpu,cpuacct/job/cgroup.procs", "")
    step = "sys/fs/cgroup/cpu,cpuacct/job/step"
    fake.write(f"{step}/cgroup.procs", "")
    fake.write(f"{step}/cpu.cfs_quota_us", "150000\n")
    fake.write(f"{step}/cpu.cfs_period_us", "100000\n")
    fake.write(
        f"{step}/cpu.stat", f"nr_periods {periods}\nnr_throttled {throttled}\nthrottled_time 1\n"
    )
    memory = "sys/fs/cgroup/memory"
    fake.write(f"{memory}/memory.limit_in_bytes", "9223372036854771712\n")
    fake.write(f"{memory}/job/cgroup.procs", "")
    fake.write(f"{memory}/job/memory.limit_in_bytes", "1000\n")
    fake.write(f"{memory}/job/memory.usage_in_bytes", "900\n")
    fake.write(f"{memory}/job/memory.stat", "inactive_file 1\ntotal_inactive_file 100\n")


def test_a_jobs_cores_are_those_of_its_own_mask_and_limit_and_not_of_gputops(
    fake: FakeProc,
) -> None:
    with subprocess.Popen(["sleep", "1000"]) as job:
        try:
            os.sched_setaffinity(job.pid, {min(os.sched_getaffinity(0))})
            assert allowed_cores("/proc", job.pid, None) == 1.0
        finally:
            job.kill()
    fake.write(
        "proc/7/status", "Name:\tpython\nCpus_allowed_list:\t0-3,8,10-11\nMems_allowed_list:\t0\n"
    )
    assert allowed_cores(str(fake.proc), 7, None) == 7.0
    _v2(fake, 0, 0)
    assert allowed_cores(str(fake.proc), 7, cpu_quota(cgroup_folders(_V2, str(fake.sys)))) == 1.5
    assert allowed_cores(str(fake.proc), 8, None) is None


@pytest.mark.parametrize(("text", "write"), [(_V2, _v2), (_V1, _v1)])
def test_limits_are_found_on_any_ancestor(fake: FakeProc, text: str, write: object) -> None:
    assert callable(write)
    write(fake, 0, 0)
    folders = cgroup_folders(text, str(fake.sys))
    assert cpu_quota(folders) == 1.5
    assert memory_limit(folders) == MemoryLimit(1000, 800)


@pytest.mark.parametrize(("text", "write"), [(_V2, _v2), (_V1, _v1)])
def test_throttling_is_the_share_of_periods_cut_short_since_the_last_look(
    fake: FakeProc, text: str, write: object
) -> None:
    assert callable(write)
    write(fake, 100, 90)
    throttling = Throttling(cgroup_folders(text, str(fake.sys)))
    throttling.read()
    assert (throttling.throttled_pct, throttling.reason) == (None, "needs two readings")
    write(fake, 120, 95)
    throttling.read()
    assert (throttling.throttled_pct, throttling.reason) == (25.0, None)
    throttling.read()
    assert throttling.throttled_pct == 0.0


def test_without_a_limit_throttling_is_absent_not_zero(fake: FakeProc) -> None:
    fake.group("", cpu_stat="usage_usec 1\n")
    throttling = Throttling(cgroup_folders("0::/\n", str(fake.sys)))
    throttling.read()
    throttling.read()
    assert (throttling.throttled_pct, throttling.reason) == (None, "no CPU limit")


def test_a_group_of_another_cgroup_namespace_is_not_guessed(fake: FakeProc) -> None:
    fake.group("", cpu_max="100000 100000\n")
    folders = cgroup_folders("0::/../../other\n", str(fake.sys))
    assert folders.cpu == ()
    throttling = Throttling(folders)
    throttling.read()
    assert throttling.reason == "its cgroup is not visible from here"


def test_inside_a_container_the_mount_is_the_containers_own_group(fake: FakeProc) -> None:
    fake.group("", cpu_max="200000 100000\n")
    assert cpu_quota(cgroup_folders("0::/docker/abc\n", str(fake.sys))) == 2.0
