"""The analysis of a trace against a timeline with one cell a microsecond, and its parts at their edges."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from gputop.features.traces.chrome import read_chrome
from gputop.features.traces.columns import TraceError
from gputop.features.traces.host_causes import CAUSES
from gputop.features.traces.trace_analysis import analyse
from tests.features.traces.conftest import Judge
from tests.support.command import trace_said
from tests.support.spoiled import checked_page
from tests.support.synthetic_trace import TraceMaker, planted, written

# --- the oracle -----------------------------------------------------------------------------------------------------


def random_job(seed: int) -> TraceMaker:
    """A job without steps on two streams, with everything that a host can do before a launch."""
    draw = random.Random(seed)
    maker = TraceMaker()
    maker.launch("gemm", 50)
    free = {7: maker.free, 20: 0}
    for _ in range(draw.randrange(20, 60)):
        what = draw.random()
        if what < 0.15:
            end = maker.t + draw.randrange(5, 300)
            maker.span(
                "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
                maker.t,
                end,
                "user_annotation",
            )
            maker.t = end
        elif what < 0.25:
            end = maker.t + draw.randrange(5, 200)
            maker.call("cudaMalloc", maker.t, end)
            maker.t = end
        elif what < 0.4:
            maker.free = max(free.values())
            maker.wait("aten::item" if draw.random() < 0.5 else None)
        if draw.random() < 0.1:
            maker.t += draw.choice((draw.randrange(900, 1_200), draw.randrange(4_900, 5_300)))
        maker.t += draw.randrange(0, 60)
        stream = draw.choice((7, 20))
        maker.free = free[stream]
        name, cat = draw.choice(
            (
                ("gemm", "kernel"),
                ("ncclKernel_AllReduce", "kernel"),
                ("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy"),
            )
        )
        more: dict[str, Any] = {}
        if draw.random() < 0.1:
            more = {
                "inside": draw.choice((30, 999, 1000, 2500)),
                "latency": draw.choice((5, 40, 200, 2600)),
            }
        maker.launch(
            name,
            draw.randrange(1, 150),
            cat=cat,
            blocks=draw.choice((0.25, 0.5, 2.0)),
            stream=stream,
            **more,
        )
        free[stream] = maker.free
    return maker


def brute_force(events: list[dict[str, Any]]) -> dict[str, float]:
    """Everything by cells of one microsecond, straight from the definitions."""
    gpu = sorted((e for e in events if e["cat"] in ("kernel", "gpu_memcpy")), key=lambda e: e["ts"])
    calls = [e for e in events if e["cat"] == "cuda_runtime"]
    launch = {e["args"]["correlation"]: e for e in calls if "correlation" in e["args"]}
    begin, end = gpu[0]["ts"], max(e["ts"] + e["dur"] for e in gpu)
    cells = range(begin, end)

    def during(chosen: list[dict[str, Any]]) -> set[int]:
        return {t for e in chosen for t in range(e["ts"], e["ts"] + e["dur"])}

    comm = during([e for e in gpu if e["name"].startswith("nccl")])
    compute = during([e for e in gpu if e["name"] == "gemm"])
    copy = during([e for e in gpu if e["cat"] == "gpu_memcpy"])
    data = during([e for e in events if "DataLoader" in e["name"]])
    allocating = during([e for e in calls if e["name"] == "cudaMalloc"])
    syncs = [e for e in calls if e["name"] == "cudaStreamSynchronize"]
    result = dict.fromkeys(("compute", "comm_exposed", "copy_exposed", "idle", *CAUSES), 0.0)
    sm = dict.fromkeys(cells, 0.0)
    for e in gpu:
        if e["cat"] == "kernel":
            for t in range(e["ts"], e["ts"] + e["dur"]):
                sm[t] += min(1.0, e["args"]["blocks per SM"])
    for t in cells:
        kinds = [t in compute, t in comm, t in copy]
        result[
            ("compute", "comm_exposed", "copy_exposed", "idle")[
                kinds.index(True) if any(kinds) else 3
            ]
        ] += 1
    busy = compute | comm | copy
    for first in (t for t in cells if t not in busy and t - 1 in busy):
        after = next(e for e in gpu if e["ts"] > first)
        call = launch[after["args"]["correlation"]]
        # How long the host made no call counts, also before the gap.
        quiet_since = max(
            (e["ts"] + e["dur"] for e in calls if e["ts"] < call["ts"]), default=first
        )
        quiet = sum(t not in data and t not in allocating for t in range(quiet_since, call["ts"]))
        synced = any(e["ts"] < first <= e["ts"] + e["dur"] + 2 for e in syncs)
        for t in range(first, after["ts"]):
            cause = at_launch(t, first, after, call)
            if cause == "host":
                doing = "data" if t in data else "allocator" if t in allocating else ""
                works = quiet >= (5_000 if synced else 1_000)
                cause = doing or ("host_work" if works else "after_sync" if synced else "launching")
            result[cause] += 1
    working = sum(min(1.0, share) for share in sm.values())
    return {name: 100.0 * spent / len(cells) for name, spent in (*result.items(), ("sm", working))}


def at_launch(t: int, first: int, after: dict[str, Any], call: dict[str, Any]) -> str:
    """The cause of an idle microsecond from the launch on, or "host" before it."""
    launched, returned = call["ts"], call["ts"] + call["dur"]
    if launched > first and t < launched:
        return "host"
    kernel = after["cat"] == "kernel"
    inside = min(returned, after["ts"]) - max(first, launched)
    if launched <= first and (not kernel or inside < 30):
        return "kernel_gap" if after["ts"] - first < 30 else "dependency"
    if t < returned and (inside < 1_000 or kernel):
        return "launch_latency" if inside < 1_000 else "module_load"
    # A copy that waits in its call began to wait when it was called.
    begun = max(first, launched, returned) if inside < 1_000 or kernel else max(first, launched)
    return "launch_latency" if t < begun + 50 else "dependency"


@pytest.mark.parametrize("seed", range(25))
def test_shares_causes_and_the_sm_bound_are_those_of_a_timeline_of_microseconds(
    seed: int, judge: Judge
) -> None:
    maker = random_job(seed)
    m = judge(maker).measures
    right = brute_force(maker.events)
    for name, share in {**m.share_pct, **m.idle_cause_pct, "sm": m.sm_high_pct}.items():
        assert share == pytest.approx(right[name], abs=1e-6), name
    assert sum(m.share_pct.values()) == pytest.approx(100.0)
    assert sum(m.idle_cause_pct.values()) == pytest.approx(m.share_pct["idle"])


# --- steps ----------------------------------------------------------------------------------------------------------


def test_steps_tile_the_window_and_a_chosen_part_of_them_is_analysed_alone(judge: Judge) -> None:
    document = planted("single_process", steps=6)
    whole = judge(document).measures
    assert [row.step for row in whole.steps_table] == [f"#{n}" for n in range(6)]
    assert sum(row.ms for row in whole.steps_table) == pytest.approx(whole.window_ms)
    assert whole.steps_table[0].flag == "first"
    part = judge(document, first=2, last=3).measures
    assert [row.step for row in part.steps_table] == ["#2", "#3"]
    assert part.window_ms == pytest.approx(sum(row.ms for row in whole.steps_table[2:4]))
    with pytest.raises(TraceError, match=r"no step 7–9: it has 0–5"):
        judge(document, first=7, last=9)


def test_a_step_over_twice_the_median_is_flagged(judge: Judge) -> None:
    maker = TraceMaker()
    for step in maker.steps(5):
        maker.launch(length=500 if step == 3 else 100)
        maker.wait()
    assert [row.flag for row in judge(maker).measures.steps_table] == [
        "first",
        None,
        None,
        "slow",
        None,
    ]


def test_steps_can_be_named_ranges_and_a_wrong_name_lists_those_there_are(judge: Judge) -> None:
    maker = TraceMaker()
    for _ in maker.steps(3, "train"):
        maker.launch(length=100)
        maker.wait()
    document = maker.document()
    assert judge(document).measures.steps_table == ()
    assert len(judge(document, "train").measures.steps_table) == 3
    with pytest.raises(TraceError, match="no range called 'tran'; it has 'train'"):
        judge(document, "tran")


def test_a_wait_for_work_from_before_the_trace_is_unknown_and_not_idle_by_the_host(
    judge: Judge,
) -> None:
    maker = TraceMaker()
    begin = maker.t
    maker.call("cudaStreamSynchronize", begin, begin + 500)
    maker.t += 600
    maker.launch(length=1000)
    maker.span("ProfilerStep#3", begin, maker.t, "user_annotation")
    m = judge(maker).measures
    assert m.idle_cause_pct["unknown"] / 100.0 * m.window_ms == pytest.approx(0.5)
    assert m.idle_cause_pct["launching"] / 100.0 * m.window_ms == pytest.approx(0.101)


# --- what else is shown ---------------------------------------------------------------------------------------------


def test_underneath_names_the_deepest_thing_open_and_never_the_step(judge: Judge) -> None:
    m = judge(planted("single_process")).measures
    names = {row.name: row.pct for row in m.under}
    assert [row.name for row in m.under[:2]] == [
        "aten::stack",
        "_SingleProcessDataLoaderIter.__next__",
    ]
    assert not any(name.startswith("ProfilerStep") for name in names)
    assert names["aten::stack"] == pytest.approx(25.0, abs=0.5)


def test_only_waits_with_idle_time_after_them_cost_anything(judge: Judge) -> None:
    (row,) = judge(planted("sync_points")).measures.syncs
    assert row.op == "aten::item" and row.idle_after_ms > 40.0
    maker = TraceMaker()
    maker.launch(length=500)
    maker.launch(length=500)
    begin = maker.t
    maker.call("cudaStreamSynchronize", begin, begin + 400)
    maker.t = begin + 410
    maker.launch(length=500)
    (harmless,) = judge(maker).measures.syncs
    assert (harmless.host_ms, harmless.idle_after_ms) == (pytest.approx(0.4), 0.0)


def test_overlap_is_the_part_of_communication_that_runs_beside_compute(judge: Judge) -> None:
    maker = TraceMaker()
    maker.work("gemm", 2000, 1000, 1)
    maker.work("vllm::multimem_all_reduce_kernel<bf16>(void*)", 2750, 500, 2, stream=20)
    m = judge(maker).measures
    assert m.overlap_pct == pytest.approx(50.0)
    assert m.share_pct["comm_exposed"] == pytest.approx(20.0)


def test_two_gpus_in_one_file_are_two_reports(tmp_path: Path) -> None:
    first, second = planted("busy"), planted("launch_bound", device=1)
    first["traceEvents"] += [
        e for e in second["traceEvents"] if not e["name"].startswith("ProfilerStep")
    ]
    reports = analyse(read_chrome(str(written(tmp_path / "t.json", first))))
    assert [gpu.measures.index for gpu in reports] == [0, 1]
    assert (
        reports[0].measures.share_pct["idle"] < 1.0 < 50.0 < reports[1].measures.share_pct["idle"]
    )


def test_occupancy_is_of_the_kernels_time_and_by_kernel(judge: Judge) -> None:
    maker = TraceMaker()
    for number, (name, length, pct) in enumerate(
        (("a", 3000, 20), ("b", 1000, 60), ("a", 2000, 50))
    ):
        maker.work(name, 2000 + 5000 * number, length, number + 1)
        maker.events[-1]["args"]["est. achieved occupancy %"] = pct
    m = judge(maker).measures
    assert m.occupancy_pct == pytest.approx(220.0 / 6.0)
    assert {row.name: row.occupancy_pct for row in m.kernels} == {"a": 32.0, "b": 60.0}


@pytest.mark.parametrize("estimate", [0, -7, 101, 1e300, "much", None])
def test_an_occupancy_that_was_not_estimated_is_not_shown(estimate: object, judge: Judge) -> None:
    maker = TraceMaker()
    maker.work("sm90_xmma_gemm", 2000, 1000, 1)
    maker.events[-1]["args"]["est. achieved occupancy %"] = estimate
    m = judge(maker).measures
    assert m.occupancy_pct is None and m.kernels[0].occupancy_pct is None


def test_the_longest_idle_times_stand_with_their_moment_cause_and_what_the_host_was_in(
    judge: Judge, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = planted("single_process")
    gaps = judge(document).measures.gaps
    assert len(gaps) == 6 and [gap.ms for gap in gaps] == sorted((g.ms for g in gaps), reverse=True)
    longest = gaps[0]
    assert (longest.ms, longest.cause) == (pytest.approx(8.0, abs=0.1), "data")
    assert (longest.under[0].name, longest.under[0].pct) == (
        "aten::stack",
        pytest.approx(62.0, abs=1.0),
    )
    path = str(written(tmp_path / "t.json", document))
    _, text = trace_said(capsys, path)
    rows = text.split("The longest idle times\n")[1].split("\n\n")[0].splitlines()
    assert len(rows) == 6
    assert all("data loading" in row and "aten::stack 62 %" in row for row in rows[1:])
    _, page = trace_said(capsys, path, "--html")
    words = checked_page(page)
    assert "The longest idle times" in words and 'class="strip"' in page
    (rank,) = json.loads(trace_said(capsys, path, "--json")[1])["ranks"]
    first = rank["gpus"][0]["gaps"][0]
    assert first["cause"] == "data" and first["ms"] == pytest.approx(longest.ms, abs=0.001)


def test_of_many_idle_times_the_longest_are_kept_wherever_they_lie(judge: Judge) -> None:
    maker = TraceMaker()
    lengths = [100 + (number * 37) % 101 for number in range(101)]
    for length in lengths:
        maker.launch(length=100)
        maker.t = maker.free + length
    found = [round(1000.0 * gap.ms) for gap in judge(maker).measures.gaps]
    assert found == sorted((length + 6 for length in lengths[:-1]), reverse=True)[:12]
