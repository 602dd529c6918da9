"""Whose ranks belong together: by what their launcher gave them, never by a name or a process group."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from gputop.model.run_ranks import Started, allocation_of, run_of
from gputop.model.steps import StepRow
from gputop.report.run_account import RunAccount, run_of_recording
from gputop.sources.step_datagrams import StepIntake, datagram

HERE = Started(1000, "node-1", "7 100")
THERE = replace(HERE, own="8 200")
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500"}
SLURM = {"SLURM_JOB_ID": "901", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "8"}
STEP = {**SLURM, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8"}


def together(
    a: dict[str, str], b: dict[str, str], one: Started = HERE, other: Started = THERE
) -> bool:
    return run_of(a, one) == run_of(b, other)


@pytest.mark.parametrize(
    "environ",
    [
        {**TORCHRUN, "MASTER_ADDR": "10.0.0.7"},
        {**TORCHRUN, "MASTER_ADDR": "localhost"},
        {**TORCHRUN, "MASTER_ADDR": "10.0.0.7", "TORCHELASTIC_RUN_ID": "a"},
        STEP,
        {"OMPI_COMM_WORLD_RANK": "3", "PMIX_NAMESPACE": "prterun-node-1-77@1"},
    ],
)
def test_ranks_of_one_launcher_are_one_run(environ: dict[str, str]) -> None:
    assert together(environ, environ)


def test_children_of_multiprocessing_are_their_parent_s_run_where_they_are_ranks() -> None:
    one, other = (replace(started, parent="5 50", is_rank=True) for started in (HERE, THERE))
    assert together({}, {}, one, other)
    assert not together({}, {}, one, replace(other, parent="6 60")), "two sweeps of one script"
    assert not together({}, {}, replace(one, is_rank=False), replace(other, is_rank=False)), (
        "without a rank: own runs"
    )


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({}, {}),
        (SLURM, SLURM),
        (
            {"MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "1"},
            {"MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "1"},
        ),
        ({"RANK": "0"}, {"RANK": "1"}),
        ({"RANK": "0", "MASTER_ADDR": "10.0.0.7"}, {"RANK": "1", "MASTER_ADDR": "10.0.0.7"}),
        (STEP, {**STEP, "SLURM_STEP_ID": "1"}),
        (STEP, {**STEP, "SLURM_JOB_ID": "902"}),
        (STEP, {**STEP, "SLURM_CLUSTER_NAME": "west"}),
        ({**STEP, "SLURM_STEP_NUM_TASKS": "1"}, {**STEP, "SLURM_STEP_NUM_TASKS": "1"}),
        (
            {**TORCHRUN, "MASTER_ADDR": "a"},
            {**TORCHRUN, "MASTER_ADDR": "a", "MASTER_PORT": "29501"},
        ),
        (
            {**TORCHRUN, "MASTER_ADDR": "a"},
            {**TORCHRUN, "MASTER_ADDR": "a", "TORCHELASTIC_RUN_ID": "b"},
        ),
    ],
)
def test_seeds_steps_jobs_clusters_and_half_of_a_launcher_s_variables_are_runs_of_their_own(
    a: dict[str, str], b: dict[str, str]
) -> None:
    assert not together(a, b)


def test_a_rendezvous_on_loopback_is_of_its_host_and_everything_is_of_its_user() -> None:
    local = {**TORCHRUN, "MASTER_ADDR": "127.0.0.1"}
    assert not together(local, local, HERE, replace(THERE, host="node-2"))
    assert together(
        {**local, "MASTER_ADDR": "a"},
        {**local, "MASTER_ADDR": "a"},
        HERE,
        replace(THERE, host="node-2"),
    )
    assert not together(local, local, HERE, replace(THERE, uid=1001))


def test_who_pays_is_the_batch_job_of_its_cluster() -> None:
    assert allocation_of({**SLURM, "SLURM_CLUSTER_NAME": "west"}) == "west/slurm/901"
    assert allocation_of({"PBS_JOBID": "12.server"}) == "/pbs/12.server"
    assert allocation_of({}) == ""


def test_what_travels_is_a_hash_and_what_is_heard_is_of_its_sender_s_user() -> None:
    run = run_of({**TORCHRUN, "MASTER_ADDR": "10.0.0.7"}, HERE)
    sent = datagram(StepRow(7, 0, None, "s", 1, 0.1, 0.1, 0.1, 0.1, 0.1, run=run))
    assert b"10.0.0.7" not in sent and b"29500" not in sent and len(run) == 16
    heard = []
    for pid, uid in ((100_001, 1000), (100_002, 1000), (100_003, 1001)):
        intake = StepIntake()
        assert intake.accept(sent, pid, uid)
        heard.append(intake.drain()[0].run)
    assert heard[0] == heard[1] != heard[2] and run not in heard
    for wrong in (run + "0", "G", "", 7):
        assert not StepIntake().accept(
            sent.replace(f'"{run}"'.encode(), repr(wrong).replace("'", '"').encode()), 9
        )


def rows(
    account: RunAccount, run: str, pids: Sequence[int], begin: float, seconds: int = 20
) -> None:
    """Each pid is a rank, and makes ten steps of 0.1 s with 80 samples a second."""
    for second in range(seconds):
        for rank, pid in enumerate(pids):
            row = StepRow(pid, rank, None, "s.py", 10, 1.0, *[0.1] * 4, samples=80.0, run=run)
            account.add(begin + second, [(row, (rank,))])


def test_two_seeds_of_one_script_are_two_reports_and_two_ranks_are_one() -> None:
    account = RunAccount()
    for pids, run in (((1,), "aa"), ((2,), "bb"), ((3, 4), "cc")):
        rows(account, run, pids, 100.0)
    reports = account.report()
    assert [(r.label, r.ranks, round(r.samples_per_s or 0.0), r.gpus) for r in reports] == [
        ("s.py#1", 1, 80, (0,)), ("s.py#2", 1, 80, (0,)), ("s.py#3", 2, 160, (0, 1)),
    ]  # fmt: skip
    assert (reports[0].begin, reports[0].seconds) == (99.0, 20.0)


@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 4), (4, 2), (1, 3)])
@pytest.mark.parametrize("order", [1, -1])
def test_ranks_that_are_started_again_are_an_attempt_of_their_own(
    before: int, after: int, order: int
) -> None:
    """As torchrun restarts its workers, and as it is started twice on one port: one identity, other pids."""
    account = RunAccount()
    rows(account, "cc", range(10, 10 + before), 100.0)
    for second in range(20):
        for rank in range(after)[::order]:
            row = StepRow(
                50 + rank, rank, None, "s.py", 10, 1.0, *[0.1] * 4, samples=80.0, run="cc"
            )
            account.add(130.0 + second, [(row, ())])
    first, second_start = account.report()
    assert (first.attempt, first.ranks, first.samples_per_s) == (
        1,
        before,
        pytest.approx(80.0 * before),
    )
    assert (second_start.attempt, second_start.ranks) == (2, after)
    assert second_start.samples_per_s == pytest.approx(80.0 * after) and second_start.begin == 129.0
    assert (
        run_of_recording(account.report(), "cc") == second_start
        and run_of_recording(account.report(), "") is None
    )
    assert (
        run_of_recording(account.report(), "dd") is None and run_of_recording([first], "") == first
    )
