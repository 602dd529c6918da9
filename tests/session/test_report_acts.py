"""Reports that people act on: money and gain, folders, comparisons that fail a pipeline."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.config import ConfigError, load
from gputop.model.serving import ServerRow
from gputop.model.snapshot import (
    GpuSample,
    GpuStatic,
    Machine,
    ProcessSample,
    ProcessStatic,
    Snapshot,
)
from gputop.model.steps import StepRow
from gputop.output.comparison import compare
from gputop.output.comparison_document import (
    compare_data,
    compare_document,
    different_gpus,
    first_line,
)
from gputop.output.plain_document import plain
from gputop.output.report_document import money_line
from gputop.output.report_html import report_html
from gputop.output.report_text import report_data, report_markdown, report_text
from gputop.report.job_report import JobReport, report_recording, report_snapshots
from gputop.report.lanes import Pictured, pictured
from gputop.report.run_choice import reports_to_compare
from gputop.sources.simulation.simulated import SimulatedSource
from tests.support.kept import kept
from tests.support.recording_frames import recorded

NOW = 1_780_000_000.0
H100 = "NVIDIA H100 80GB HBM3"
GIB = 2.0**30


def moments(
    seconds: int = 700,
    *,
    util: float = 95.0,
    sm: float = 90.0,
    step_s: float | None = None,
    name: str = H100,
    gpus: int = 1,
    held_gib: float = 20.0,
    begin: float = NOW,
    dram: float = 20.0,
) -> list[Snapshot]:
    """A job that announces a step a second's worth of steps."""
    static = ProcessStatic(job_key="j")
    held = tuple(
        ProcessSample(100 + i, 1, gpu=i, gpu_mem_bytes=held_gib * GIB, static=static)
        for i in range(gpus)
    )
    found = []
    for k in range(seconds):
        cards = tuple(
            GpuSample(
                GpuStatic(i, f"GPU-{i}", name), util_pct=util, sm_active_pct=sm, sm_source="gpm", sm_window_s=1.0,
                tensor_active_pct=10.0, dram_active_pct=dram, power_w=500.0, mem_used_bytes=held_gib * GIB,
                mem_total_bytes=80 * GIB,
            )
            for i in range(gpus)
        )  # fmt: skip
        steps = () if step_s is None else (
            StepRow(100, 0, 0, "train", 10, 10 * step_s, step_s, step_s, step_s, step_s),
        )  # fmt: skip
        found.append(Snapshot(begin + k, Machine("node"), cards, held, steps=steps))
    return found


@cache
def job(seconds: int = 700, price: float | None = None, **more: Any) -> JobReport:
    """The report of such a job, judged once for all tests that ask for it."""
    return report_snapshots(moments(seconds, **more), price=price)


@pytest.fixture(scope="module")
def demo_shown() -> Pictured:
    """The demo's account with its picture."""
    source = SimulatedSource(None, clock=lambda: NOW, events_past=True)
    return kept("demo-pictured", lambda: pictured(list(source.past(700.0)), price=2.5))


@pytest.fixture(scope="module")
def demo(demo_shown: Pictured) -> JobReport:
    return demo_shown.report


# Comparisons


def test_the_first_line_of_a_comparison_is_what_became_of_the_step() -> None:
    before, after = job(120, step_s=0.0768), job(120, step_s=0.1169)
    assert first_line(compare(before, after)) == "slower: 76.8 → 116.9 ms a step (+52 %)"
    assert (
        plain(compare_document(compare(before, after))).splitlines()[0]
        == "slower: 76.8 → 116.9 ms a step (+52 %)"
    )
    assert first_line(compare(after, before)) == "faster: 116.9 → 76.8 ms a step (-34 %)"
    assert first_line(compare(before, before)) == "as fast: 76.8 → 76.8 ms a step (+0 %)"
    far = compare(job(120, step_s=0.9), job(120, step_s=2.0))
    assert first_line(far) == "slower: 900 ms → 2.00 s a step (+122 %)"
    data = compare_data(compare(before, after))
    assert data["slower_pct"] == pytest.approx(52.2, abs=0.1) and data["headline"].startswith(
        "slower"
    )


def test_different_gpus_are_said_before_the_table() -> None:
    before, after = job(60), job(60, name="NVIDIA A100-SXM4-80GB", gpus=2)
    said = f"different GPUs: 1 × {H100} before, 2 × NVIDIA A100-SXM4-80GB after"
    assert different_gpus(compare(before, after)) == said
    assert f"▲ {said}" in plain(compare_document(compare(before, after))).splitlines()[:4]
    assert different_gpus(compare(before, before)) == ""


def test_a_share_above_a_hundred_is_compared_as_it_is_shown() -> None:
    """Two counters read in a burst may give an efficiency of 150: it is no better than 100."""
    found = compare(job(60, util=90.0), job(60, util=60.0))
    (efficiency,) = [each for each in found.differences if each.key == "efficiency_pct"]
    assert (
        efficiency.later is not None and efficiency.later > 100.0 and efficiency.direction == "same"
    )


def test_a_pipeline_fails_on_a_slower_step_and_only_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fast = str(recorded(tmp_path / "a.jsonl", moments(60, step_s=0.100)))
    slow = str(recorded(tmp_path / "b.jsonl", moments(60, step_s=0.104)))
    silent = str(recorded(tmp_path / "c.jsonl", moments(60)))
    assert main(["compare", fast, slow, "--fail-on", "slower:5"]) == 0
    assert main(["compare", fast, slow, "--fail-on", "slower:3"]) == 1
    assert main(["compare", slow, fast, "--fail-on", "slower:0"]) == 0
    assert main(["compare", fast, fast, "--fail-on", "slower:0"]) == 0
    assert main(["compare", fast, slow, "--fail-on", "waste:5"]) == 0
    assert (
        main(
            [
                "compare",
                fast,
                slow,
                "--html",
                "--fail-on",
                "slower:3",
                "-o",
                str(tmp_path / "c.html"),
            ]
        )
        == 1
    )
    capsys.readouterr()
    assert main(["compare", fast, silent, "--fail-on", "slower:5"]) == 3
    assert "cannot be told without the step of both" in capsys.readouterr().err
    for wrong in ("slower", "slower:x", "slower:-1", "faster:5", "slower:inf", "slower:nan"):
        assert main(["compare", fast, slow, "--fail-on", wrong]) == 2
        assert "--fail-on must be slower:5" in capsys.readouterr().err


def test_a_pipeline_fails_on_more_lost_time_and_not_on_less(tmp_path: Path) -> None:
    busy = str(recorded(tmp_path / "a.jsonl", moments(60)))
    idle = str(recorded(tmp_path / "b.jsonl", moments(60, util=40.0, sm=35.0)))
    was, now = (report_recording(path).time.lost_share or 0.0 for path in (busy, idle))
    more = 100.0 * (now - was)
    assert more > 10.0
    assert main(["compare", busy, idle, "--fail-on", f"waste:{more - 1.0}"]) == 1
    assert main(["compare", busy, idle, "--fail-on", f"waste:{more + 1.0}"]) == 0
    assert main(["compare", idle, busy, "--fail-on", "waste:0"]) == 0
    assert main(["compare", idle, idle, "--fail-on", "waste:0"]) == 0


def several(*runs: tuple[str, float, int]) -> list[Snapshot]:
    """Jobs beside each other on one GPU, each with its name, its step and the second in which it begins."""
    rows = [
        (begin, StepRow(200 + i, 0, 0, name, 10, 10 * step_s, *[step_s] * 4, run=f"{i + 1:016x}"))
        for i, (name, step_s, begin) in enumerate(runs)
    ]
    return [
        replace(each, steps=tuple(row for begin, row in rows if second >= begin))
        for second, each in enumerate(moments(60))
    ]


def test_a_comparison_says_which_runs_it_is_about_and_asks_where_that_is_not_clear(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*words: str) -> tuple[int, str]:
        status = main(["compare", *words])
        out, err = capsys.readouterr()
        return status, out + err

    sweep = str(
        recorded(
            tmp_path / "sweep.jsonl",
            several(("s.py", 0.1, 0), ("s.py", 0.05, 10), ("t.py", 0.2, 20)),
        )
    )
    one = str(recorded(tmp_path / "one.jsonl", several(("s.py", 0.12, 0))))
    other = str(recorded(tmp_path / "other.jsonl", several(("t.py", 0.2, 0))))
    status, line = said(sweep, one)
    assert (
        status == 2
        and line.count("\n") == 1
        and "3 runs: s.py#1 (1 rank, 100 ms a step, from " in line
    )
    assert all(label in line for label in ("s.py#2", "t.py", "--run"))
    for labels, first in (
        (("s.py#2", "s.py"), "slower: 50.0 → 120.0 ms"),
        (("s.py#1", "s.py"), "slower: 100 → 120 ms"),
        (("t.py", "s.py"), "faster: 200 → 120 ms"),
    ):
        status, text = said(sweep, one, "--run", labels[0], "--run", labels[1])
        assert status == 0 and text.startswith(first) and f"before: {labels[0]}, 1 rank" in text, (
            text
        )
    assert said(sweep, sweep, "--run", "t.py")[1].startswith("as fast: 200 → 200 ms")
    assert said(sweep, one, "--run", "s.py")[0] == 2, "two runs before have that name"
    assert (
        "no announced steps"
        in said(sweep, str(recorded(tmp_path / "x.jsonl", moments(60))), "--run", "t.py")[1]
    )
    status, line = said(one, other)
    assert status == 2 and "two different jobs: s.py before, t.py after" in line
    assert (
        "--run s.py --run t.py" in line
        and said(one, other, "--run", "s.py", "--run", "t.py")[0] == 0
    )
    assert said(one, one, *["--run", "s.py"] * 3)[0] == 2
    silent = replace(report_recording(sweep), run="ff")
    assert [report.steps for report in reports_to_compare(silent, silent)] == [(), ()], (
        "steps of others are not its own"
    )
    text = report_text(report_recording(sweep))
    assert (
        "Steps (s.py#2): " in text
        and "on GPU 0" in text
        and text.index("s.py#1") < text.index("t.py")
    )


def test_what_a_server_served_is_compared_and_a_longer_queue_is_worse() -> None:
    def of(queue: float, *places: str) -> JobReport:
        rows = tuple(
            ServerRow(place, "vllm", 30.0, 10.0, 1000.0 - 50.0 * queue, queue=queue)
            for place in places
        )
        return report_snapshots(replace(each, servers=rows) for each in moments(60))

    found = {d.key: d for d in compare(of(1.0, "h:1"), of(4.0, "h:1")).differences}
    assert (found["server_queue"].direction, found["server_tokens_per_s"].direction) == (
        "worse",
        "changed",
    )
    assert found["server_requests_per_s"].direction == "same"
    assert "served tokens 1/s" in plain(compare_document(compare(of(1.0, "h:1"), of(4.0, "h:1"))))
    two = {d.key: d for d in compare(of(1.0, "h:1"), of(4.0, "h:1", "h:2")).differences}
    assert two["server_queue"].direction == "unknown", "of two servers it is nobody's"


# Money and gain


def test_money_has_a_rate_a_day_and_names_what_was_not_judged(demo: JobReport) -> None:
    time = demo.time
    lost, unjudged = time.cost(time.lost_s), time.cost(time.unjudged_s)
    assert lost is not None and unjudged is not None and unjudged > 0.0, (
        "time that is not judged is paid for, too"
    )
    assert sum(row.cost or 0.0 for row in time.rows()) == pytest.approx(2.5 * time.all_s / 3600)
    assert f"{lost * 86400 / demo.duration_s:.2f} a day at this rate" in money_line(demo)
    assert "not judged: " in money_line(demo) and "at 2.5 a GPU-hour" in money_line(demo)
    short = job(300, 2.5, util=30.0)
    assert "a day" not in money_line(short), "five minutes say nothing of a day"
    assert money_line(job(60)) == ""


def test_fixes_stand_by_what_they_would_win_and_none_below_a_twentieth(demo: JobReport) -> None:
    fixes = demo.fixes()
    gains = [fix.gain_s for fix in fixes]
    assert gains == sorted(gains, reverse=True) and len(fixes) >= 3
    assert all(fix.share >= 0.05 for fix in fixes)
    assert sum(gains) <= demo.time.lost_s + 1e-6
    assert fixes[0].money == pytest.approx(2.5 * fixes[0].gain_s / 3600)
    assert fixes[0].day == pytest.approx(fixes[0].money * 86400 / demo.duration_s)  # type: ignore[operator]
    for text in (report_text(demo), report_markdown(demo).replace("\\", "")):
        (_, _, changes) = text.partition("What to change, by what it would win at most")
        told = [changes.index(fix.text) for fix in fixes]
        assert told == sorted(told) and f"{100 * fixes[0].share:.0f} %" in changes
    assert [fix["remedy"] for fix in report_data(demo)["fixes"]] == [fix.remedy for fix in fixes]


def test_a_starved_gpu_wins_the_time_without_a_kernel_and_not_more() -> None:
    """Idle for 60 %: nobody can win the 40 % in which kernels ran."""
    report = job(150, util=40.0, sm=36.0)
    starved = [finding for finding in report.findings if finding.kind == "verdict"]
    assert starved and starved[0].gain_s == pytest.approx(0.6 * starved[0].seconds, rel=0.02)


def test_a_healthy_job_has_nothing_to_change() -> None:
    report = job(700)
    assert report.fixes() == () and "What to change" not in report_text(report)


# Prices


def test_a_price_is_a_number_wherever_it_is_set(tmp_path: Path) -> None:
    assert load(None, {"XDG_CONFIG_HOME": str(tmp_path)}, {"price": "2.5"})[0].price == 2.5
    for wrong in ("cheap", "list", "-1", "nan", "inf", "2e6", ""):
        with pytest.raises(ConfigError, match=r"price must be (from 0 to 1,000,000|a number)"):
            load(None, {"XDG_CONFIG_HOME": str(tmp_path)}, {"price": wrong})


# Short recordings and units


def test_a_recording_of_a_second_is_too_short_and_not_without_fault(tmp_path: Path) -> None:
    report = job(2, sm=8.0)
    for text in (report_text(report), report_markdown(report)):
        assert (
            "too short to judge: 2 samples in 1 s" in text.lower()
            and "nothing wrong" not in text.lower()
        )
    assert "too short to judge" in report_html(pictured(moments(2, sm=8.0)))
    assert report_data(report)["too_short"].startswith("too short to judge")
    assert job(120).too_short == "" and "nothing wrong was seen" in report_text(job(120))


# The page


# Folders


def test_a_folder_with_one_rotating_recording_is_reported_and_several_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for hour in range(2):
        begin = NOW + 3600 * hour
        recorded(
            tmp_path / f"node-2026052{hour}T000000Z-77.gputop.jsonl.gz", moments(60, begin=begin)
        )
    assert main(["report", str(tmp_path)]) == 0
    assert "of judged time" in capsys.readouterr().out, "the files of one process are one recording"
    recorded(tmp_path / "node-20260522T000000Z-78.gputop.jsonl.gz", moments(30))
    assert main(["report", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "2 recordings: name one file, or compare them: gputop compare A B …" in line
    assert main(["report", str(tmp_path / "absent")]) == 2


def test_a_gpu_that_waits_for_demand_has_nothing_to_fix_and_no_gain_exceeds_what_was_lost() -> None:
    source = SimulatedSource("useful_work", clock=lambda: NOW, events_past=True)
    report = report_snapshots(source.past(300.0), price=2.5)
    assert report.fixes() == () and any(finding.id == "low_demand" for finding in report.findings)
    (waiting,) = [finding for finding in report.findings if finding.id == "low_demand"]
    assert waiting.gain_s <= report.time.lost_s + 1e-6
