"""Batch jobs and containers by their cgroup paths, as each system writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.model.snapshot import CgroupName
from gputop.sources.processes.tree.job_identity import JobIdentity, job_identity
from gputop.sources.processes.tree.process_facts import FactsReader, RunRank
from gputop.sources.simulation.life import slurm
from tests.proc_trees.fake_proc import FakeProc

_ID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("cgroup", "job"),
    [
        ("0::/system.slice/slurmstepd.scope/job_8821/step_0/user/task_0\n", "slurm 8821"),
        (
            "0::/system.slice/node17_slurmstepd.scope/job_8821/step_batch/user/task_special\n",
            "slurm 8821",
        ),
        ("9:memory:/slurm/uid_1000/job_8821/step_0/task_0\n1:cpu:/\n", "slurm 8821"),
        ("4:cpu:/slurm_node17/uid_1000/job_77/step_extern\n", "slurm 77"),
        ("0::/pbs_jobs.service/jobid/12345.server\n", "pbs 12345"),
        ("3:cpuset:/pbs_jobs.service/jobid/12345[7].server\n", "pbs 12345[7]"),
        ("3:cpuset:/lsf/cluster1/job.4711.12345.1780000000\n", "lsf 4711"),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
        ("0::/user.slice/job_456\n", None),
        ("", None),
    ],
)
def test_the_job_is_named_by_its_scheduler_and_number(cgroup: str, job: str | None) -> None:
    found = job_identity(cgroup).job
    assert (found and found.words) == job


@pytest.mark.parametrize(
    ("cgroup", "container"),
    [
        (f"0::/system.slice/docker-{_ID}.scope\n", "docker 0123456789ab"),
        (f"5:cpu,cpuacct:/docker/{_ID}\n0::/\n", "docker 0123456789ab"),
        (f"0::/machine.slice/libpod-{_ID}.scope/container\n", "podman 0123456789ab"),
        (
            "0::/kubepods.slice/kubepods-burstable.slice/"
            f"kubepods-burstable-pod12345678_1234_1234_1234_123456789abc.slice/cri-containerd-{_ID}.scope\n",
            "pod 12345678-1234-1234-1234-123456789abc",
        ),
        (
            f"3:cpu:/kubepods/besteffort/pod12345678-1234-1234-1234-123456789abc/{_ID}\n",
            "pod 12345678-1234-1234-1234-123456789abc",
        ),
        (f"0::/system.slice/crio-{_ID}.scope\n", "cri-o 0123456789ab"),
        (f"0::/something/{_ID}\n", "container 0123456789ab"),
        ("0::/lxc.payload.web1/init.scope\n", "lxc web1"),
        ("0::/user.slice\n", None),
    ],
)
def test_the_container_is_named_by_its_engine_and_short_id(
    cgroup: str, container: str | None
) -> None:
    found = job_identity(cgroup).container
    assert (found and found.words) == container


@pytest.mark.parametrize(
    ("environ", "rank"),
    [("WORLD_SIZE=4\0MASTER_ADDR=n1\0MASTER_PORT=29511\0", RunRank(29511, 4)),
     ("RANK=5\0LOCAL_RANK=1\0LOCAL_WORLD_SIZE=4\0WORLD_SIZE=8\0MASTER_PORT=29511\0", RunRank(29511, 8, 5, 4, 4)),
     ("WORLD_SIZE=1\0MASTER_PORT=29511\0", None),
     ("RANK=1\0WORLD_SIZE=2\0", RunRank(None, 2, 1)), ("WORLD_SIZE=2\0", None),
     ("MASTER_PORT=29511\0", None), ("WORLD_SIZE=2\0MASTER_PORT=x\0", None), ("", None)],
)  # fmt: skip
def test_which_rank_of_a_run_a_process_is_says_its_environment(
    tmp_path: Path, environ: str, rank: RunRank | None
) -> None:
    fake = FakeProc(tmp_path)
    fake.write("proc/7/environ", environ)
    facts = FactsReader(str(fake.proc), str(fake.sys))
    assert (facts.rank(7), facts.rank(8)) == (rank, None)
    facts.close()


@pytest.mark.parametrize(
    ("me", "seen", "words"),
    [(RunRank(1, 4, 0, 0, 4), (0, 1, 3), "3 of 4 ranks seen, rank 2 holds no GPU here"),
     (RunRank(1, 4, 0, 0, 4), (0, 1, 2, 3), ""),
     (RunRank(1, 16, 9, 8, 8), (9,), "1 of 8 ranks of this machine seen, ranks 8, 10, 11, 12, … hold no GPU here"),
     (RunRank(1, 4, 0), (0, 1), "2 of 4 ranks seen here"), (RunRank(1, 2, 0), (0, 1), ""), (RunRank(1, 4), (), "")],
)  # fmt: skip
def test_ranks_that_are_not_seen_are_named(me: RunRank, seen: tuple[int, ...], words: str) -> None:
    others = [RunRank(1, me.ranks, number) for number in seen]
    assert me.missing([*others, RunRank(2, me.ranks, 2), RunRank(1, me.ranks + 1, 2)]) == words


def test_a_job_inside_a_container_has_both() -> None:
    identity = job_identity(f"3:cpu:/slurm/uid_7/job_9/step_0\n4:memory:/docker/{_ID}\n")
    assert identity == JobIdentity(slurm(9), CgroupName("docker", "0123456789ab"))
