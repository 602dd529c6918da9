"""Commands of alerts as real programs: what they get, from which files they come, and that none outlives its limit."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.config import ConfigError, Settings, load
from gputop.features.alerts import supervisor
from gputop.features.alerts.alerts_command import alerts_here, alerts_report
from gputop.features.alerts.firing import AddressError, addresses
from gputop.features.alerts.runner import FiringLock, Running, environment, notification
from tests.nvml.stand_in import Scenario
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]


def test_a_command_gets_path_home_and_language_alone_and_no_folder_that_depends_on_where_one_is() -> None:
    given = {"PATH": ".:/bin::rel:/usr/bin", "HOME": "/h", "LANG": "C", "HF_TOKEN": "x", "LD_PRELOAD": "y"}
    assert environment(given) == {"PATH": "/bin:/usr/bin", "HOME": "/h", "LANG": "C"}
    assert environment({})["PATH"].startswith("/")


def test_a_file_of_addresses_is_its_owner_s_alone_and_never_quoted(tmp_path: Path) -> None:
    path = tmp_path / "slack"
    path.write_text("# mine\n\nslack://hunter2\n")
    path.chmod(0o644)
    with pytest.raises(AddressError, match="chmod 600") as caught:
        addresses(str(path))
    assert "hunter2" not in str(caught.value)
    path.chmod(0o600)
    assert addresses(str(path)) == ["slack://hunter2"]
    path.write_text("# none\n")
    for wrong in (path, tmp_path, tmp_path / "missing"):
        with pytest.raises(AddressError):
            addresses(str(wrong))


def configured(folder: Path, text: str) -> tuple[Any, Settings]:
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / "config.toml"
    path.write_text(f'[[alert]]\nname = "a"\nwhen = "ecc"\n{text}\n')
    path.chmod(0o600)

    class Arguments:
        config = str(path)

    return Arguments, load(str(path), {}, {})[0]


def test_a_command_from_a_file_that_others_could_have_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gputop.sources.step_datagrams.login_directories", lambda: [str(tmp_path / "run")])
    args, settings = configured(tmp_path / "c", 'run = ["true", "hunter2"]')
    assert alerts_here(args, settings) is not None
    said: list[str] = []
    assert alerts_here(args, settings, tell=said.append) is not None
    assert said == [f"alerts: the gputop with pid {os.getpid()} fires this user's alerts"]
    file, folder = Path(args.config), Path(args.config).parent
    for path, mode in ((file, 0o620), (file, 0o602), (folder, 0o770), (folder, 0o707)):
        before = stat.S_IMODE(path.stat().st_mode)
        path.chmod(mode)
        with pytest.raises(ConfigError, match="chmod go-w"):
            alerts_here(args, settings)
        assert main(["record", "--config", str(file)]) == 2
        report = json.dumps(alerts_report(args, settings))
        assert "chmod go-w" in report and "hunter2" not in report
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


def test_redaction_fires_nothing_and_missing_apprise_is_said_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    args, settings = configured(tmp_path / "c", 'run = ["true"]')
    assert alerts_here(args, replace(settings, redact=True), tell=said.append) is None
    assert "redact" in said[0]
    monkeypatch.setattr("gputop.features.alerts.alerts_command.find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"'.\[notify\]'"):
        alerts_here(*configured(tmp_path / "c", 'notify = ["slack://x"]'))


def left(marker: str) -> list[psutil.Process]:
    """The processes of which an argument is the marker."""
    return [p for p in psutil.process_iter(["cmdline"]) if marker in (p.info["cmdline"] or [])]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "problem", "code"),
    [
        ("sleep $M", "was killed after 1 s", -9),
        ("trap '' TERM INT HUP; while :; do sleep $M; done", "was killed after 1 s", -9),
        ("setsid sleep $M & exit 3", "what it left running was killed", 3),
        ("(setsid sh -c 'sleep '$M' & sleep '$M &) & exec >&- 2>&-; exit 0", "what it left running was killed", 0),
        ("f() { f & sleep $M; }; f", "was killed after 1 s", -9),
    ],
)
def test_a_command_that_hangs_or_forks_away_ends_within_its_limit_and_leaves_nothing(
    script: str, problem: str, code: int
) -> None:
    marker, begun = f"98765.{os.getpid()}", time.monotonic()
    ended = Running(["sh", "-c", f"ulimit -u 2000; M={marker}; {script}"], "", limit_s=1.0).ended()
    assert 1.0 <= time.monotonic() - begun < 60.0
    assert problem in (ended.problem or "")
    assert ended.exit_code == code
    assert left(marker) == []


def test_children_are_found_by_their_parents_as_the_kernel_lists_them() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60 & echo ready; wait"], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None and shell.stdout.readline() == b"ready\n"
        found = sorted(supervisor._children_by_parent()(shell.pid))
        listed = sorted(supervisor._children(shell.pid))
        for pid in (*found, shell.pid):
            os.kill(pid, signal.SIGKILL)
    assert len(found) == 2
    # A kernel without CONFIG_PROC_CHILDREN has only the first way.
    assert listed == found or not Path(f"/proc/self/task/{os.getpid()}/children").exists()


@pytest.mark.slow
def test_what_a_command_gets_and_what_is_kept_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_hunter2hunter2hunter2hunter2hunter2")
    monkeypatch.chdir(tmp_path)
    ended = Running(["sh", "-c", "env; pwd; cat; exit 7"], '{"gpu": 3}').ended()
    assert (ended.exit_code, ended.problem) == (7, None)
    lines = ended.output.split(" ⏎ ")
    assert {line.split("=")[0] for line in lines if "=" in line} <= {"PATH", "HOME", "LANG", "PWD", "_", "SHLVL"}
    assert lines[-2:] == ["/", '{"gpu": 3}']
    flood = Running(
        ["sh", "-c", "yes hf_hunter2hunter2hunter2hunter2hunter2 | head -c 50000000; kill -TERM $$"], ""
    ).ended()
    assert flood.words() == "was ended by signal 15"
    assert 0 < len(flood.output) <= 8192 and "hunter2" not in flood.output
    assert Running(["no-such-program"], "").ended().words() == "cannot be run: No such file or directory"
    assert Running(["cat", "/proc/self/status"], "").ended().output.count("CapAmb: 0000000000000000") == 1
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        # As some shells and supervisors start a program.
        assert Running(["sh", "-c", "exit 5"], "").ended().words() == "ended with 5"
    finally:
        signal.signal(signal.SIGCHLD, before)
    own, session = Running(["sh", "-c", "ps -o sid= -p $$; echo $$"], "").ended().output.split(" ⏎ ")
    assert own.strip() == session, "a session of its own: no key of the terminal reaches it"


class Receiver(http.server.BaseHTTPRequestHandler):
    """Takes what apprise posts."""

    taken: list[tuple[str, dict[str, Any]]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).taken.append((self.path, json.loads(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.slow
def test_a_notification_is_sent_by_a_program_of_its_own_and_no_address_is_ever_told() -> None:
    pytest.importorskip("apprise")
    Receiver.taken = []
    server = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"json://127.0.0.1:{server.server_port}/hunter2"
    try:
        assert notification([url], "a title", "a body").ended().words() == "ended with 0"
        ended = notification([url, "json://127.0.0.1:9/hunter2", "nonsense-hunter2"], "t", "b").ended()
    finally:
        server.shutdown()
        server.server_close()
    assert [(path, body["title"], body["message"]) for path, body in Receiver.taken] == [
        ("/hunter2", "a title", "a body"), ("/hunter2", "t", "b"),
    ]  # fmt: skip
    assert ended.exit_code == 1
    assert ended.output == "sent to 1 of 3; failed: address 2, address 3 is not one that apprise knows"


RECORDER = """
import sys
from gputop.sources import step_datagrams
place = sys.argv.pop(1)
step_datagrams.login_directories = lambda: [place]
from gputop.cli import main
sys.exit(main(sys.argv[1:]))
"""


@contextlib.contextmanager
def recorder(scenario: Scenario, folder: Path, config: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", RECORDER, str(folder), *words, "--config", str(config), "--interval", "0.25"]
    with subprocess.Popen(
        command, cwd=ROOT, env=scenario.environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.nvml
def test_record_and_export_fire_once_an_hour_and_what_runs_is_watched_over_after_a_kill(
    nvml_scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    scenario = nvml_scenario()
    scenario.write()
    config, out, runtime = tmp_path / "config.toml", tmp_path / "out", tmp_path / "run"
    tmp_path.chmod(0o700)
    config.write_text(
        '[[alert]]\nname = "busy"\nwhen = "util_pct > 50"\nfor = "0s"\nagain = "1h"\n'
        f'run = ["sh", "-c", "cat >>{out}; echo {{gpu}} >>{out}"]\n'
    )
    config.chmod(0o600)
    with recorder(scenario, runtime, config, "record", "--for", "1s", "-o", str(tmp_path / "r.jsonl")) as done:
        _, said = done.communicate(timeout=30)
    assert done.returncode == 0 and said.count("alert busy on GPU 0: sh ended with 0") == 1, said
    assert json.loads(out.read_text().splitlines()[0])["alert"] == "busy"
    # Within the hour nobody fires again: the file in the runtime directory knows.
    with recorder(scenario, runtime, config, "record", "--for", "1s", "-o", str(tmp_path / "s.jsonl")) as again:
        assert "alert" not in again.communicate(timeout=30)[1]
    (runtime / "alerts").unlink()
    with recorder(scenario, runtime, config, "export", "--listen", "127.0.0.1:0") as exporter:
        until(lambda: out.read_text().count('"alert": "busy"') == 2)
        exporter.terminate()
        assert "sh ended with 0" in exporter.communicate(timeout=30)[1]
    (runtime / "alerts").unlink()
    marker = f"27.{os.getpid()}"
    command = f'["sh", "-c", "sleep {marker}; echo late >>{out}"]\n'
    config.write_text(config.read_text().partition('["sh')[0] + command)
    with recorder(scenario, runtime, config, "record", "-o", str(tmp_path / "t.jsonl")) as killed:
        until(lambda: len(left(marker)) == 1)
        killed.send_signal(signal.SIGKILL)
        killed.communicate(timeout=30)
    (sleeping,) = left(marker)
    assert (runtime / "alerts").exists() and FiringLock([str(runtime)]).take(), "a lock ends with its process"
    # The command keeps its 30 s, and the program that sees to its end keeps watch.
    watching = sleeping.parent().parent()
    assert watching is not None and "supervisor.py" in " ".join(watching.cmdline())
    sleeping.kill()
    until(lambda: not watching.is_running())
    assert out.read_text().endswith("\nlate\n")
