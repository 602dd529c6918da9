"""The report lists GPU processes, and says when waste lasted longest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.api.watch_cost import memory_of
from gputop.cli import main
from gputop.model.snapshot import ProcessSample, ProcessStatic, Snapshot
from gputop.monitor import Monitor
from gputop.output.plain_document import plain
from gputop.output.report_document import report_document
from gputop.output.report_text import report_data
from gputop.report import process_account
from gputop.report.job_report import ReportBuilder
from tests.session.test_report_acts import NOW, moments
from tests.support.recording_frames import recorded

GIB = 2.0**30


def with_processes(seconds: int = 60) -> list[Snapshot]:
    """A trainer for all of the time, an evaluation for its last third, and a loader that is no GPU process."""
    trainer, evaluation = (
        ProcessStatic("ml", f"python {name} --lr 1", "python", job_key=name)
        for name in ("train.py", "eval.py")
    )
    found = []
    for k, snapshot in enumerate(moments(seconds, sm=8.0)):
        memory = 30.0 if k == 20 else 10.0
        rows = [
            ProcessSample(100, 1, gpu=0, gpu_mem_bytes=memory * GIB, static=trainer),
            ProcessSample(101, 1, ppid=100, role="loader", gpu=0, static=trainer),
        ]
        if 3 * k >= 2 * seconds:
            rows.append(ProcessSample(200, 9, gpu=0, gpu_mem_bytes=2 * GIB, static=evaluation))
        found.append(replace(snapshot, processes=tuple(rows)))
    return found


def report(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(["report", *words]) == 0
    return capsys.readouterr().out


def test_each_form_of_the_report_lists_processes_with_peak_and_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(recorded(tmp_path / "r.jsonl", with_processes()))
    data = json.loads(report(capsys, file, "--json"))
    trainer, evaluation = data["processes"]
    assert (trainer["pid"], trainer["gpu"], trainer["user"]) == (100, 0, "ml")
    assert trainer["memory_peak_bytes"] == 30 * GIB and trainer["seconds"] == 59
    assert trainer["command"] == "python train.py --lr 1"
    assert (evaluation["pid"], evaluation["seconds"]) == (200, 20)
    assert data["more_processes"] == 0
    text = report(capsys, file)
    lines = [line.split() for line in text.splitlines()]
    assert ["0", "100", "ml", "30.0", "GiB", "59", "s", "python", "train.py", "--lr", "1"] in lines
    assert ["0", "200", "ml", "2.0", "GiB", "20", "s", "python", "eval.py", "--lr", "1"] in lines
    page = report(capsys, file, "--html")
    assert "eval.py --lr 1" in page and "MEM PEAK" in page


def test_processes_beyond_the_limit_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_account, "MOST_PROCESSES", 1)
    file = str(recorded(tmp_path / "r.jsonl", with_processes()))
    data = json.loads(report(capsys, file, "--json"))
    assert [row["pid"] for row in data["processes"]] == [100] and data["more_processes"] == 1
    assert "and 1 more" in report(capsys, file)


def test_the_longest_steady_waste_has_its_begin_and_length(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    working, wasting = moments(260), moments(260, sm=8.0)
    found = wasting[:60] + working[60:120] + wasting[120:240] + working[240:]
    file = str(recorded(tmp_path / "r.jsonl", found))
    longest = json.loads(report(capsys, file, "--json"))["longest_waste"]
    assert longest["gpu"] == 0 and longest["id"].startswith("small_kernels")
    assert longest["begin"] == pytest.approx(NOW + 120, abs=40)
    assert longest["seconds"] == pytest.approx(120, abs=40)
    assert "Longest steady waste: GPU 0, busy, not working: small kernels" in report(capsys, file)
    healthy = str(recorded(tmp_path / "h.jsonl", working))
    assert json.loads(report(capsys, healthy, "--json"))["longest_waste"] is None
    assert "Longest" not in report(capsys, healthy)


def growing(per_minute: float, minutes: int = 20) -> list[Snapshot]:
    """A job whose memory grows steadily, seen every 20 s."""
    found = []
    static = ProcessStatic("ml", "python train.py", "python")
    for k, snapshot in enumerate(moments(3 * minutes, sm=60.0)):
        held = 20 * GIB + per_minute * k / 3.0
        gpus = [
            replace(gpu, mem_used_bytes=held, mem_total_bytes=80 * GIB) for gpu in snapshot.gpus
        ]
        rows = (ProcessSample(100, 1, gpu=0, gpu_mem_bytes=held, static=static),)
        found.append(
            replace(snapshot, t=NOW + 20.0 * k, interval_s=20.0, gpus=tuple(gpus), processes=rows)
        )
    return found


def test_the_summary_of_a_run_tells_growing_memory_and_when_it_is_full() -> None:
    reports = []
    for per_minute in (500e6, 0.0):
        monitor, builder = Monitor(20.0, charts=False), ReportBuilder()
        for snapshot in growing(per_minute):
            builder.add(monitor.feed(snapshot))
        reports.append(builder.report())
    grows, steady = reports
    (text, calm) = (plain(report_document(each)) for each in reports)
    growth = grows.gpus[0].memory_growth
    assert growth is not None and growth.bytes_per_min == pytest.approx(500e6, rel=0.01)
    assert growth.full_in_s == pytest.approx((60 * GIB - 500e6 * 19.7) / 500e6 * 60.0, rel=0.02)
    words = " ".join(text.split())
    assert "the memory of python (pid 100) grows by 500 MB a minute, full in 109 min" in words
    assert report_data(grows)["gpus"][0]["memory_growth"]["pid"] == 100
    (own,) = memory_of(grows)
    assert own.text.endswith("; it grows by 500 MB a minute, full in 109 min")
    assert steady.gpus[0].memory_growth is None and "grows" not in calm
    assert "grows" not in memory_of(steady)[0].text
