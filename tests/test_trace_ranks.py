"""`gputop trace` on a folder of ranks: who makes the others wait, and what is left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import trace_said
from tests.support.synthetic_trace import TraceMaker, planted, written


def ranks(tmp_path: Path, durations: dict[int, int], *, calls: int = 20) -> str:
    """A folder with a rank a file. In each step a rank computes so long, and the collective ends for all together."""
    longest = max(durations.values())
    for rank, compute in durations.items():
        maker = TraceMaker()
        for step in range(calls if rank else 20):
            begin = maker.t
            maker.free = max(maker.free, maker.t + 10)
            maker.launch("gemm", compute)
            said = {"Collective name": "allreduce", "Process Group Name": "0", "Seq": step}
            # Another clock on each host: nothing may depend on it.
            maker.launch("ncclDevKernel_AllReduce", longest - compute + 100, **said)
            maker.t = maker.free - 5
            maker.span(f"ProfilerStep#{step}", begin, maker.t, "user_annotation")
        for event in maker.events:
            event["ts"] += 777 * rank
        written(tmp_path / f"rank{rank}.json", maker.document(distributedInfo={"rank": rank, "world_size": 4}))
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
    assert text.index("rank2.json   ") > text.index("rank 2 is slower")
    straggler = json.loads(trace_said(capsys, folder, "--json")[1])["straggler"]
    assert (straggler["rank"], straggler["kind"], straggler["more"]) == (2, "slow", "compute")
    assert "rank1.json   " in trace_said(capsys, folder, "--ranks", "1")[1]


def test_equal_ranks_have_no_straggler_and_unequal_steps_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    data = json.loads(trace_said(capsys, ranks(tmp_path / "a", {0: 1000, 1: 1010, 2: 1000}), "--json")[1])
    assert data["straggler"] is None and data["notes"] == []
    text = trace_said(capsys, ranks(tmp_path / "b", {0: 1000, 1: 1400}, calls=18))[1]
    assert "do not hold the same steps" in text and "is slower" not in text


def test_a_file_of_a_folder_that_is_no_trace_is_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "rank0.json", planted("busy"))
    (tmp_path / "settings.json").write_text("{}")
    status, text = trace_said(capsys, str(tmp_path))
    assert status == 0 and "left out" in text and "settings.json" in text
