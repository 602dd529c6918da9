"""Alerts fired: what is handed to a command, who may fire, and that nothing waits in a tick or outlives its limit."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.features.alerts import node_alerts
from gputop.features.alerts.alert_table import Alert, alerts_of
from gputop.features.alerts.firing import AlertChange, Firing, NotHanded, firing_of
from gputop.features.alerts.node_alerts import CommandOutcome, FiringLock, NodeAlerts
from gputop.model.snapshot import CgroupName, Machine, ProcessSample, ProcessStatic
from gputop.monitor import Frame, Monitor
from gputop.session.session import Session
from gputop.sources.simulation.life import slurm
from tests.support.fake_app import app_on, screen_text
from tests.support.scenes import T0, gpu, snap, train
from tests.support.steady_pilot import shown
from tests.support.waiting import until


def made(**fields: Any) -> Alert:
    (alert,) = alerts_of([{"name": "busy", "when": "util_pct > 50", "for": "0s", **fields}])
    return alert


def framed(*processes: ProcessSample, host: str = "node-17") -> Frame:
    snapshot = snap(0, gpu(), list(processes))
    return Monitor().feed(replace(snapshot, machine=Machine(host)))


def on_gpu(pid: int, job: CgroupName | None) -> ProcessSample:
    static = ProcessStatic(user="ml", command="python train.py --token ********", name="python", batch_job=job)
    return ProcessSample(pid, 1, gpu=0, static=static)


def fired(alert: Alert, frame: Frame, since: float = T0) -> Firing:
    return firing_of(AlertChange("fired", T0, alert, "GPU-0", (0,), ("GPU-0",), since), frame)


def argv(frame: Frame, *run: str) -> list[str]:
    return fired(made(run=["program", *run]), frame).argv()[1:]


def test_placeholders_are_filled_inside_their_argument_and_the_json_says_what_happened() -> None:
    frame = framed(on_gpu(4711, slurm(8821)))
    assert argv(frame, "nodename={host}", "{gpu}:{uuid}", "{job_id}", "{pid}", "{alert} {level}", "{}") == [
        "nodename=node-17", "0:GPU-0", "8821", "4711", f"busy {frame.diagnoses[0].level}", "{}",
    ]  # fmt: skip
    data = json.loads(fired(made(), frame, T0 - 5).json())
    assert (data["alert"], data["host"], data["gpu"], data["alert_since"]) == ("busy", "node-17", 0, T0 - 5)
    assert data["processes"] == [{"pid": 4711, "user": "ml", "command": "python train.py --token ********"}]


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "a;reboot", "$(id)", "", "a\nb", "höst", "a'b"])
def test_a_value_that_a_program_could_take_for_more_than_a_word_cancels_the_call(host: str) -> None:
    with pytest.raises(NotHanded, match="host"):
        argv(framed(host=host), "{host}")


def test_a_value_that_is_missing_or_not_the_only_one_cancels_the_call() -> None:
    with pytest.raises(NotHanded, match="no batch jobs are on GPU 0"):
        argv(framed(on_gpu(1, None)), "{job_id}")
    with pytest.raises(NotHanded, match="2 batch jobs"):
        argv(framed(on_gpu(1, slurm(1)), on_gpu(2, slurm(2))), "{job_id}")
    with pytest.raises(NotHanded, match="2 processes"):
        argv(framed(on_gpu(1, slurm(1)), on_gpu(2, slurm(1))), "{pid}")
    with pytest.raises(NotHanded, match="pci"):
        argv(framed(), "{pci}")


class Held:
    """In the place of commands: each lasts until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: int = 0, output: str = "") -> None:
        self.begun: list[Sequence[str]] = []
        self.most = self.now = 0
        self.go = threading.Event()

        def stand(firing: Firing, is_over: threading.Event) -> CommandOutcome:
            self.begun.append(firing.argv())
            self.now += 1
            self.most = max(self.most, self.now)
            until(lambda: self.go.is_set() or is_over.is_set())
            self.now -= 1
            return CommandOutcome(firing, f"kubectl ended with {code}", code != 0, output)

        monkeypatch.setattr(node_alerts, "outcome_of", stand)


def session_of(alerts: NodeAlerts) -> Session:
    session = Session(Monitor())
    session.alerts = alerts
    return session


def test_one_command_of_an_alert_runs_at_a_time_and_no_tick_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: T0)
    held = Held(monkeypatch)
    alerts = NodeAlerts([made(run=["program", "{gpu}"], again="1s")], FiringLock(str(tmp_path)))
    session = session_of(alerts)
    for tick in range(100):
        session.take(snap(tick, gpu(), [train()]))
    held.go.set()
    until(lambda: len(held.begun) >= 64)
    alerts.close()
    assert held.most == 1
    assert any("64 wait before it" in text for text in alerts.messages), "what waits is bounded"
    assert json.loads((tmp_path / "alerts").read_text())["fired"][0][:2] == ["busy", "GPU-0"]


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
    assert len(held.begun) == 1 and held.now == 0, "what has begun is ended, and nothing fires after the end"
    assert [text.removeprefix("alert busy on GPU 0: ") for text in alerts.messages] == [
        "kubectl ended with 0", "was not run: gputop ended while one before it ran",
    ]  # fmt: skip


def test_the_same_failure_is_told_once_and_the_screen_s_list_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch, 1, "no such node")
    held.go.set()
    alerts = NodeAlerts([made(run=["/usr/bin/kubectl", "cordon", "{host}"], again="1s")], FiringLock(str(tmp_path)))
    session = session_of(alerts)
    for tick in range(5):
        session.take(snap(tick, gpu(), [train()]))
    until(lambda: len(held.begun) == 5 and held.now == 0)
    alerts.close()
    assert list(alerts.messages) == ["alert busy on GPU 0: kubectl ended with 1: no such node"]
    (row,) = alerts.board().rows
    assert row.has_failed and row.last is not None and row.last[2] == "kubectl ended with 1"


def test_what_is_silenced_and_what_is_shown_only_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    held.go.set()
    for lock in (FiringLock(str(tmp_path)), None):
        alerts = NodeAlerts([made(run=["program"])], lock)
        if lock is not None:
            alerts.toggle_silence("busy")
        session = session_of(alerts)
        for tick in range(5):
            session.take(snap(tick, gpu(), [train()]))
        assert alerts.board().rows[0].holds == ((0, T0, True),)
        assert held.begun == []
        alerts.toggle_silence("busy")
        session.take(snap(5, gpu(), [train()]))
        alerts.close()
        assert len(held.begun) == (0 if lock is None else 1), "what still holds fires when it is let"
        held.begun.clear()


async def test_the_screen_lists_alerts_above_the_findings_and_silences_the_one_at_the_cursor() -> None:
    alerts = NodeAlerts([made(), made(name="other", when="temp_c > 900")])
    session = session_of(alerts)
    for tick in range(3):
        session.take(snap(tick, gpu(), [train()]))
    app, source = app_on()
    app.playback.session = session
    async with shown(app, (120, 40)) as pilot:
        await pilot.press("A", "j", "s")
        rows = [row.rstrip() for row in screen_text(app).splitlines()]
        assert rows[0] == " alerts 2   shown only: gputop --alerts fires them"
        assert "busy" in rows[1] and "holds on GPU 0 for" in rows[1]
        assert "other" in rows[3] and "not now   silenced (s)" in rows[3]
        assert any(row.startswith(" findings") for row in rows)
        assert [row.is_silenced for row in alerts.board().rows] == [False, True]
        alerts.messages.append("alert busy on GPU 0: kubectl ended with 0")
        await pilot.press("escape")
        source.next = snap(9, gpu(), [train()])
        app.ready()
        await pilot.pause()
        assert app.view.message == "alert busy on GPU 0: kubectl ended with 0"


def test_one_process_of_a_user_fires_and_the_next_takes_over_what_was_fired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_alerts, "RETRY_S", 0.0)
    monkeypatch.setattr(time, "time", lambda: T0)
    held = Held(monkeypatch)
    held.go.set()
    first, second = (NodeAlerts([made(run=["program", "{gpu}"])], FiringLock(str(tmp_path))) for _ in range(2))
    sessions = session_of(first), session_of(second)
    assert first.why_not() == "" and str(os.getpid()) in second.why_not()
    for session in sessions:
        session.take(snap(0, gpu(), [train()]))
    until(lambda: len(held.begun) == 1 and held.now == 0)
    first.close()
    sessions[1].take(snap(1, gpu(), [train()]))
    sessions[1].take(snap(1, gpu(1), [train()]))
    until(lambda: len(held.begun) == 2)
    second.close()
    fired = {uuid for _, uuid, _ in json.loads((tmp_path / "alerts").read_text())["fired"]}
    assert fired == {"GPU-0", "GPU-1"}, "GPU 0 was silent, by what the first had kept"


@pytest.mark.parametrize(
    "content", ["", "{", '{"pid": "x"}', '{"pid":1,"fired":[["a","b","c"]]}', "[" * 9000, "\0\xff"]
)
def test_a_file_that_was_cut_off_or_written_by_somebody_else_breaks_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "alerts").write_text(content)
    lock = FiringLock(str(tmp_path))
    assert lock.take() and lock.fired() == {}
    lock.note(("a", "GPU-0"), time.time())
    lock.close()
    (tmp_path / "alerts").write_text((tmp_path / "alerts").read_text() + '123, "b"]]}')
    assert FiringLock(str(tmp_path)).take(), "the tail of a longer text is not read"
    (tmp_path / "alerts").unlink()
    (tmp_path / "alerts").symlink_to(tmp_path / "elsewhere")
    linked = FiringLock(str(tmp_path))
    assert not linked.take() and linked.why_not.startswith("nothing is fired") and not (tmp_path / "elsewhere").exists()


def test_an_alert_whose_command_failed_in_a_way_that_nobody_thought_of_says_so_and_fires_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    errors = iter([RecursionError("too deep\x1b[2J")])

    def odd(firing: Firing, _is_over: threading.Event) -> CommandOutcome:
        for error in errors:
            raise error
        return CommandOutcome(firing, "ended with status 0", has_failed=False)

    monkeypatch.setattr(node_alerts, "outcome_of", odd)
    alerts = NodeAlerts([made(run=["program"], again="1s")], FiringLock(str(tmp_path)))
    session = session_of(alerts)
    for count in (1, 2):
        session.take(snap(count, gpu(), [train()]))
        until(lambda count=count: len(alerts.messages) == count)  # type: ignore[misc]
    alerts.close()
    failed, went_well = alerts.messages
    assert failed.startswith("alert busy on GPU 0: did not fire: RecursionError: too deep") and "\x1b" not in failed
    assert went_well == "alert busy on GPU 0: ended with status 0"
