"""Words beside which an option does nothing, folders of several recordings, times outside, a stdout that is not there:
each is said in one line, and nothing is silently left out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.recording.reader import Recording
from gputop.recording.writer import RecordingWriter
from gputop.sources.simulation.simulated import snapshot_at
from tests.support.frames import MOMENT

SECONDS = 40


def recorded(path: Path, begin: float = MOMENT) -> Path:
    writer = RecordingWriter(str(path))
    for second in range(SECONDS):
        writer.write(snapshot_at(begin + second, scenario="healthy", started=begin))
    writer.close()
    return path


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("one") / "run.gputop.jsonl.gz")


@pytest.mark.parametrize("command", [["diagnose", "{}"], ["compare", "{}", "{}"], ["replay", "{}"]])
def test_a_folder_of_several_runs_is_not_taken_for_one(
    command: list[str], recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        shutil.copy(recording, tmp_path / f"{name}.gputop.jsonl.gz")
    assert main([word.format(tmp_path) for word in command]) == 2
    said = capsys.readouterr().err
    assert (
        "2 recordings (a.gputop.jsonl.gz, b.gputop.jsonl.gz)" in said
        and "gputop compare A B" in said
    )


def test_a_moment_outside_of_a_recording_is_refused_and_a_distance_beyond_it_is_said(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "x.txt"
    assert main(["screenshot", str(recording), "--at", "2020-01-01T00:00", "-o", str(picture)]) == 2
    assert "not in the recording, which goes from" in capsys.readouterr().err
    assert not picture.exists()
    for at, end in (("+10h", "end"), ("-3h", "beginning")):
        assert main(["screenshot", str(recording), f"--at={at}", "-o", str(picture)]) == 0
        assert f"shown from its {end}" in capsys.readouterr().err


def test_a_time_of_day_is_the_frame_that_a_screen_showed_then(tmp_path: Path) -> None:
    with_fraction = Recording(str(recorded(tmp_path / "x.gputop.jsonl.gz", MOMENT + 0.4)))
    for second in (0, 7, SECONDS - 1):
        shown = time.strftime("%H:%M:%S", time.localtime(MOMENT + second))
        t = with_fraction.moment(shown)
        (_, frame), *_ = with_fraction.play(0, t)
        assert time.strftime("%H:%M:%S", time.localtime(frame.t)) == shown
    with_fraction.close()


@pytest.mark.parametrize(
    ("words", "target"),
    [
        ("--version", "closed"),
        ("diagnose demo", "closed"),
        ("once --help", "/dev/full"),
        ("demo -1", "/dev/full"),
    ],
)
def test_what_cannot_be_printed_is_a_failure(words: str, target: str) -> None:
    def close() -> None:
        os.close(1)

    command = [sys.executable, "-m", "gputop", *words.split()]
    if target == "closed":
        ended = subprocess.run(
            command, stderr=subprocess.PIPE, text=True, preexec_fn=close, check=False
        )
    else:
        with open(target, "w") as full:
            ended = subprocess.run(
                command, stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
    assert ended.returncode == 2
    assert ("stdout is closed" if target == "closed" else "No space left") in ended.stderr


def test_a_recording_of_two_machines_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "two.gputop.jsonl.gz"
    writer = RecordingWriter(str(path))
    for second in range(60):
        snapshot = snapshot_at(MOMENT + second, scenario="healthy", started=MOMENT)
        machine = replace(snapshot.machine, hostname="one" if second < 30 else "two")
        writer.write(replace(snapshot, machine=machine))
    writer.close()
    assert main(["report", str(path)]) == 0
    assert "another machine from here on" in capsys.readouterr().out
    assert main(["diagnose", str(path)]) == 0
    assert "another machine from here on" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["report", "demo", "healthy"], ["help", "SM"]])
def test_a_locale_without_the_characters_gets_their_plain_forms(command: list[str]) -> None:
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    told = subprocess.run(
        [sys.executable, "-m", "gputop", *command], env=plain, capture_output=True, check=True
    ).stdout
    assert told.isascii() and b"?" not in told
