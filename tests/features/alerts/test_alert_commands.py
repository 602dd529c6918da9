"""Commands of alerts as real programs: what they get, from which files they come, and that none outlives its limit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.config import ConfigError, Settings, load
from gputop.features.alerts.alert_table import Alert, alerts_of
from gputop.features.alerts.alerts_command import alerts_here
from gputop.features.alerts.evaluator import Firing
from gputop.features.alerts.node_alerts import CommandOutcome, FiringLock, run_command
from tests.nvml.stand_in import Scenario
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]


def configured(folder: Path, text: str) -> tuple[Any, Settings]:
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / "config.toml"
    path.write_text(f'[[alert]]\nname = "a"\nwhen = "badge:ecc"\n{text}\n')
    path.chmod(0o600)

    class Arguments:
        config = str(path)

    return Arguments, load(str(path), {}, {})[0]


def test_a_command_from_a_file_that_others_could_have_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "gputop.sources.runtime_directories.login_directories", lambda: [str(tmp_path / "run")]
    )
    args, settings = configured(tmp_path / "c", 'run = ["true", "hunter2"]')
    assert alerts_here(args, settings) is not None
    said: list[str] = []
    assert alerts_here(args, settings, tell=said.append) is not None
    assert said == ["alerts: another gputop of this user fires the alerts"]
    file, folder = Path(args.config), Path(args.config).parent
    for path, mode in ((file, 0o620), (file, 0o602), (folder, 0o770), (folder, 0o707)):
        before = stat.S_IMODE(path.stat().st_mode)
        path.chmod(mode)
        with pytest.raises(ConfigError, match="chmod go-w"):
            alerts_here(args, settings)
        assert main(["record", "--config", str(file)]) == 2
        path.chmod(before)
    folder.chmod(0o777)
    args.config = str(tmp_path / "link")
    Path(args.config).symlink_to(file)
    with pytest.raises(ConfigError, match="chmod go-w"):
        alerts_here(args, settings)
    assert alerts_here(args, settings, fire=False) is not None, "what runs nothing may be shown"
    assert capsys.readouterr().err.count("chmod go-w") == 4
    if os.geteuid() == 0:
        folder.chmod(0o700)
        os.chown(file, 12345, 0)
        with pytest.raises(ConfigError, match="yours or root"):
            alerts_here(args, settings)


def test_redaction_fires_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    args, settings = configured(tmp_path / "c", 'run = ["true"]')
    assert alerts_here(args, replace(settings, redact=True), tell=said.append) is None
    assert "redact" in said[0]


def left(marker: str) -> list[psutil.Process]:
    """The processes of which an argument is the marker."""
    return [p for p in psutil.process_iter(["cmdline"]) if marker in (p.info["cmdline"] or [])]


def alert_of(run: list[str]) -> Alert:
    (alert,) = alerts_of([{"name": "a", "when": "badge:ecc", "run": run}])
    return alert


def ended(*argv: str, text: str = "{}", limit_s: float = 30.0, **variables: str) -> CommandOutcome:
    firing = Firing(alert_of(list(argv)), 0.0, 0.0, (), (), variables, json.loads(text))
    return run_command(firing, limit_s=limit_s)


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    ["sleep $M", "trap '' TERM INT HUP; while :; do sleep $M; done", "f() { f & sleep $M; }; f"],
)
def test_a_command_that_hangs_ends_with_its_session_within_its_limit(script: str) -> None:
    marker, begun = f"98765.{os.getpid()}", time.monotonic()
    outcome = ended("sh", "-c", f"ulimit -u 2000; M={marker}; {script}", limit_s=1.0)
    assert 1.0 <= time.monotonic() - begun < 60.0
    assert outcome.words == "sh was killed after 1 s" and outcome.has_failed
    until(lambda: left(marker) == [])


def test_a_command_is_over_when_it_ends_whatever_it_has_left_behind() -> None:
    marker = f"87654.{os.getpid()}"
    outcome = ended("sh", "-c", f"setsid sleep {marker} & exit 3")
    until(lambda: left(marker) != [])  # the shell may have ended before its child has become sleep
    (daemon,) = left(marker)
    daemon.kill()
    assert outcome.words == "sh ended with status 3" and outcome.has_failed


@pytest.mark.slow
def test_what_a_command_gets_and_what_is_kept_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_hunter2hunter2hunter2hunter2hunter2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    outcome = ended("sh", "-c", "env; pwd; cat; exit 7", text='{"gpu": 3}', GPUTOP_GPUS="3")
    assert outcome.words == "sh ended with status 7"
    lines = outcome.output.split(" ⏎ ")
    assert {line.split("=")[0] for line in lines if "=" in line} <= {
        "PATH", "HOME", "LANG", "PWD", "_", "SHLVL", "KUBERNETES_SERVICE_HOST", "GPUTOP_GPUS",
    }  # fmt: skip
    assert {"KUBERNETES_SERVICE_HOST=10.0.0.1", "GPUTOP_GPUS=3"} <= set(lines)
    assert lines[-2:] == ["/", '{"gpu": 3}']
    flood = ended(
        "sh", "-c", "yes hf_hunter2hunter2hunter2hunter2hunter2 | head -c 1000000000; kill -TERM $$"
    )
    assert flood.words == "sh was ended by SIGTERM"
    assert 0 < len(flood.output) <= 8192 and "hunter2" not in flood.output
    assert (
        ended("no-such-program").words == "no-such-program cannot be run: No such file or directory"
    )
    assert ended("cat", "/proc/self/status").output.count("CapAmb: 0000000000000000") == 1
    own, session = ended("sh", "-c", "ps -o sid= -p $$; echo $$").output.split(" ⏎ ")
    assert own.strip() == session, "a session of its own: no key of the terminal reaches it"


RECORDER = """
import sys
from gputop.sources import runtime_directories
place = sys.argv.pop(1)
runtime_directories.login_directories = lambda: [place]
from gputop.cli import main
sys.exit(main(sys.argv[1:]))
"""


@contextlib.contextmanager
def recorder(
    scenario: Scenario, folder: Path, config: Path, *words: str
) -> Iterator[subprocess.Popen[str]]:
    command = [
        sys.executable,
        "-c",
        RECORDER,
        str(folder),
        *words,
        "--config",
        str(config),
        "--interval",
        "0.25",
    ]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=scenario.environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.nvml
def test_record_and_export_fire_and_a_command_survives_a_kill(
    nvml_scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    scenario = nvml_scenario()
    scenario.write()
    config, out, runtime = tmp_path / "config.toml", tmp_path / "out", tmp_path / "run"
    tmp_path.chmod(0o700)
    config.write_text(
        '[[alert]]\nname = "busy"\nwhen = "util_pct > 50"\nfor = "0s"\nagain = "1h"\n'
        f'run = ["sh", "-c", "cat >>{out}; echo $GPUTOP_GPUS >>{out}"]\n'
    )
    config.chmod(0o600)
    with recorder(
        scenario, runtime, config, "record", "--for", "1s", "-o", str(tmp_path / "r.jsonl")
    ) as done:
        _, said = done.communicate(timeout=30)
    assert (
        done.returncode == 0 and said.count("alert busy on GPU 0: sh ended with status 0") == 1
    ), said
    assert json.loads(out.read_text().splitlines()[0])["alert"] == "busy"
    with recorder(scenario, runtime, config, "export", "--listen", "127.0.0.1:0") as exporter:
        until(lambda: out.read_text().count('"alert": "busy"') == 2)
        exporter.terminate()
        assert "sh ended with status 0" in exporter.communicate(timeout=30)[1]
    marker = f"27.{os.getpid()}"
    command = f'["sh", "-c", "exec >>{out} 2>&1; sleep {marker}; echo late"]\n'
    config.write_text(config.read_text().partition('["sh')[0] + command)
    with recorder(scenario, runtime, config, "record", "-o", str(tmp_path / "t.jsonl")) as killed:
        until(lambda: len(left(marker)) == 1)
        killed.send_signal(signal.SIGKILL)
        killed.communicate(timeout=30)
    (sleeping,) = left(marker)
    assert (runtime / "alerts").exists() and FiringLock(str(runtime)).take(), (
        "a lock ends with its process"
    )
    # The command goes on to its own end.
    sleeping.kill()
    until(lambda: out.read_text().endswith("\nlate\n"))
