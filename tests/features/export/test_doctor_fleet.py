"""What ``gputop doctor`` says of the step socket, extras and files that hold tokens."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

from gputop.features.export.doctor_rows import step_socket
from gputop.model.extras import EXTRAS
from gputop.sources.doctor_report import private_file

DEVELOPERS_EXTRAS = {"test", "lint", "coverage", "integrations", "manifests", "site"}


def test_a_step_socket_is_told_by_who_listens_and_who_may_write(tmp_path: Path) -> None:
    path = str(tmp_path / "steps.sock")
    assert step_socket(path) == {"path": path, "mode": None, "owner": None, "listens": False, "problem": None}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        os.chmod(path, 0o666)
        heard = step_socket(path)
        assert (heard["listens"], heard["mode"], heard["problem"]) == (True, "0666", None)
        os.chmod(path, 0o644)
        assert "not every user may write" in step_socket(path)["problem"]
    assert "nobody listens" in step_socket(path)["problem"]
    os.unlink(path)
    Path(path).write_text("")
    assert "is not a socket" in step_socket(path)["problem"]


def test_a_file_of_tokens_that_others_can_read_is_a_problem_and_is_never_quoted(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("hunter2")
    path.chmod(0o600)
    assert private_file("TOKEN", str(path))["problem"] is None
    path.chmod(0o640)
    assert f"chmod 600 {path}" in private_file("TOKEN", str(path))["problem"]
    assert "hunter2" not in str(private_file("TOKEN", str(path)))
    assert "No such file" in private_file("TOKEN", str(tmp_path / "none"))["problem"]


def test_the_extras_of_the_report_are_those_of_the_package() -> None:
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    section = text.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    declared = dict(re.findall(r'^([\w-]+) = \[\s*"([\w-]+)', section, re.MULTILINE))
    assert set(declared) - DEVELOPERS_EXTRAS == set(EXTRAS)
    for name, extra in EXTRAS.items():
        assert declared[name] == extra.distribution
