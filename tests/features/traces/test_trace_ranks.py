"""`gputop trace` on a folder of ranks: who makes the others wait, and what is left out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import trace_said
from tests.support.synthetic_trace import TraceMaker, planted, written
from tests.support.waiting import has_ended, until


def ranks(tmp_path: Path, durations: dict[int, int], *, calls: int = 20) -> str:
    """A folder with a rank a file. In each step a rank computes so long, and the collective ends for all together."""
    longest = max(durations.values())
    for rank, compute in durations.items():
        maker = TraceMaker()
        for step in maker.steps(calls if rank else 20):
            maker.free = max(maker.free, maker.t + 10)
            maker.launch("gemm", compute)
            said = {"Collective name": "allreduce", "Process Group Name": "0", "Seq": step}
            # Another clock on each host: nothing may depend on it.
            maker.launch("ncclDevKernel_AllReduce", longest - compute + 100, **said)
            maker.t = maker.free - 5
        for event in maker.events:
            event["ts"] += 777 * rank
        written(
            tmp_path / f"rank{rank}.json",
            maker.document(distributedInfo={"rank": rank, "world_size": 4}),
        )
    return str(tmp_path)


def test_the_rank_that_others_wait_for_is_named_whatever_its_clock(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ranks(tmp_path, {0: 1000, 1: 1000, 2: 1400, 3: 1000})
    status, text = trace_said(capsys, folder)
    assert status == 1
    assert max(map(len, text.splitlines())) <= 120
    assert "rank 2 is slower: the others wait 27 % of the time for it" in text
    assert "0.4 ms more a step on compute" in " ".join(text.split())
    assert text.index("Rank 2: rank2.json") > text.index("rank 2 is slower")
    straggler = json.loads(trace_said(capsys, folder, "--json")[1])["straggler"]
    assert (straggler["rank"], straggler["kind"], straggler["more"]) == (2, "slow", "compute")
    assert "Rank 1: rank1.json" in trace_said(capsys, folder, "--ranks", "1")[1]


def test_ranks_that_communicate_for_long_name_what_measures_their_links(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "all_reduce_perf -b 8 -e 8G -f 2 -g 4"
    (tmp_path / "long").mkdir()
    (tmp_path / "short").mkdir()
    long = trace_said(capsys, ranks(tmp_path / "long", dict.fromkeys(range(4), 1000)))[1]
    assert command in " ".join(long.split())
    short = trace_said(capsys, ranks(tmp_path / "short", dict.fromkeys(range(4), 9000)))[1]
    assert "all_reduce_perf" not in short


def test_equal_ranks_have_no_straggler_and_unequal_steps_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    data = json.loads(
        trace_said(capsys, ranks(tmp_path / "a", {0: 1000, 1: 1010, 2: 1000, 3: 1000}), "--json")[1]
    )
    assert data["straggler"] is None and data["notes"] == []
    text = trace_said(capsys, ranks(tmp_path / "b", {0: 1000, 1: 1400}, calls=18))[1]
    assert "do not hold the same steps" in text and "is slower" not in text


def test_a_file_that_is_named_twice_is_one_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "trace.json", planted("low_sm", steps=3))
    link = tmp_path / "link.json"
    link.symlink_to(path)
    words = [str(path), str(path), str(link), str(tmp_path), "--json"]
    assert len(json.loads(trace_said(capsys, *words)[1])["ranks"]) == 1


def test_a_file_of_a_folder_that_is_no_trace_is_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "rank0.json", planted("busy"))
    (tmp_path / "settings.json").write_text("{}")
    status, text = trace_said(capsys, str(tmp_path))
    assert status == 0 and "left out" in text and "settings.json" in text


@pytest.mark.parametrize("kind", ["a rank twice", "two sizes", "more ranks than the job has"])
def test_a_folder_with_ranks_of_two_jobs_is_refused_in_one_line(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for job in range(2):
        for rank in range(2):
            number = rank if kind == "a rank twice" else 2 * job + rank
            size = {"a rank twice": 2, "two sizes": 4 + 4 * job, "more ranks than the job has": 3}[
                kind
            ]
            document = planted(
                "busy", steps=2, distributedInfo={"rank": number, "world_size": size}
            )
            written(tmp_path / f"job{job}_{rank}.json", document)
    status, text = trace_said(capsys, str(tmp_path))
    assert status == 2 and text.count("\n") == 1 and "one file for each rank of one job" in text


@pytest.mark.parametrize("present", [(0,), (1, 3), (0, 2, 3), (0, 1, 2, 3)])
def test_ranks_that_are_missing_are_noted_where_ranks_are_compared(
    present: tuple[int, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = trace_said(capsys, ranks(tmp_path, dict.fromkeys(present, 1000)))[1]
    assert (f"{len(present)} of the job's 4 ranks are here" in text) == (1 < len(present) < 4)


def all_to_all(tmp_path: Path, announced: str, *, slow: int = 2) -> str:
    """Ranks whose only collectives run as SendRecv kernels without arguments; one of them computes longer."""
    for rank in range(4):
        maker = TraceMaker()
        for _ in maker.steps(20):
            maker.free = max(maker.free, maker.t + 10)
            compute = 1400 if rank == slow else 1000
            maker.launch("gemm", compute)
            maker.span(announced, maker.t, maker.t + 5, "user_annotation")
            maker.launch("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", 1500 - compute)
            maker.t = maker.free - 5
        written(
            tmp_path / f"rank{rank}.json",
            maker.document(distributedInfo={"rank": rank, "world_size": 4}),
        )
    return str(tmp_path)


def test_a_straggler_of_all_to_all_is_named_and_of_plain_sends_it_is_said_that_none_can_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert (
        "rank 2 is slower" in trace_said(capsys, all_to_all(tmp_path / "a", "nccl:all_to_all"))[1]
    )
    text = trace_said(capsys, all_to_all(tmp_path / "b", "nccl:send"))[1]
    assert "only kernels between two ranks" in text and "is slower" not in text


def grouped(tmp_path: Path, groups: dict[int, str], late: dict[int, int], steps: int = 20) -> str:
    """Ranks in groups; the collective of a group ends for all of it. ``late`` are microseconds more of one rank, or of
    a rank in every n-th step for a negative number."""
    for rank, group in groups.items():
        maker = TraceMaker()
        for step in maker.steps(steps):
            maker.free = max(maker.free, maker.t + 10)
            more = {
                r: us if us > 0 else (-us if step % len(late) == r % len(late) else 0)
                for r, us in late.items()
            }
            longest = max(more.get(other, 0) for other, its in groups.items() if its == group)
            maker.launch("gemm", 1000 + more.get(rank, 0))
            said = {"Collective name": "allreduce", "Process Group Name": group, "Seq": step}
            maker.launch("ncclDevKernel_AllReduce", 100 + longest - more.get(rank, 0), **said)
            maker.t = maker.free - 5
        written(
            tmp_path / f"rank{rank}.json",
            maker.document(distributedInfo={"rank": rank, "world_size": 4}),
        )
    return str(tmp_path)


def test_a_straggler_is_looked_for_within_the_groups_that_ranks_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = grouped(tmp_path, {0: "left", 1: "left", 2: "right", 3: "right"}, {3: 500})
    straggler = json.loads(trace_said(capsys, folder, "--json")[1])["straggler"]
    assert (straggler["rank"], straggler["last_in_pct"]) == (3, 100.0)


def test_of_ranks_that_are_late_in_turns_the_one_that_is_last_most_often_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = grouped(tmp_path, dict.fromkeys(range(4), "0"), {0: -600, 1: -600, 2: -600}, steps=21)
    text = " ".join(trace_said(capsys, folder)[1].split())
    assert "the ranks wait for each other 26 % of the time, and not always for the same one" in text
    assert "(last in 33 % of the collectives)" in text and "is slower" not in text


def test_a_rank_that_is_late_seldom_and_by_much_is_no_straggler(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = grouped(
        tmp_path, dict.fromkeys(range(4), "0"), {3: -3000, 4: -3000, 5: -3000}, steps=21
    )
    assert json.loads(trace_said(capsys, folder, "--json")[1])["straggler"] is None


READS_AND_WAITS = """
import multiprocessing, sys, time
from gputop.features.traces.trace_analysis import StepChoice
from gputop.features.traces.trace_ranks import report_traces

def progress(done, of):
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    time.sleep(600)

report_traces(sys.argv[1:], StepChoice(), progress)
"""


@pytest.mark.slow
def test_no_process_that_reads_traces_outlives_a_program_that_is_killed(tmp_path: Path) -> None:
    files = [str(written(tmp_path / f"{i}.json", planted("busy"))) for i in range(2)]
    command = [sys.executable, "-c", READS_AND_WAITS, *files]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        readers = [int(pid) for pid in program.stdout.readline().split()]
        program.kill()
    assert readers
    until(lambda: all(map(has_ended, readers)), 30.0)
