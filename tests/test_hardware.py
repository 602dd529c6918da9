"""The hardware report: every table is printed, and every check can pass, fail and be skipped."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hardware import checks, steps
from tests.hardware.__main__ import Done, main, report, run
from tests.hardware.checks import Missing, Wrong, output
from tests.hardware.gpu_work import CAUSES
from tests.hardware.steps import SOURCES, Step


def _breaks() -> str:
    raise OSError("no such device")


def _lacks() -> str:
    raise Missing("no GPU of this kind")


def test_a_step_that_fails_takes_no_other_with_it() -> None:
    done = run(
        [
            Step("one", lambda: "1"),
            Step("two", _breaks),
            Step("three", _lacks),
            Step("four", lambda: "4"),
        ]
    )
    assert [each.how for each in done] == ["passed", "FAILED", "skipped", "passed"]
    text = report(done)
    assert (
        "| two | FAILED |" in text
        and "OSError: no such device" in text
        and "## four: passed" in text
    )


def test_when_the_time_is_over_the_step_that_runs_ends_and_what_there_is_was_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.hardware.__main__.LEAST_S", 0.05)
    kept: list[list[Done]] = []
    begun = time.monotonic()
    todo = [
        Step("quick", lambda: "1"),
        Step("hangs", lambda: output(["sleep", "60"])),
        Step("late", lambda: "x"),
    ]
    done = run(todo, 0.3, lambda so_far: kept.append(list(so_far)))
    assert time.monotonic() - begun < 30.0
    assert [each.how for each in done] == ["passed", "left out", "left out"]
    assert [len(each) for each in kept] == [1, 2, 3]


def test_a_program_that_is_not_here_cannot_or_hangs_is_told() -> None:
    with pytest.raises(Missing, match="is not here"):
        output(["no-such-program"])
    with pytest.raises(Missing, match="cannot"):
        output(["sh", "-c", "echo cannot; exit 3"])
    with pytest.raises(Wrong, match="exit 7"):
        output(["sh", "-c", "exit 7"])
    with pytest.raises(Wrong, match="not done within"):
        output(["sleep", "5"], 0.1)


def test_every_source_is_proved_and_every_cause_has_its_job(tmp_path: Path) -> None:
    titles = [step.title for step in steps.steps(tmp_path)]
    assert len(set(titles)) == len(titles)
    assert {f"prove by {source}" for source in SOURCES} | {
        f"job: {cause}" for cause in CAUSES
    } <= set(titles)


Scripted = Callable[..., None]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """Puts programs in the place of the real ones: their names, with what a shell then runs."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def make(**scripts: str) -> None:
        for name, script in scripts.items():
            path = folder / name.replace("_", "-")
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        for name in ("GPUTOP", "HELPER", "WORK"):
            monkeypatch.setattr(checks, name, (str(folder / name.lower()),))

    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(steps, "WARM_UP_S", 0.1)
    monkeypatch.setattr(steps, "WATCHED_S", 0.3)
    make(gputop="exit 3", work="exit 3", nvidia_smi="exit 9")
    return make


def test_where_there_is_nothing_everything_is_skipped_or_fails_in_words(
    programs: Scripted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    programs(helper="""echo '{"t": "bye", "why": "no driver"}'""")
    assert main(["-o", str(tmp_path / "out")]) == 1
    text = (tmp_path / "out" / "report.md").read_text()
    assert (
        "| two helpers, and kill -9 | skipped |" in text
        and "the counters cannot be had: no driver" in text
    )
    assert all(f"| prove by {source} | skipped |" in text for source in SOURCES)
    assert "| machine | passed |" in text and "Traceback" not in text
    assert "written to" in capsys.readouterr().out
