"""Alerts fired: what is handed to a command, who may fire, and that nothing waits in a tick or outlives its limit."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.features.alerts import node_alerts
from gputop.features.alerts.alert_table import Alert, alerts_of
from gputop.features.alerts.evaluator import Firing, firing
from gputop.features.alerts.node_alerts import CommandOutcome, FiringLock, NodeAlerts
from gputop.model.snapshot import CgroupName, Machine, ProcessSample, ProcessStatic
from gputop.monitor import Frame, Monitor
from gputop.session.session import Session
from gputop.sources.simulation.life import slurm
from tests.support.scenes import T0, gpu, snap, train
from tests.support.waiting import until


def made(**fields: Any) -> Alert:
    (alert,) = alerts_of([{"name": "busy", "when": "util_pct > 50", "for": "0s", **fields}])
    return alert


def framed(*processes: ProcessSample, host: str = "node-17") -> Frame:
    snapshot = snap(0, gpu(), list(processes))
    return Monitor().feed(replace(snapshot, machine=Machine(host)))


def on_gpu(pid: int, job: CgroupName | None) -> ProcessSample:
    static = ProcessStatic(
        user="ml", command="python train.py --token ********", name="python", batch_job=job
    )
    return ProcessSample(pid, 1, gpu=0, static=static)


def test_a_command_gets_the_values_in_its_environment_and_the_verdict_as_json() -> None:
    frame = framed(on_gpu(4711, slurm(8821)))
    fired = firing(made(), frame, [0], T0 - 5)
    assert fired.variables == {
        "GPUTOP_ALERT": "busy", "GPUTOP_WHEN": "util_pct > 50", "GPUTOP_HOST": "node-17", "GPUTOP_GPUS": "0",
        "GPUTOP_UUIDS": "GPU-0", "GPUTOP_VERDICT": frame.diagnoses[0].verdict, "GPUTOP_LEVEL": frame.diagnoses[0].level,
        "GPUTOP_JOB_ID": "8821", "GPUTOP_PIDS": "4711",
    }  # fmt: skip
    page = (Path(__file__).parents[3] / "docs" / "alerts.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in page for name in fired.variables)
    data: Any = fired.data
    assert (data["alert"], data["host"], data["gpu"], data["alert_since"]) == (
        "busy",
        "node-17",
        0,
        T0 - 5,
    )
    assert data["processes"] == [
        {"pid": 4711, "user": "ml", "command": "python train.py --token ********"}
    ]


def test_a_job_that_is_missing_or_not_the_only_one_sets_no_variable() -> None:
    assert "GPUTOP_JOB_ID" not in firing(made(), framed(on_gpu(1, None)), [0], T0).variables
    two = firing(made(), framed(on_gpu(1, slurm(1)), on_gpu(2, slurm(2))), [0], T0).variables
    assert "GPUTOP_JOB_ID" not in two and two["GPUTOP_PIDS"] == "1,2"
    assert "GPUTOP_PIDS" not in firing(made(), framed(), [0], T0).variables


HOSTILE = [
    "-oProxyCommand=x", "a b", "$(touch {trap})", "`touch {trap}`", "a\nb", "a'b\"", "; touch {trap}", "x\0y", "höst",
]  # fmt: skip


@pytest.mark.parametrize("host", HOSTILE)
def test_a_hostile_value_reaches_a_shell_as_one_word_and_runs_nothing(
    host: str, tmp_path: Path
) -> None:
    trap = tmp_path / "ran"
    host = host.replace("{trap}", str(trap))
    alert = made(run=["sh", "-c", 'printf "%s" "$GPUTOP_HOST" | od -An -tx1'])
    outcome = node_alerts.run_command(firing(alert, framed(host=host), [0], T0))
    printed = bytes.fromhex("".join(outcome.output.replace("⏎", "").split()))
    assert (
        printed.decode() == host.replace("\0", "") and not trap.exists() and not outcome.has_failed
    )


class Held:
    """In the place of commands: each lasts until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: int = 0, output: str = "") -> None:
        self.begun: list[tuple[int, ...]] = []
        self.most = self.now = 0
        self.go = threading.Event()

        def stand(firing: Firing, is_over: threading.Event) -> CommandOutcome:
            self.begun.append(firing.gpus)
            self.now += 1
            self.most = max(self.most, self.now)
            until(lambda: self.go.is_set() or is_over.is_set())
            self.now -= 1
            return CommandOutcome(firing, f"kubectl ended with {code}", code != 0, output)

        monkeypatch.setattr(node_alerts, "run_command", stand)


def session_of(alerts: NodeAlerts) -> Session:
    session = Session(Monitor())
    session.alerts = alerts
    return session


def test_one_command_of_an_alert_runs_at_a_time_and_no_tick_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    alerts = NodeAlerts([made(run=["program"], again="1s")], FiringLock(str(tmp_path)))
    session = session_of(alerts)
    for tick in range(100):
        session.take(snap(tick, gpu(), [train()]))
    held.go.set()
    until(lambda: len(held.begun) >= 64)
    alerts.close()
    assert held.most == 1
    assert any("64 wait before it" in text for text in alerts.messages), "what waits is bounded"


def test_the_end_waits_a_little_for_what_has_begun_and_says_what_was_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    alerts = NodeAlerts([made(run=["program"], again="1s")], FiringLock(str(tmp_path)))
    session = session_of(alerts)
    session.take(snap(0, gpu(), [train()]))
    until(lambda: held.now == 1)
    session.take(snap(1, gpu(), [train()]))
    monkeypatch.setattr(node_alerts, "END_S", 0.2)
    alerts.close()
    session.take(snap(2, gpu(), [train()]))
    assert len(held.begun) == 1 and held.now == 0, (
        "what has begun is ended, and nothing fires after the end"
    )
    assert [text.removeprefix("alert busy on GPU 0: ") for text in alerts.messages] == [
        "kubectl ended with 0", "was not run: gputop ended while another command ran",
    ]  # fmt: skip


def test_the_same_failure_is_told_once_and_the_screen_s_list_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch, 1, "no such node")
    held.go.set()
    alerts = NodeAlerts([made(run=["/usr/bin/kubectl"], again="1s")], FiringLock(str(tmp_path)))
    session = session_of(alerts)
    for tick in range(5):
        session.take(snap(tick, gpu(), [train()]))
    until(lambda: len(held.begun) == 5 and held.now == 0)
    alerts.close()
    assert list(alerts.messages) == ["alert busy on GPU 0: kubectl ended with 1: no such node"]
    (row,) = alerts.board().rows
    assert row.has_failed and row.last is not None and row.last[2] == "kubectl ended with 1"


def test_one_process_of_a_user_fires_and_when_it_ends_another_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    held.go.set()
    first, second = (
        NodeAlerts([made(run=["program"], again="1s")], FiringLock(str(tmp_path))) for _ in range(2)
    )
    sessions = session_of(first), session_of(second)
    assert first.why_not() == "" and "another gputop" in second.why_not()
    for session in sessions:
        session.take(snap(0, gpu(), [train()]))
    until(lambda: len(held.begun) == 1 and held.now == 0)
    first.close()
    sessions[1].take(snap(1, gpu(), [train()]))
    until(lambda: len(held.begun) == 2)
    assert second.why_not() == ""
    second.close()


@pytest.mark.parametrize("content", ["", "{", "x" * 9000, "\0\xff"])
def test_a_lock_file_with_any_content_is_taken_and_a_link_is_not(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "alerts").write_text(content)
    lock = FiringLock(str(tmp_path))
    assert lock.take() and lock.take()
    lock.close()
    (tmp_path / "alerts").unlink()
    (tmp_path / "alerts").symlink_to(tmp_path / "elsewhere")
    linked = FiringLock(str(tmp_path))
    assert (
        not linked.take()
        and linked.why_not.startswith("nothing is fired")
        and not (tmp_path / "elsewhere").exists()
    )
