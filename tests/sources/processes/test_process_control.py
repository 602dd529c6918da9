"""Signals and environments of real processes: only ever of the one that was meant."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.model.inspection import ProcessIdentity
from gputop.sources.processes.on_demand.control import ProcessControl
from gputop.sources.procfs import parse_stat, read_small
from tests.proc_trees.fake_proc import FakeProc

CODE = "print('ready', flush=True); import time; time.sleep(600)"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", CODE],
        stdout=subprocess.PIPE,
        env={"PATH": "/usr/bin", "HF_TOKEN": "hf_abc", "B": "2=3", "EMPTY": ""},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def _identity(pid: int) -> ProcessIdentity:
    stat = parse_stat(read_small(f"/proc/{pid}/stat"))
    assert stat is not None
    return ProcessIdentity(pid, stat.starttime)


def _dead() -> ProcessIdentity:
    process = subprocess.Popen(["sleep", "600"])
    identity = _identity(process.pid)
    process.kill()
    process.wait()
    return identity


def test_a_signal_reaches_the_process(child: subprocess.Popen[bytes]) -> None:
    outcome = ProcessControl().send(_identity(child.pid), signal.SIGTERM)
    assert outcome.sent and outcome.reason == ""
    assert child.wait(10) == -signal.SIGTERM


@pytest.mark.parametrize("gone", ["pidfd_open", "pidfd_send_signal"])
def test_a_signal_is_sent_without_the_newer_system_calls(
    child: subprocess.Popen[bytes], gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os if gone == "pidfd_open" else signal, gone)
    assert not ProcessControl().send(ProcessIdentity(child.pid, 1), signal.SIGTERM).sent
    assert ProcessControl().send(_identity(child.pid), signal.SIGTERM).sent
    assert child.wait(10) == -signal.SIGTERM


def test_a_pid_that_was_given_to_another_process_gets_no_signal(
    child: subprocess.Popen[bytes],
) -> None:
    starttime = _identity(child.pid).starttime
    assert starttime is not None
    outcome = ProcessControl().send(ProcessIdentity(child.pid, starttime - 1), signal.SIGKILL)
    assert not outcome.sent
    assert "another process" in outcome.reason
    assert child.poll() is None


def test_a_pid_that_is_reused_between_the_check_and_the_signal_gets_none(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The descriptor was opened for a process that has ended since; /proc shows the new owner of its pid.
    dead = subprocess.Popen(["sleep", "600"])
    descriptor = os.pidfd_open(dead.pid)
    dead.kill()
    dead.wait()
    monkeypatch.setattr(os, "pidfd_open", lambda pid: descriptor)
    outcome = ProcessControl().send(_identity(child.pid), signal.SIGKILL)
    assert (outcome.sent, outcome.reason) == (False, "it has ended")
    assert child.poll() is None


def test_an_ended_process_and_one_that_proc_does_not_show_are_told_apart() -> None:
    control = ProcessControl()
    assert control.send(_dead(), signal.SIGTERM).reason == "it has ended"
    assert (
        "not visible in /proc"
        in control.send(ProcessIdentity(os.getpid(), None), signal.SIGTERM).reason
    )


def test_a_process_whose_parent_sleeps_is_called_ended() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    outcome = ProcessControl().send(_identity(process.pid), signal.SIGTERM)
    process.wait()
    assert not outcome.sent
    assert "exit status" in outcome.reason


def test_a_refusal_names_the_owner_and_what_would_help(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(signal, "pidfd_send_signal", denied)
    outcome = ProcessControl().send(_identity(child.pid), signal.SIGTERM)
    assert not outcome.sent
    assert outcome.reason.startswith("permission denied: it belongs to ")
    assert "root" in outcome.reason


def test_an_unknown_signal_is_an_answer_not_an_error(child: subprocess.Popen[bytes]) -> None:
    outcome = ProcessControl().send(_identity(child.pid), 0x7F)
    assert not outcome.sent
    assert "refused" in outcome.reason


def test_an_environment_is_read_and_sorted(child: subprocess.Popen[bytes]) -> None:
    environment = ProcessControl().environment(_identity(child.pid))
    assert dict(environment.variables) == {
        "PATH": "/usr/bin",
        "HF_TOKEN": "hf_abc",
        "B": "2=3",
        "EMPTY": "",
    }
    assert list(environment.variables) == sorted(environment.variables)
    assert environment.reason == ""


def test_the_environment_of_another_or_ended_process_is_never_shown(
    child: subprocess.Popen[bytes],
) -> None:
    control = ProcessControl()
    starttime = _identity(child.pid).starttime
    for identity in (
        ProcessIdentity(child.pid, (starttime or 0) + 1),
        ProcessIdentity(child.pid, None),
        _dead(),
    ):
        environment = control.environment(identity)
        assert environment.variables == ()
        assert environment.reason


def test_a_denied_environment_says_who_may_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeProc(tmp_path)
    fake.process(4711, starttime=5000)

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", denied)
    environment = ProcessControl(str(fake.proc)).environment(ProcessIdentity(4711, 5000))
    assert environment.variables == ()
    assert "root only" in environment.reason


def test_a_process_that_is_replaced_while_it_is_read_gives_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeProc(tmp_path)
    fake.process(4711, starttime=5000)
    fake.write("proc/4711/environ", "A=1\0")
    checked: list[str | None] = [None, "it has ended and its pid belongs to another process now"]
    monkeypatch.setattr(
        "gputop.sources.processes.on_demand.control.identity_problem",
        lambda proc, identity: checked.pop(0),
    )
    environment = ProcessControl(str(fake.proc)).environment(ProcessIdentity(4711, 5000))
    assert environment.variables == ()
    assert "another process" in environment.reason
    assert checked == []
