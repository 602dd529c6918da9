"""Two recipes of docs/alerts.md, run by ``gputop record`` with the real scontrol and curl."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from gputop.features.alerts.alert_table import alerts_of
from gputop.features.alerts.evaluator import Firing
from gputop.features.alerts.node_alerts import CommandOutcome, run_command
from tests.nvml.stand_in import Scenario
from tests.support.answering import Answer, answering
from tests.support.slurm import Slurm, no_slurm, slurm

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = [pytest.mark.slow, pytest.mark.nvml]
ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "alerts.md"
with_slurm = pytest.mark.skipif(bool(no_slurm()), reason=no_slurm() or "it is here")
RECORD = """
import os, sys
from gputop.sources import runtime_directories
place = sys.argv.pop(1)
runtime_directories.login_directories = lambda: [place]
from gputop.cli import main
sys.exit(main(sys.argv[1:]))
"""


def recipe(name: str) -> str:
    """The TOML block of one alert on the page."""
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = (block for block in blocks if f'name = "{name}"' in block and "'''" in block)
    return block


def tried(name: str, **variables: str) -> CommandOutcome:
    """Run a recipe's command alone, with these values."""
    (alert,) = alerts_of(tomllib.loads(recipe(name))["alert"])
    values = {"GPUTOP_ALERT": name, "GPUTOP_GPUS": "0", **variables}
    return run_command(Firing(alert, 0.0, 0.0, (0,), ("GPU-0",), values, {}))


def record(scenario: Scenario, folder: Path, name: str, when: str | None = None) -> str:
    """Record for some seconds on a machine with Xid 79 and these alerts; what was said."""
    folder.chmod(0o700)
    config = folder / "config.toml"
    text = recipe(name)
    config.write_text(
        text
        if when is None
        else re.sub(r"(?m)^when = .*\nfor = .*$", f'when = "{when}"\nfor = "0s"', text)
    )
    config.chmod(0o600)
    scenario.gpus[0].xids.append(79)
    scenario.write()
    command = [
        sys.executable,
        "-c",
        RECORD,
        str(folder / "run"),
        "record",
        "--for",
        "3s",
        "-o",
        str(folder / "r"),
    ]
    done = subprocess.run(
        [*command, "--config", str(config)], cwd=ROOT, env={**os.environ, **scenario.environment()},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    with slurm(tmp_path / "slurm") as running:
        for name in ("PATH", "SLURM_CONF"):
            monkeypatch.setenv(name, running.environment[name])
        # A command gets no SLURM_CONF: the usual place leads to it, as on a real node.
        yield running


@with_slurm
def test_a_slurm_node_with_xid_79_is_drained_and_what_a_person_wrote_stays(
    nvml_scenario: Callable[..., Scenario], tmp_path: Path, cluster: Slurm
) -> None:
    place = Path("/etc/slurm/slurm.conf")
    assert not place.exists(), "another Slurm is configured here"
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(tmp_path / "slurm" / "slurm.conf")

    def node() -> str:
        return cluster.run("scontrol", "--oneliner", "show", "node", cluster.node)

    try:
        for host in (
            "ALL",
            "DEFAULT",
            f"{cluster.node},x",
            "n[1-99]",
            "--help",
            "$(reboot)",
            "nosuch",
        ):
            tried("drain", GPUTOP_HOST=host)
            assert "DRAIN" not in node(), host
        said = record(nvml_scenario(), tmp_path, "drain")
        assert "alert drain on GPU 0: sh ended with status 0" in said
        assert "DRAIN" in node() and "Reason=gputop: drain, GPU 0" in node()
        cluster.run("scontrol", "update", f"NodeName={cluster.node}", "State=RESUME")
        cluster.run(
            "scontrol",
            "update",
            f"NodeName={cluster.node}",
            "State=DRAIN",
            "Reason=new fans, ask Ada",
        )
        assert not tried("drain", GPUTOP_HOST=f"{cluster.node}.example.org").has_failed
        assert "Reason=new fans, ask Ada" in node()
    finally:
        place.unlink()


@pytest.mark.skipif(not shutil.which("curl") or not shutil.which("jq"), reason="no curl or no jq")
def test_a_chat_gets_one_message_and_no_process_table_shows_its_address(
    nvml_scenario: Callable[..., Scenario], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[tuple[str, str | None, Any]] = []

    def hook(asked: BaseHTTPRequestHandler, body: bytes) -> Answer:
        got.append((asked.path, asked.headers["Content-Type"], json.loads(body)))
        return 200, b"", {}

    with answering(hook) as port:
        place = tmp_path / ".config" / "gputop"
        place.mkdir(parents=True)
        address = f"http://127.0.0.1:{port}/hooks/SECRET"
        (place / "chat").write_text(
            f'url = "{address}"\nheader = "Content-Type: application/json"\n'
        )
        monkeypatch.setenv("HOME", str(tmp_path))
        assert "SECRET" not in recipe("chat")
        said = record(nvml_scenario(2), tmp_path, "chat", when="util_pct >= 0")
        assert "alert chat on GPUs 0, 1: sh ended with status 0" in said
    ((path, kind, message),) = got
    assert (path, kind) == ("/hooks/SECRET", "application/json")
    assert re.fullmatch(
        rf"chat on {re.escape(socket.gethostname())}, GPUs 0, 1: .+", message["text"]
    )
