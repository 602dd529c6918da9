"""The command line: one clear line for every mistake, data alone on stdout, no screen library where none is needed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nvml.stand_in import Process

ROOT = Path(__file__).parent.parent


def gputop(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command with no driver to be found, unless the environment says otherwise."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("GPUTOP_", "CUDA_"))}
    env.update({"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "PYTHONUTF8": "1", **environment})
    return subprocess.run(
        [sys.executable, "-m", "gputop", *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def _one_line(text: str) -> bool:
    return text.startswith("gputop: ") and text.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--nonsense",), "--nonsense"),
        (("nonsense",), "nonsense"),
        (("once", "--interval", "0.1"), "at least|from 0.25"),
        (("once", "--interval", "soon"), "must be a number"),
        (("once", "--interval", "nan"), "must be a number"),
        (("once", "--json", "--csv"), "not allowed with"),
        (("once", "--theme", "pink"), "choose one of"),
        (("once", "--config", "/nonexistent/gputop.toml"), "no configuration file"),
        (("once", "--price", "-1"), "negative"),
        (("demo", "nonsense"), "--list"),
        (("screenshot", "demo", "-o", "shot.bmp"), r"\.svg"),
        (("screenshot", "demo", "-o", "shot.svg", "--size", "1x1"), "columns x rows"),
        (("screenshot", "demo", "-o", "/nonexistent/shot.txt"), "No such file"),
        (("screenshot", "demo", "-o", "shot.txt", "--gpu", "77"), "no GPU"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_gets_one_clear_line_and_exit_2(arguments: tuple[str, ...], says: str) -> None:
    done = gputop(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert _one_line(done.stderr)
    assert re.search(says, done.stderr)


def test_without_a_driver_the_fix_and_the_demo_are_named_with_exit_3(tmp_path: Path) -> None:
    done = gputop("once", LD_LIBRARY_PATH=str(tmp_path))
    assert done.returncode == 3
    assert done.stdout == ""
    assert _one_line(done.stderr)
    assert "gputop demo" in done.stderr


def test_without_a_terminal_the_live_screen_points_to_once() -> None:
    for command in ((), ("demo",)):
        done = gputop(*command)
        assert done.returncode == 2
        assert _one_line(done.stderr)
        assert "gputop once" in done.stderr


def test_an_unreadable_configuration_is_named(tmp_path: Path) -> None:
    path = tmp_path / "gputop.toml"
    path.write_text("interval = [")
    done = gputop("once", "--config", str(path))
    assert done.returncode == 2
    assert _one_line(done.stderr)
    assert str(path) in done.stderr


def test_an_unknown_setting_is_a_warning_with_the_nearest_match(tmp_path: Path) -> None:
    path = tmp_path / "gputop.toml"
    path.write_text("intervall = 2\n")
    done = gputop("demo", "--list", "--config", str(path))
    assert done.returncode == 0
    assert "interval" in done.stderr
    assert "healthy" in done.stdout


def test_version_and_help() -> None:
    assert re.fullmatch(r"gputop \d+\.\d+\.\d+\n", gputop("--version").stdout)
    assert "demo" in gputop("--help").stdout


def test_the_scenarios_are_listed() -> None:
    listed = gputop("demo", "--list").stdout.splitlines()
    names = {line.split()[0] for line in listed}
    assert {"healthy", "small_kernels", "communication", "dataloader_cpu", "lost_gpu", "straggler"} <= names


@pytest.mark.parametrize("suffix", ["svg", "txt", "ans"])
def test_a_screenshot_needs_no_terminal_and_is_the_same_every_time(tmp_path: Path, suffix: str) -> None:
    texts = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.{suffix}"
        done = gputop("screenshot", "demo", "--size", "120x36", "-o", str(path), TERM="dumb")
        assert (done.returncode, done.stderr) == (0, "")
        texts.append(path.read_text())
    assert texts[0] == texts[1]
    assert "BUSY" in texts[0]


@pytest.mark.nvml
def test_once_gives_one_json_object_and_imports_no_screen(nvml_scenario) -> None:  # type: ignore[no-untyped-def]
    scenario = nvml_scenario(gpus=2)
    scenario.gpus[1].set(power_w=None)
    scenario.write()
    code = (
        "import sys; from gputop.cli import main; status = main(['once', '--json']);"
        "assert not {'textual', 'rich', 'asyncio'} & set(sys.modules), 'a screen was imported'; sys.exit(status)"
    )
    env = {**scenario.environment(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    data = json.loads(done.stdout)
    assert data["schema"] == 1
    assert [gpu["index"] for gpu in data["gpus"]] == [0, 1]
    assert data["gpus"][0]["power_w"] == 400
    assert data["gpus"][0]["sm_active_pct"] == pytest.approx(25, abs=0.5)
    assert data["gpus"][0]["sm_source"] == "gpm"
    assert data["gpus"][1]["power_w"] is None
    assert data["gpus"][1]["unavailable"]["power_w"]


@pytest.mark.nvml
def test_once_as_a_table_and_as_csv(nvml_scenario) -> None:  # type: ignore[no-untyped-def]
    scenario = nvml_scenario(gpus=1)
    scenario.write()
    table = gputop("once", **scenario.environment())
    assert table.returncode == 0
    assert "H100 80GB" in table.stdout
    assert "\x1b" not in table.stdout
    rows = gputop("once", "--csv", **scenario.environment()).stdout.splitlines()
    assert rows[0].split(",")[:4] == ["t", "index", "uuid", "name"]
    assert len(rows) == 2


@pytest.mark.nvml
def test_a_gpu_that_does_not_exist_is_named_with_those_that_do(nvml_scenario) -> None:  # type: ignore[no-untyped-def]
    scenario = nvml_scenario(gpus=2)
    scenario.write()
    done = gputop("once", "--gpus", "5", **scenario.environment())
    assert done.returncode == 2
    assert _one_line(done.stderr)
    assert "5" in done.stderr


@pytest.mark.nvml
def test_once_shows_the_processes_that_pass_the_filter(nvml_scenario) -> None:  # type: ignore[no-untyped-def]
    scenario = nvml_scenario(gpus=2)
    for gpu, pid in ((0, 4000001), (1, 4000002)):
        scenario.gpus[gpu].processes = [Process(pid, 2**30)]
    scenario.write()
    env = scenario.environment()
    data = json.loads(gputop("once", "--json", "--filter", "gpu:1 mem>0.5G", **env).stdout)
    assert [process["pid"] for process in data["processes"]] == [4000002]
    assert len(data["gpus"]) == 2
    table = gputop("once", "--filter", "!gpu:1", **env).stdout
    assert "4000001" in table and "4000002" not in table


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--filter", "gpuu:3"], "did you mean gpu? (at character 1)"),
        (["demo", "--filter", "mem>x"], "not a number"),
        (["once", "--filter", "verdict:starved"], "gputop diagnose"),
        (["once", "--csv", "--filter", "gpu:1"], "--json"),
    ],
)
def test_a_filter_that_means_nothing_is_one_line(arguments: list[str], words: str) -> None:
    done = gputop(*arguments)
    assert done.returncode == 2
    assert _one_line(done.stderr)
    assert words in done.stderr
