"""The hardware report: every table is printed, and every check can pass, fail and be skipped."""

from __future__ import annotations

import json
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputop.features.prove.experiment import Message, Ready, Stage
from gputop.sources.capabilities import PERFMON, Capabilities
from tests.hardware import beside, checks, load, steps
from tests.hardware.__main__ import Done, main, report, run
from tests.hardware.checks import Missing, Wrong, said
from tests.hardware.gpu_work import CAUSES
from tests.hardware.steps import SOURCES, Step
from tests.nvperf.stand_in import Counters


def _breaks() -> str:
    raise OSError("no such device")


def _lacks() -> str:
    raise Missing("no GPU of this kind")


def test_a_step_that_fails_takes_no_other_with_it() -> None:
    done = run([Step("one", lambda: "1"), Step("two", _breaks), Step("three", _lacks), Step("four", lambda: "4")])
    assert [each.how for each in done] == ["passed", "FAILED", "skipped", "passed"]
    text = report(done)
    assert "| two | FAILED |" in text and "OSError: no such device" in text and "## four: passed" in text


def test_when_the_time_is_over_the_step_that_runs_ends_and_what_there_is_was_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.hardware.__main__.LEAST_S", 0.05)
    kept: list[list[Done]] = []
    begun = time.monotonic()
    todo = [Step("quick", lambda: "1"), Step("hangs", lambda: said(["sleep", "60"])), Step("late", lambda: "x")]
    done = run(todo, 0.3, lambda so_far: kept.append(list(so_far)))
    assert time.monotonic() - begun < 30.0
    assert [each.how for each in done] == ["passed", "left out", "left out"]
    assert [len(each) for each in kept] == [1, 2, 3]


def test_a_program_that_is_not_here_cannot_or_hangs_is_told() -> None:
    with pytest.raises(Missing, match="is not here"):
        said(["no-such-program"])
    with pytest.raises(Missing, match="cannot"):
        said(["sh", "-c", "echo cannot; exit 3"])
    with pytest.raises(Wrong, match="exit 7"):
        said(["sh", "-c", "exit 7"])
    with pytest.raises(Wrong, match="not done within"):
        said(["sleep", "5"], 0.1)


def test_every_source_is_proved_and_every_cause_has_its_job(tmp_path: Path) -> None:
    titles = [step.title for step in steps.steps(tmp_path)]
    assert len(set(titles)) == len(titles)
    assert {f"prove by {source}" for source in SOURCES} | {f"job: {cause}" for cause in CAUSES} <= set(titles)


# -- each judge, before programs that say what a test has them say -----------------------------------------------------

Scripted = Callable[..., None]
TAKES_A_WHILE = "on a terminal, beside nvitop"
SAMPLE = '{"t": "s", "pci": "0000:01:00.0"}'


class FakeKernels:
    """Half of a GPU at work, as far as anybody asks."""

    def __init__(self, uuid: str) -> None:
        assert uuid == "GPU-1"

    def ready(self) -> Ready:
        return Ready(132)

    def begin(self, stage: Stage) -> None:
        assert stage.blocks == 66

    def heard(self) -> list[Message]:
        return []

    def close(self) -> None: ...


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
    monkeypatch.setattr(beside, "SETTLES_S", 0.0)
    monkeypatch.setattr(load, "SETTLES_S", 0.0)
    monkeypatch.setattr(load, "Kernels", FakeKernels)
    make(gputop="exit 3", helper=f"echo '{SAMPLE}'; sleep 9", work="exit 3", nvidia_smi="exit 9")
    return make


def step(title: str, out: Path) -> Callable[[], str]:
    return next(step.run for step in steps.steps(out) if step.title == title)


def once(sm: float | None, source: str = "gpm") -> str:
    gpu = {"uuid": "GPU-1", "sm_source": source, "sm_active_pct": sm, "sm_lack": None}
    return "echo '" + json.dumps({"gpus": [gpu]}) + "'"


def job(verdict: str) -> str:
    gpu = {"index": 0, "verdict": verdict, "evidence": ["GPU idle 60 %"]}
    return f"""test "$1" = run || {{ echo '{json.dumps({"gpus": [gpu]})}'; exit 1; }}"""


RIGHT: dict[str, dict[str, str]] = {
    "doctor": {"gputop": "exit 1"},
    "once": {"gputop": "echo {}"},
    "prove by gpm": {"gputop": f'if test "$1" = once; then {once(7.0)}; else test "$1 $3" = "prove gpm"; fi'},
    "machine": {},
    "clocks beside the counters": {"nvidia_smi": "echo 345 MHz, P8"},
    "memory beside the counters": {"nvidia_smi": "echo 7, 512 MiB"},
    "GPM beside the counters": {"gputop": once(7.0)},
    "matrix products beside the counters": {"work": "echo 700.0"},
    "torch.profiler beside the counters": {"work": "echo 10"},
    "ncu beside the counters": {"ncu": 'echo "$4"'},
    "dmon": {"nvidia_smi": "echo '# gpu sm'; echo 0 41; echo 0 43", "gputop": once(40.0)},
    "job: main_process": {
        "work": "true",
        "gputop": job("main_process"),
    },
    TAKES_A_WHILE: {
        "gputop": "echo 3 GiB; sleep 9",
        "nvitop": "echo 3 MiB; while true; do :; done",
    },
}
WRONG: dict[str, dict[str, str]] = {
    "doctor": {"gputop": "exit 2"},
    "once": {"gputop": "exit 1"},
    "prove by gpm": {"gputop": f'if test "$1" = once; then {once(7.0)}; else echo 40 points off; exit 1; fi'},
    "GPM beside the counters": {
        "gputop": f'echo x >> "$0.n"; if test $(wc -l < "$0.n") -lt 3; then {once(7.0)}; else {once(70.0)}; fi'
    },
    "clocks beside the counters": {"nvidia_smi": 'echo x >> "$0.n"; echo 1980 MHz, P$(wc -l < "$0.n")'},
    "memory beside the counters": {
        "nvidia_smi": 'echo "$(cat helper.pid), 300 MiB"',
        "helper": f"echo $$ > helper.pid; echo '{SAMPLE}'; exec sleep 9",
    },
    "matrix products beside the counters": {"work": 'echo x >> "$0.n"; echo $((900 / $(wc -l < "$0.n")))'},
    "torch.profiler beside the counters": {"work": "echo 0"},
    "ncu beside the counters": {"ncu": "echo ERR_NVGPUCTRPERM"},
    "dmon": {"nvidia_smi": "echo 0 90", "gputop": once(40.0)},
    "job: main_process": {
        "work": "true",
        "gputop": job("healthy"),
    },
    TAKES_A_WHILE: {"gputop": "echo no driver; sleep 9"},
}  # fmt: skip


def titles(of: dict[str, dict[str, str]]) -> list[Any]:
    return [pytest.param(title, marks=pytest.mark.slow if title == TAKES_A_WHILE else ()) for title in of]


@pytest.mark.parametrize("title", titles(RIGHT))
def test_a_check_passes(title: str, programs: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    programs(**RIGHT[title])
    assert step(title, tmp_path)().strip()


@pytest.mark.parametrize("title", titles(WRONG))
def test_a_check_fails(title: str, programs: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "helper.pid").write_text("0")
    programs(**WRONG[title])
    with pytest.raises(Wrong):
        step(title, tmp_path)()


def test_where_there_is_nothing_everything_is_skipped_or_fails_in_words(
    programs: Scripted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    programs(helper="""echo '{"t": "bye", "why": "no driver"}'""")
    assert main(["-o", str(tmp_path / "out")]) == 1
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| two helpers, and kill -9 | skipped |" in text and "the counters cannot be had: no driver" in text
    assert all(f"| prove by {source} | skipped |" in text for source in SOURCES)
    assert "| dmon | skipped |" in text and "| machine | passed |" in text and "Traceback" not in text
    assert "out.tar.gz, 0.0 MB" in capsys.readouterr().out
    with tarfile.open(tmp_path / "out.tar.gz") as archive:
        assert "out/report.md" in archive.getnames()


@pytest.mark.slow
def test_the_exclusive_lock_is_seen_and_freed(counters: Counters, monkeypatch: pytest.MonkeyPatch) -> None:
    own = (*checks.HELPER, "--lib", str(counters.libraries), "--interval-ms", "300")
    monkeypatch.setattr(checks, "HELPER", own)
    second, third = beside.two_helpers().splitlines()
    assert "'busy'" in second and "'t': 's'" in third
    counters.write(begin=17)
    with pytest.raises(Missing, match="cannot be had"):
        beside.two_helpers()


@pytest.mark.slow
def test_as_another_user_the_counters_are_had_by_the_right_alone(
    programs: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = '{"t": "gpu", "state": "denied", "code": 17}'
    monkeypatch.setattr(beside, "PARAMETERS", Path("/nowhere"))
    monkeypatch.setattr("tests.hardware.beside.os.geteuid", lambda: 0)
    monkeypatch.setattr(beside, "capabilities", lambda: Capabilities(bounding=1 << PERFMON))
    by_right = f"""case "$*" in --version) ;; *+perfmon*) echo '{SAMPLE}' ;; *) echo '{denied}' ;; esac"""
    programs(setpriv=by_right, nvidia_smi="echo 580.95.05")
    assert "'denied'" in beside.as_nobody()
    programs(nvidia_smi="echo 550.90.07")
    with pytest.raises(Wrong, match="driver 550"):
        beside.as_nobody()
    programs(setpriv=f"test $1 = --version || echo '{denied}'")
    assert "driver 550" in beside.as_nobody()
    programs(nvidia_smi="echo 580.95.05")
    programs(setpriv=f"echo '{SAMPLE}'")
    with pytest.raises(Wrong):
        beside.as_nobody()
    programs(setpriv="true")
    with pytest.raises(Missing, match="cannot run this Python"):
        beside.as_nobody()
    monkeypatch.setattr(beside, "capabilities", Capabilities)
    with pytest.raises(Missing, match="bounding set"):
        beside.as_nobody()
    monkeypatch.setattr("tests.hardware.beside.os.geteuid", lambda: 1000)
    with pytest.raises(Missing, match="only root"):
        beside.as_nobody()
