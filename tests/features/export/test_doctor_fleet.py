"""What ``gputop doctor`` says of exporters, the step socket, extras and files that hold tokens."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gputop.features.export import doctor_rows
from gputop.features.export.doctor_rows import exporters, step_socket
from gputop.model.extras import EXTRAS
from gputop.sources.doctor_report import private_file
from tests.support.answering import answering

NOBODY = "127.0.0.1:1"
PAGE = '# TYPE gputop_up gauge\ngputop_up 1\n# TYPE x gauge\ngputop_build_info{version="0.1.0"} 1\n'
DEVELOPERS_EXTRAS = {"test", "lint", "coverage", "integrations", "manifests", "site"}


@pytest.fixture
def served() -> Iterator[dict[str, Any]]:
    """A server whose page a test chooses; its address stands under ``at``."""
    given: dict[str, Any] = {"page": PAGE}

    with answering(lambda *_: (200, given["page"].encode(), {})) as port:
        given["at"] = f"127.0.0.1:{port}"
        yield given


def proc(folder: Path, **commands: str) -> str:
    """A /proc with these command lines by pid, their words parted by spaces."""
    folder.mkdir(exist_ok=True)
    for pid, words in commands.items():
        (folder / pid.strip("p")).mkdir()
        (folder / pid.strip("p") / "cmdline").write_bytes(words.replace(" ", "\0").encode() + b"\0")
    return str(folder)


def test_exporters_are_found_by_their_command_and_asked_whether_their_values_are_of_this_moment(
    tmp_path: Path, served: dict[str, Any]
) -> None:
    tree = proc(
        tmp_path,
        p10=f"/usr/bin/python3 /usr/local/bin/gputop export --listen {served['at']}",
        p11="python3 -m gputop export --textfile=/var/lib/x.prom",
        p12="/usr/local/bin/gputop export --tls-cert c.pem --listen :9402",
        p13="/usr/local/bin/gputop export --once",
        p14="vim gputop export",
        p15=f"/usr/local/bin/gputop --theme mono export --listen {NOBODY}",
    )
    found = {row["pid"]: row for row in exporters(served["at"], tree)}
    assert set(found) == {10, 11, 12, 15}
    assert (found[10]["answers"], found[10]["up"], found[10]["version"]) == (True, True, "0.1.0")
    assert (found[11]["listen"], found[11]["textfile"], found[11]["answers"]) == (None, True, None)
    assert (found[12]["tls"], found[12]["answers"], found[12]["problem"]) == (True, None, None)
    assert (found[15]["answers"], found[15]["problem"]) == (None, None), "another address is not asked"
    (row,) = exporters(NOBODY, proc(tmp_path / "one", p15=f"gputop export --listen {NOBODY}"))
    assert row["answers"] is False and NOBODY in row["problem"]
    assert "c.pem" not in str(found) and "/var/lib" not in str(found)


def test_only_the_usual_address_is_asked_whatever_command_lines_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(doctor_rows, "get", lambda url, timeout_s: asked.append(url) or PAGE)
    foreign = ("192.0.2.7:80", "evil.example:80", "[2001:db8::1]:80", "127.0.0.1:22", "evil.example:1", ":x", ":2")
    commands = {f"p{100 + i}": f"gputop export --listen {listen}" for i, listen in enumerate(foreign)}
    found = exporters(NOBODY, proc(tmp_path, **commands, p200="gputop export --listen 0.0.0.0:1"))
    assert [row["answers"] for row in found if row["pid"] and row["pid"] < 200] == [None] * len(foreign)
    assert asked == [f"http://{NOBODY}/metrics"]
    many = tmp_path / "many"
    many.mkdir()
    assert len(exporters(NOBODY, proc(many, **{f"p{n}": "gputop export --listen :9" for n in range(99)}))) <= 17


def test_an_exporter_whose_process_is_hidden_is_found_where_one_usually_listens(
    tmp_path: Path, served: dict[str, Any]
) -> None:
    (row,) = exporters(served["at"], str(tmp_path))
    assert (row["pid"], row["answers"]) == (None, True)
    served["page"] = PAGE.replace("gputop_up 1", "gputop_up 0")
    assert exporters(served["at"], str(tmp_path))[0]["up"] is False
    served["page"] = "node_load1 0.2\n"
    assert exporters(served["at"], str(tmp_path)) == [], "something else may listen there: no exporter of ours"
    tree = proc(tmp_path, p10=f"/usr/local/bin/gputop export --listen {served['at']}")
    assert "something else answers" in exporters(served["at"], tree)[0]["problem"]


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
