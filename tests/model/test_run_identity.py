"""Whose ranks belong together: by what their launcher gave them, never by a name or a process group."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gputop.model.steps import Allocation, Started, StepRow, allocation_of, run_of
from gputop.report.accounts import StepAccount
from gputop.sources.step_datagrams import StepIntake, datagram

HERE = Started(1000, "node-1", "7 100")
THERE = replace(HERE, own="8 200")
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500"}
SLURM = {"SLURM_JOB_ID": "901", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "8"}
STEP = {**SLURM, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8"}


def together(a: dict[str, str], b: dict[str, str], one: Started = HERE, other: Started = THERE) -> bool:
    return run_of(a, one).id == run_of(b, other).id


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
    assert not together({}, {}, replace(one, is_rank=False), replace(other, is_rank=False)), "without a rank: own runs"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({}, {}),
        (SLURM, SLURM),
        ({"MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "1"}, {"MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "1"}),
        ({"RANK": "0"}, {"RANK": "1"}),
        ({"RANK": "0", "MASTER_ADDR": "10.0.0.7"}, {"RANK": "1", "MASTER_ADDR": "10.0.0.7"}),
        (STEP, {**STEP, "SLURM_STEP_ID": "1"}),
        (STEP, {**STEP, "SLURM_JOB_ID": "902"}),
        (STEP, {**STEP, "SLURM_CLUSTER_NAME": "west"}),
        ({**STEP, "SLURM_STEP_NUM_TASKS": "1"}, {**STEP, "SLURM_STEP_NUM_TASKS": "1"}),
        ({**TORCHRUN, "MASTER_ADDR": "a"}, {**TORCHRUN, "MASTER_ADDR": "a", "MASTER_PORT": "29501"}),
        ({**TORCHRUN, "MASTER_ADDR": "a"}, {**TORCHRUN, "MASTER_ADDR": "a", "TORCHELASTIC_RUN_ID": "b"}),
    ],
)
def test_seeds_steps_jobs_clusters_and_half_of_a_launcher_s_variables_are_runs_of_their_own(
    a: dict[str, str], b: dict[str, str]
) -> None:
    assert not together(a, b)


def test_a_rendezvous_on_loopback_is_of_its_host_and_everything_is_of_its_user() -> None:
    local = {**TORCHRUN, "MASTER_ADDR": "127.0.0.1"}
    assert not together(local, local, HERE, replace(THERE, host="node-2"))
    assert together({**local, "MASTER_ADDR": "a"}, {**local, "MASTER_ADDR": "a"}, HERE, replace(THERE, host="node-2"))
    assert not together(local, local, HERE, replace(THERE, uid=1001))


def test_who_pays_is_the_batch_job_of_its_cluster() -> None:
    assert allocation_of({**SLURM, "SLURM_CLUSTER_NAME": "west"}) == Allocation("west", "slurm", "901")
    assert allocation_of({"PBS_JOBID": "12.server"}) == Allocation("", "pbs", "12.server")
    assert allocation_of({}) is None


def test_what_travels_is_a_hash_and_what_is_heard_is_of_its_sender_s_user() -> None:
    run = run_of({**TORCHRUN, "MASTER_ADDR": "10.0.0.7"}, HERE).id
    sent = datagram(StepRow(7, 0, None, "s", 1, 0.1, 0.1, 0.1, 0.1, 0.1, run=run))
    assert b"10.0.0.7" not in sent and b"29500" not in sent and len(run) == 16
    heard = []
    for pid, uid in ((100_001, 1000), (100_002, 1000), (100_003, 1001)):
        intake = StepIntake()
        assert intake.accept(sent, pid, uid)
        heard.append(intake.drain()[0].run)
    assert heard[0] == heard[1] != heard[2] and run not in heard
    for wrong in (run + "0", "G", "", 7):
        assert not StepIntake().accept(sent.replace(f'"{run}"'.encode(), repr(wrong).replace("'", '"').encode()), 9)


def test_two_seeds_of_one_script_are_two_reports_and_two_ranks_are_one() -> None:
    account = StepAccount()
    for pid, run, step_s in ((1, "aa", 0.1), (2, "bb", 0.2), (3, "cc", 0.3), (4, "cc", 0.3)):
        account.add([StepRow(pid, 0, None, "s.py", 10, 10 * step_s, *[step_s] * 4, samples=80.0, run=run)] * 20)
    reports = account.report()
    assert sorted((report.ranks, round(report.samples_per_s or 0.0)) for report in reports) == [
        (1, 40),
        (1, 80),
        (2, 53),
    ]
