"""Ranks of one job are one job, whatever their titles say; runs of a sweep are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.jobs.job_keys import JobBook
from gputop.diagnosis.window.host_activity import GpuHostActivity
from gputop.model.ranked_command import ranked_command
from gputop.model.snapshot import CgroupName, ProcessSample, ProcessStatic
from gputop.monitor import Monitor
from gputop.sources.processes.tree.announced_run import announced_run
from tests.support.scenes import gpu, snap, train


def process(number: int, command: str, **changes: Any) -> ProcessSample:
    static = ProcessStatic(user=changes.pop("user", "ml"), command=command)
    for name in ("batch_job", "run", "rank", "job_key"):
        if name in changes:
            static = replace(static, **{name: changes.pop(name)})
    values: dict[str, Any] = {"ppid": 1, "age_s": 500.0, "nccl": True, **changes}
    return ProcessSample(
        pid=100 + number, starttime=100 + number, gpu=number, static=static, **values
    )


def keys(processes: Sequence[ProcessSample], *, loose: bool = False) -> list[str]:
    ticks = {p.gpu: GpuHostActivity(owners=[p], primary=p) for p in processes if p.gpu is not None}
    JobBook().assign(1000.0, ticks)
    jobs = [tick.job for tick in ticks.values() if tick.job is not None]
    return [job.loose_key if loose else job.key for job in jobs]


def count_jobs(commands: Sequence[str], **changes: Any) -> int:
    return len(set(keys([process(n, command, **changes) for n, command in enumerate(commands)])))


ONE_JOB = (
    [f"VLLM::Worker_TP{n}" for n in range(4)],
    [f"sglang::scheduler_DP0_TP{n}" for n in range(4)],
    [f"python train.py --local_rank={n}" for n in range(4)],
    [f"python train.py --local-rank {n} --lr 0.1" for n in range(4)],
    [f"trainer: rank {n}" for n in range(4)],
    [f"python -m jax_train --process_id={n}" for n in range(4)],
    ["python train.py"] * 4,
    [f"VLLM::Worker_TP{n}" for n in (4, 5, 7)],
)
SEVERAL_JOBS = (
    [f"python train.py --seed {n}" for n in range(1, 5)],
    [f"python train.py --lora_rank {n}" for n in range(4)],
    [f"python train.py --lora-rank={n}" for n in range(4)],
    [f"python train.py --rank {n}" for n in (4, 8, 16, 32)],
    [f"vllm serve m --tp {n}" for n in range(1, 5)],
    [f"python train_{n}.py" for n in range(4)],
    [f"python train.py --fold {n}" for n in range(4)],
)


@pytest.mark.parametrize("commands", ONE_JOB, ids=lambda commands: commands[0])
def test_ranks_are_one_job_by_the_digit_after_a_rank_word(commands: Sequence[str]) -> None:
    assert count_jobs(commands) == 1
    # What proves it is the parent, too.
    assert count_jobs(commands, ppid=77) == 1


@pytest.mark.parametrize("commands", SEVERAL_JOBS, ids=lambda commands: commands[0])
def test_runs_of_a_sweep_are_jobs_of_their_own(commands: Sequence[str]) -> None:
    assert count_jobs(commands) == len(commands)
    assert count_jobs(commands, ppid=77) == len(commands)


def test_two_users_equal_commands_are_two_jobs() -> None:
    mine = [process(n, f"VLLM::Worker_TP{n}", user="ml") for n in range(2)]
    theirs = [process(n + 2, f"VLLM::Worker_TP{n + 2}", user="rl") for n in range(2)]
    found = keys([*mine, *theirs])
    assert found[0] == found[1] != found[2] == found[3]


def test_ranks_that_started_minutes_apart_are_two_jobs() -> None:
    first = [process(n, f"VLLM::Worker_TP{n}") for n in range(2)]
    later = [process(n + 2, f"VLLM::Worker_TP{n}", age_s=100.0) for n in range(2)]
    found = keys([*first, *later])
    assert found[0] == found[1] != found[2] == found[3]


def test_two_servers_that_started_together_are_not_one_job() -> None:
    found = keys([process(n, f"VLLM::Worker_TP{n % 2}") for n in range(4)])
    assert len(set(found)) == 4


def test_scheduler_and_launcher_come_before_commands() -> None:
    slurm = [process(n, f"python a{n}.py", batch_job=CgroupName("slurm", "7")) for n in range(2)]
    assert len(set(keys(slurm))) == 1
    runs = [
        process(n, "python train.py", run="ab" if n < 2 else "cd", rank=n % 2) for n in range(4)
    ]
    found = keys(runs)
    assert found[0] == found[1] != found[2] == found[3]


def test_equal_processes_that_do_not_talk_are_one_job_only_loosely() -> None:
    alone = [process(n, "python eval.py", nccl=False) for n in range(3)]
    assert len(set(keys(alone))) == 3
    assert len(set(keys(alone, loose=True))) == 1


def test_a_rank_that_is_gone_leaves_the_others_their_job() -> None:
    book = JobBook()
    ranks = [process(n, f"VLLM::Worker_TP{n}") for n in range(3)]
    ticks = {n: GpuHostActivity(owners=[p], primary=p) for n, p in enumerate(ranks)}
    book.assign(1000.0, ticks)
    before = ticks[1].job
    del ticks[0]
    book.assign(1001.0, ticks)
    assert ticks[1].job == ticks[2].job == replace(before, rank=2) or ticks[1].job == before
    assert ticks[1].job is not None and ticks[2].job is not None
    assert ticks[1].job.key == ticks[2].job.key == before.key


def test_a_reused_pid_is_another_process() -> None:
    book = JobBook()
    old = process(0, "VLLM::Worker_TP0")
    ticks = {0: GpuHostActivity(owners=[old], primary=old)}
    book.assign(1000.0, ticks)
    new = replace(process(0, "python other.py"), starttime=999)
    ticks = {0: GpuHostActivity(owners=[new], primary=new)}
    book.assign(1001.0, ticks)
    assert ticks[0].job is not None and "other.py" in ticks[0].job.key


@pytest.mark.parametrize(
    ("environment", "rank", "is_run"),
    [
        ({"RANK": "1", "WORLD_SIZE": "4", "MASTER_PORT": "29500"}, 1, True),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_NAMESPACE": "9@1"}, 2, True),
        ({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "7"}, 3, True),
        ({"JAX_PROCESS_ID": "0", "JAX_NUM_PROCESSES": "2", "JAX_COORDINATOR_ADDRESS": "a:1"}, 0, True),
        ({"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "29500"}, None, False),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_ID": "4294967290"}, 0, False),
        ({"RANK": "x", "WORLD_SIZE": "4"}, None, False),
        ({}, None, False),
    ],
)  # fmt: skip
def test_launchers_announce_run_and_rank(
    environment: dict[str, str], rank: int | None, is_run: bool
) -> None:
    told = announced_run(environment)
    assert told.rank == rank
    assert (told.run is not None) == is_run


def test_a_command_keeps_its_settings() -> None:
    told = ranked_command("python t.py --seed 1 --local_rank=3 --lora_rank 8 --lr 0.1")
    assert told.numbers == (3,)
    assert "--lora_rank 8" in told.text and "--seed 1" in told.text


# --- the job seen as a whole ---------------------------------------------------------------------------------------


def stuck_rank(tick: int, index: int, *, listens: bool = False) -> tuple[Any, ProcessSample]:
    """Rank 0 of three stops after a minute; the others spin in their kernels."""
    is_stuck = tick >= 60
    if not is_stuck:
        sample = gpu(index=index, util=97.0, sm=62.0, power_w=270.0, power_limit_w=400.0)
    elif index == 0:
        sample = gpu(index=index, util=0.0, sm=0.0, power_w=62.0, power_limit_w=400.0)
    else:
        sample = gpu(index=index, util=100.0, sm=2.0, power_w=88.0, power_limit_w=400.0)
    if is_stuck:
        sample = replace(sample, tensor_active_pct=0.0, dram_active_pct=0.0)
    is_server = is_stuck and listens and index == 0
    one = train(
        pid=500 + index,
        gpu=index,
        main=0.0 if is_server else 100.0,
        nccl=True,
        age_s=900.0 + tick,
        listens=is_server,
        static=ProcessStatic(user="ml", command=f"VLLM::Worker_TP{index}", name="worker"),
    )
    return sample, one


def seen_as_a_whole(*, listens: bool) -> tuple[Any, ...]:
    monitor = Monitor()
    for tick in range(215):
        rows = [stuck_rank(tick, index, listens=listens) for index in range(3)]
        samples = tuple(sample for sample, _ in rows)
        processes = [one for _, one in rows]
        if listens and tick >= 60:
            waits = replace(processes[0].main, poll=100.0)
            processes[0] = replace(processes[0], main=waits)
        frame = monitor.feed(replace(snap(tick, samples[0], processes), gpus=samples))
    return frame.diagnoses


def test_a_stuck_rank_with_its_own_title_is_named_and_its_own_pane_says_so() -> None:
    culprit, first, second = seen_as_a_whole(listens=False)
    assert first.verdict == second.verdict == "hang"
    assert culprit.verdict == "idle"
    assert first.about == 0
    assert culprit.title == "holds up 2 other GPUs"
    assert culprit.evidence[0] == "the main thread computes"


def test_ranks_that_wait_for_a_rank_that_waits_for_requests_have_low_demand() -> None:
    told = seen_as_a_whole(listens=True)
    assert [one.verdict for one in told] == ["low_demand"] * 3
    assert "GPU 0, which waits for requests" in told[1].evidence[0]
