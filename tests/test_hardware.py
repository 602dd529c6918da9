"""The hardware report: every table is printed, and every check can pass, fail and be skipped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.diagnosis.verdict.catalogue import verdict_rows
from tests.hardware import checks, steps
from tests.hardware.__main__ import Done, main, report, run
from tests.hardware.checks import Missing, Wrong, output
from tests.hardware.gpu_work import CAUSES
from tests.hardware.red_scenes import SCENES
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
        for name in ("GPUTOP", "HELPER", "WORK", "RED"):
            monkeypatch.setattr(checks, name, (str(folder / name.lower()),))

    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(steps, "WARM_UP_S", 0.1)
    monkeypatch.setattr(steps, "WATCHED_S", 0.3)
    make(gputop="exit 3", work="exit 3", red="exit 3", nvidia_smi="exit 9")
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


DMON = """\
# gpu     sm    mem    enc    dec    jpg    ofa  smutil
# Idx      %      %      %      %      %      %   GPM:%
    0      0      0      0      0      0      0    0.0
    0    100      0      0      0      0      0    0.7
    0     99      0      0      0      0      0    0.9
    0    100      0      0      0      0      0      -
"""


def test_the_drivers_own_sm_activity_is_its_mean_while_the_gpu_is_busy() -> None:
    assert steps.dmon_mean(DMON).mean_pct == pytest.approx(0.8)
    without = steps.dmon_mean("Unknown option --gpm-metrics")
    assert without.mean_pct is None and "--gpm-metrics" in without.text


@pytest.mark.parametrize(
    ("verdict", "dmon_pct", "how"),
    [
        ("small_kernels", 0.8, "passed"),
        ("healthy", 0.8, "FAILED"),
        ("small_kernels", 9.0, "FAILED"),
    ],
)
def test_a_red_scene_fails_by_its_verdict_and_by_sm_activity_that_is_not_the_drivers(
    verdict: str,
    dmon_pct: float,
    how: str,
    programs: Scripted,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    diagnosed = json.dumps({"gpus": [{"index": 0, "verdict": verdict, "evidence": ["SM 1 %"]}]})
    frame = json.dumps({"gpus": [{"gpu_util_pct": 100, "sm_active_pct": 0.8}]})
    programs(
        gputop=f"case $1 in diagnose) echo '{diagnosed}';; dump) echo '{frame}';; *) echo ran;; esac"
    )
    measured = steps.DmonMean(dmon_pct, "dmon: 30 rows")
    monkeypatch.setattr(steps.DmonBeside, "sm_pct", lambda _self: measured)
    step = steps.red_scene("tiny_kernels", tmp_path)
    (done,) = run([step])
    assert done.how == how, done.text


def test_every_red_scene_is_a_step_and_names_verdicts_that_there_are(tmp_path: Path) -> None:
    known = {row.id for row in verdict_rows()}
    titles = {step.title for step in steps.steps(tmp_path)}
    for name, scene in SCENES.items():
        assert f"red: {name}" in titles and scene.verdicts <= known
