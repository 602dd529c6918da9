"""Announced steps travel from job to listener, through a recording, to the screen and into reports."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gputop.model.redaction import Redactor
from gputop.model.snapshot import Event, GpuSample, GpuStatic, Machine, ProcessSample, Snapshot
from gputop.model.step_pace import StepHistory
from gputop.model.steps import StepRow, step_row
from gputop.monitor import Monitor
from gputop.output.comparison import compare
from gputop.output.comparison_document import compare_data, verdict_line
from gputop.output.report_text import report_data, report_text
from gputop.paint.step_words import step_words
from gputop.report.job_report import JobReport, report_snapshots
from gputop.sources import marks
from gputop.sources.marks import MarkListener, send_mark
from gputop.sources.step_datagrams import MOST_AT_ONCE, MOST_SENDERS, REFILL_S, StepIntake, datagram
from gputop.sources.step_socket import StepListener, StepSender
from tests.support.examples import any_text, looks
from tests.support.recording_frames import lines_of, read_back, read_lines, rounded

NOW = 1_780_000_000.0


def row(pid: int = 100, step_s: float = 0.4, count: int = 3, **given: object) -> StepRow:
    times = (round(factor * step_s, 6) for factor in (count, 0.98, 1.02, 1.0, 1.01))
    made = StepRow(pid, 0, None, "train", count, *times)
    return replace(made, **given)


def snapshot(t: float, *rows: StepRow, pids: tuple[int, ...] = (100,)) -> Snapshot:
    gpus = tuple(
        GpuSample(
            GpuStatic(i, f"GPU-{i}", "X"),
            util_pct=95.0,
            sm_active_pct=80.0,
            sm_source="gpm",
            sm_window_s=1.0,
        )
        for i in range(len(pids))
    )
    holders = tuple(
        ProcessSample(pid, starttime=1, role="gpu", gpu=i) for i, pid in enumerate(pids)
    )
    return Snapshot(t, Machine("host"), gpus, holders, steps=rows)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(marks, "runtime_directories", lambda: [str(tmp_path / "private")])
    return str(tmp_path / "steps.sock")


def test_steps_and_marks_share_the_users_socket_and_the_kernel_says_who_sends(place: str) -> None:
    listener, sender = MarkListener(lambda: NOW), StepSender(place)
    assert sender.send(row(pid=1)) == 1
    assert send_mark("epoch 1", NOW).reached == 1
    assert listener.drain() == [Event(NOW, "mark", "epoch 1")]
    assert listener.steps() == (row(pid=os.getpid()),)
    assert listener.steps() == ()
    listener.close()
    assert sender.send(row()) == 0
    sender.close()


def test_an_exporters_socket_takes_the_steps_of_any_user_and_is_made_again_after_a_kill(
    place: str,
) -> None:
    listener = StepListener(place)
    assert os.stat(place).st_mode & 0o777 == 0o666
    with pytest.raises(OSError, match="another exporter"):
        StepListener(place)
    sender = StepSender(place)
    assert sender.send(row()) == 1
    assert listener.drain() == (row(pid=os.getpid()),)
    # As SIGKILL leaves it: the socket stays where it was.
    listener._emptier.close()
    listener._socket.close()
    again = StepListener(place)
    assert sender.send(row()) == 1
    again.close()
    assert not os.path.exists(place)


def test_what_cannot_be_true_or_comes_too_often_is_dropped_and_counted() -> None:
    now = [0.0]
    intake = StepIntake(lambda: now[0])
    good = datagram(row())
    given = json.loads(good)
    bad = [
        b"", b"{", b"[]", b'{"k":"steps"}', good + b" " * 1024, datagram(row(count=0)), datagram(row(max_s=1e9)),
        json.dumps({**given, "sum": 99.0}).encode(), json.dumps({**given, "name": 7}).encode(),
        json.dumps({**given, "rank": -1}).encode(), json.dumps({**given, "n": True}).encode(),
        json.dumps({**given, "p50": "x"}).encode(), good.replace(b'"sum":1.2', b'"sum":NaN'),
        b'{"k":"steps","rank":' + b"[" * 400 + b"}",
    ]  # fmt: skip
    assert [intake.accept(data, 7) for data in bad] == [False] * len(bad)
    assert not intake.accept(good, 0), "a process of another PID namespace is nobody"
    assert [intake.accept(good, 7) for _ in range(MOST_AT_ONCE + 1)] == [True] * MOST_AT_ONCE + [
        False
    ]
    now[0] += REFILL_S
    assert intake.accept(good, 7)
    assert sum(intake.accept(good, 1000 + i) for i in range(MOST_SENDERS + 5)) == MOST_SENDERS - 1
    now[0] += 61.0
    assert intake.accept(good, 5000), "who is silent makes room"


@looks(30)
@given(
    st.lists(
        st.one_of(st.none(), st.integers(), st.floats(), any_text(40), st.booleans()),
        min_size=10,
        max_size=10,
    )
)
def test_whatever_a_row_claims_it_is_checked(values: list[object]) -> None:
    made = step_row(values)
    if made is not None:
        assert made.count >= 1 and 0.0 <= made.min_s <= made.max_s * 1.01 and len(made.name) <= 64


def test_a_rank_that_the_others_wait_for_is_found_by_its_own_time_where_each_says_how_long_it_waited() -> (
    None
):
    # Three synchronous ranks: every step takes 0.4 s, and all but rank 1 wait for 0.1 s of it.
    rows = [row(100 + i, rank=i, wait_s=0.06 if i == 1 else 0.3) for i in range(3)]
    intake = StepIntake()
    assert intake.accept(datagram(rows[1]), 101) and intake.drain() == (rows[1],)
    for wrong in (-0.1, 1.3, True, "x"):
        assert not intake.accept(datagram(replace(rows[0], wait_s=wrong)), 100), (
            "nobody waits for more than all steps"
        )
    rows = [replace(each, run="ab") for each in rows]
    taken = snapshot(NOW, *rows, pids=(100, 101, 102))
    (back,) = read_back(taken)
    assert back.steps == taken.steps
    frame = Monitor().feed(taken)
    assert [pace.own_s for pace in frame.steps] == pytest.approx([0.3, 0.38, 0.3])
    words = [step_words(frame, gpu) for gpu in frame.snapshot.gpus]
    assert ["slowest" in each for each in words] == [False, True, False], words
    # Who waits for batches of its own makes the others wait: that is no wait for others.
    fed = snapshot(
        NOW, *[replace(each, wait_s=None, data_wait_s=0.3 * i) for i, each in enumerate(rows)]
    )
    assert [pace.own_s for pace in Monitor().feed(fed).steps] == [None, None, None]
    alone = replace(fed.steps[2], run=None)
    assert intake.accept(datagram(alone), 102) and intake.drain() == (alone,)
    # One that does not say it cannot be compared: then whole steps are, which are equal.
    silent = snapshot(NOW, replace(rows[0], wait_s=None), *rows[1:], pids=(100, 101, 102))
    frame = Monitor().feed(silent)
    assert not any("slowest" in step_words(frame, gpu) for gpu in frame.snapshot.gpus)


def test_a_recording_keeps_steps_exactly_and_skips_those_that_cannot_be() -> None:
    taken = snapshot(NOW, row(step_s=0.412345, name="übung"), row(101))
    assert rounded(taken).steps == taken.steps
    assert [each.steps for each in read_back(taken, snapshot(NOW + 1))] == [taken.steps, ()]
    impossible = replace(taken, t=NOW + 2, steps=(replace(taken.steps[0], sum_s=99.0),))
    found, decoder = read_lines(lines_of(taken, impossible))
    assert len(found) == decoder.damaged == 1
    shared = Redactor().snapshot(taken)
    assert [r.name for r in shared.steps] == ["run1", "run2"]


def test_the_pace_is_the_mean_of_a_minute_with_its_error_and_ends_with_the_job() -> None:
    history = StepHistory()
    for s in range(100):
        history.observe(NOW + s, [row(step_s=0.3 if s < 40 else 0.4 if s % 2 else 0.5)])
    (pace,) = history.paces(NOW + 99)
    assert pace.mean_s == pytest.approx(0.45)
    assert pace.steps_per_s == pytest.approx(1 / 0.45)
    # 60 means with a standard deviation of 0.05: 1.96 · 0.05 / √60 of 0.45.
    assert pace.error_pct == pytest.approx(100 * 1.96 * 0.05 / 60**0.5 / 0.45, rel=0.02)
    history.observe(NOW + 125, [])
    assert history.paces(NOW + 125)
    history.observe(NOW + 131, [])
    assert history.paces(NOW + 131) == ()


def _report(build: Callable[[int], StepRow], seconds: int = 60) -> JobReport:
    return report_snapshots(snapshot(NOW + s, build(s)) for s in range(seconds))


def test_reports_say_what_a_fix_brought_in_steps_without_the_warm_up() -> None:
    before = _report(lambda s: row(step_s=4.0 if s < 2 else 0.4))
    after = _report(lambda s: row(step_s=0.32))
    (run,) = before.steps
    assert (run.steps, run.warm_up_steps, run.max_s) == (174, 6, pytest.approx(0.408))
    assert run.mean_s == pytest.approx(0.4)
    assert (
        "Steps (train): 174, 400 ms each, 2.5 steps/s; 6 steps of warm-up left out"
        in report_text(before)
    )
    assert report_data(before)["steps"][0]["steps_per_s"] == pytest.approx(2.5)
    both = compare(before, after)
    assert verdict_line(both).endswith(" 3.1 steps/s, 2.5 before (+25 %).")
    entry = next(d for d in compare_data(both)["differences"] if d["key"] == "steps_per_s")
    assert entry["direction"] == "better" and entry["change"] == pytest.approx(0.625)
    without = _report(lambda s: row(step_s=0.4), seconds=1)
    assert "steps/s" not in verdict_line(compare(replace(without, steps=()), after))


@pytest.mark.parametrize(
    "beside", [{"tokens": 0}, {"tokens": float("inf")}, {"mfu_pct": -1}, {"mfu_pct": 1e7}]
)
def test_tokens_and_utilisations_that_cannot_be_are_refused(beside: dict[str, float]) -> None:
    values = [100, 0, None, "train", 3, 1.2, 0.4, 0.4, 0.4, 0.4]
    assert step_row(values) is not None and step_row(values, **beside) is None


def test_phases_travel_with_the_steps_and_the_title_names_the_one_that_grew() -> None:
    told = row(forward_s=0.1, backward_s=0.2, optimizer_s=0.05, between_s=0.042)
    intake = StepIntake()
    assert intake.accept(datagram(told), told.pid) and intake.drain() == (told,)
    assert (
        len(
            datagram(replace(told, name="n" * 64, tokens=1e9 / 3, samples=1e9 / 7, mfu_pct=43.3333))
        )
        < 1024
    )
    given = snapshot(NOW, told, row(pid=200), pids=(100, 200))
    assert read_back(given)[0].steps == given.steps
    monitor = Monitor()
    for k in range(60):
        frame = monitor.feed(snapshot(NOW + k, told if k < 30 else replace(told, between_s=0.198)))
        if k == 29:
            assert frame.steps[0].growth is None and frame.steps[0].phases == pytest.approx(
                told.phases
            )
    growth = frame.steps[0].growth
    assert growth is not None and (growth.phase, growth.before_s, growth.after_s) == (
        "between",
        0.042,
        0.198,
    )
    gpu = frame.snapshot.gpus[0]
    assert (
        step_words(frame, gpu)
        == "400 ms a step ± 0.0 %, 2.5 steps/s, between steps grew 42.0 ms → 198 ms"
    )
    assert step_words(frame, gpu, 60) == "400 ms a step, between steps grew 42.0 ms → 198 ms"
    monitor.feed(snapshot(NOW + 200))
    assert monitor.latest is not None and monitor.latest.steps == (), "forgotten with the job"


def test_phases_that_cannot_be_are_refused() -> None:
    values = [100, 0, None, "train", 3, 1.2, 0.4, 0.4, 0.4, 0.4]
    for wrong in (-0.1, float("nan"), "x", True, 1e9):
        assert step_row(values, forward_s=wrong) is None
