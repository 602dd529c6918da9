"""What goes on into a pipe: `once --follow` and `record -o -`, flushed with each reading."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gputop.cli import main
from tests.nvml.stand_in import Scenario
from tests.support.pty_program import ROOT

pytestmark = pytest.mark.nvml


@contextmanager
def _running(scenario: Scenario, *words: str) -> Iterator[subprocess.Popen[str]]:
    scenario.write()
    environ = {**os.environ, **scenario.environment(), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "gputop", *words, "--interval", "0.25"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environ) as process:
        yield process
        process.kill()


def _lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def test_once_is_a_line_a_gpu_and_full_is_more(nvml_scenario: Callable[..., Scenario]) -> None:
    with _running(nvml_scenario(gpus=3), "once") as process:
        out, _ = process.communicate()
    assert process.returncode == 0
    assert [line.split()[0] for line in out.splitlines()] == ["0", "1", "2"]
    with _running(nvml_scenario(gpus=3), "once", "--full") as process:
        assert len(process.communicate()[0].splitlines()) > 9


def test_followed_each_reading_is_flushed_as_lines_objects_or_rows(
    nvml_scenario: Callable[..., Scenario],
) -> None:
    scenario = nvml_scenario(gpus=2)
    with _running(scenario, "once", "--follow") as process:
        lines = _lines(process, 6)
        assert all("UTIL" in line and "H100" in line for line in lines)
    with _running(scenario, "once", "--follow", "--json") as process:
        times = [json.loads(line)["t"] for line in _lines(process, 3)]
        assert times == sorted(set(times))
    with _running(scenario, "once", "--follow", "--csv") as process:
        rows = _lines(process, 5)
        assert [row.startswith("t,index") for row in rows] == [True, *[False] * 4]
    with _running(scenario, "once", "--follow", "--format", "{index}:{util_pct}") as process:
        assert [line[:2] for line in _lines(process, 4)] == ["0:", "1:"] * 2
        process.send_signal(signal.SIGINT)
        process.communicate()
        assert process.returncode == 130


def test_a_reader_that_leaves_ends_what_follows(nvml_scenario: Callable[..., Scenario]) -> None:
    for words in (("once", "--follow"), ("record", "-o", "-")):
        with _running(nvml_scenario(), *words) as process:
            _lines(process, 1)
            assert process.stdout is not None and process.stderr is not None
            process.stdout.close()
            assert process.wait(60.0) == 128 + signal.SIGPIPE
            assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize("word", ["--steps", "--full"])
def test_what_is_of_one_reading_is_not_followed(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:

    assert main(["once", "--follow", word]) == 2
    assert f"{word} is of one reading" in capsys.readouterr().err
