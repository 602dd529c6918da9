"""Marks reach every listener of the same user, and nobody else's directory is trusted."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from gputop import cli
from gputop.model.inspection import (
    DeepLook,
    Environment,
    InspectedProcess,
    ProcessIdentity,
    SignalOutcome,
    ThreadSample,
    ThreadStack,
)
from gputop.model.redaction import Redactor
from gputop.model.snapshot import Event, Machine, Snapshot
from gputop.sources import marks
from gputop.sources.marked import Marked
from gputop.sources.marks import MOST_MARK, MOST_OFF_S, MarkListener, Sent, send_mark
from gputop.sources.redacted import NOT_SHOWN, RedactedAccess
from tests.support.polled import PolledSource
from tests.support.private import assert_private, private_snapshot

NOW = 1_780_000_000.0


def listening(**given: float) -> MarkListener:
    return MarkListener(lambda: NOW, **given)


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found = [str(tmp_path / "run"), str(tmp_path / "private")]
    monkeypatch.setattr(marks, "runtime_directories", lambda: found)
    return found


def test_a_mark_reaches_every_listener_in_order() -> None:
    listeners = [listening(), listening()]
    assert send_mark("epoch 1", NOW) == Sent(2)
    assert send_mark("epoch 2", NOW + 1) == Sent(2)
    for listener in listeners:
        assert listener.drain() == [
            Event(NOW, "mark", "epoch 1"),
            Event(NOW + 1, "mark", "epoch 2"),
        ]
        assert listener.drain() == []
        listener.close()
    assert send_mark("epoch 3", NOW) == Sent(0)


def test_only_the_user_can_enter(places: list[str]) -> None:
    listener = listening()
    assert os.stat(places[0]).st_mode & 0o777 == 0o700
    (entry,) = Path(places[0]).iterdir()
    assert entry.stat().st_mode & 0o777 == 0o600
    listener.close()
    assert list(Path(places[0]).iterdir()) == []


@pytest.mark.parametrize("fault", ["open to others", "a link", "a file"])
def test_a_directory_that_is_not_the_users_own_is_passed_over(
    places: list[str], tmp_path: Path, fault: str
) -> None:
    first = Path(places[0])
    if fault == "open to others":
        first.mkdir()
        first.chmod(0o777)
    elif fault == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        first.symlink_to(tmp_path / "elsewhere")
    else:
        first.write_text("")
    listener = listening()
    assert listener.reason is None
    assert send_mark("x", NOW) == Sent(1)
    assert len(listener.drain()) == 1
    listener.close()


def test_when_no_place_is_safe_the_listener_says_why(places: list[str]) -> None:
    for place in places:
        Path(place).write_text("")
    listener = listening()
    assert listener.reason is not None and places[0] in listener.reason
    assert listener.drain() == []
    listener.close()


def test_what_is_sent_is_cleaned_and_cut() -> None:
    listener = listening()
    send_mark("\x1b[2J" + "x" * 5000, NOW)
    (event,) = listener.drain()
    assert event.text.startswith("?[2J") and len(event.text) == MOST_MARK
    listener.close()


@pytest.mark.parametrize(
    "data",
    [b"", b"x", b"[]", b'{"t":1}', b'{"t":"x","text":"a"}', b'{"t":NaN,"text":"a"}', b"[" * 8000],
)
def test_what_is_no_mark_is_ignored(places: list[str], data: bytes) -> None:
    listener = listening()
    (path,) = Path(places[0]).iterdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(data, str(path))
    send_mark("good", NOW)
    assert [event.text for event in listener.drain()] == ["good"]
    listener.close()


def test_a_listener_that_does_not_look_never_holds_a_sender() -> None:
    listener = listening()
    sent = [send_mark(str(n), NOW) for n in range(2000)]
    assert sent[0] == Sent(1)
    assert sent[-1] == Sent(0, (f"process {os.getpid()} has too many marks waiting",))
    assert len(listener.drain()) == min(64, sum(each.reached for each in sent))
    listener.close()


def test_a_mark_that_one_of_two_listeners_lost_is_an_error_and_says_whose(
    places: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    full = listening()
    while not send_mark("x", NOW).lost:
        pass
    looks = listening()
    assert cli.main(["mark", "epoch", "3"]) == 1
    told = capsys.readouterr().err
    assert (
        told
        == f"gputop: the mark missed 1 of 2 listeners: process {os.getpid()} has too many marks waiting\n"
    )
    full.drain()
    assert cli.main(["mark", "epoch", "4"]) == 0
    full.close()
    looks.close()


@pytest.mark.parametrize("off", [-1e9, -3600.0, -MOST_OFF_S - 1, MOST_OFF_S + 1, 86400.0, 1e10])
def test_a_mark_of_another_time_is_not_taken(off: float) -> None:
    listener = listening()
    send_mark("long ago, or not yet", NOW + off)
    send_mark("now", NOW - MOST_OFF_S)
    assert [event.text for event in listener.drain()] == ["now"]
    listener.close()


class _Source(PolledSource):
    t = 0.0

    def poll(self) -> Snapshot:
        self.t += 1.0
        return Snapshot(self.t, Machine("node"))


def test_a_source_with_marks_hands_them_out_with_the_next_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    source = Marked(_Source())
    source.begin(0.0)
    assert not any(tmp_path.iterdir()), "the first frame waits for no socket"
    source.begin(0.0)
    assert send_mark("epoch 3", time.time()).reached >= 1
    snapshot = source.begin(0.0)
    assert snapshot is not None
    assert [event.text for event in snapshot.events] == ["epoch 3"]
    source.close()


# A redacted source: what it gives, and what processes are asked, names nobody.


def test_what_processes_are_asked_names_nobody() -> None:
    me = ProcessIdentity(1, 2)

    class Access:
        def send(self, identity: ProcessIdentity, number: int) -> SignalOutcome:
            return SignalOutcome(identity, False, "it belongs to alice")

        def environment(self, identity: ProcessIdentity) -> Environment:
            return Environment(identity, (("HOME", "/home/alice"),))

        def look(self, identity: ProcessIdentity, loader: ProcessIdentity | None) -> DeepLook:
            stack = ThreadStack((("step", "/data/secret-project/train.py", 3),))
            sight = InspectedProcess(identity, (ThreadSample(1, "alice", "S"),), (stack,))
            return DeepLook(sight, sight, ("python", "/data/x.py"), "/home/alice")

        def command(self, identity: ProcessIdentity) -> str:
            return "python --token hunter2"

        def watch_threads(self, identity: ProcessIdentity) -> Any:
            return "threads"

    redactor = Redactor()
    redactor.snapshot(private_snapshot())
    access = RedactedAccess(Access(), redactor)
    assert access.send(me, 9).reason == "it belongs to user1"
    assert access.environment(me) == Environment(me, reason=NOT_SHOWN)
    look = access.look(me, me)
    assert_private(repr(look))
    assert (look.argv, look.folder) == ((), None)
    assert json.dumps(look.process.stacks[0].frames) == '[["step", "path2", 3]]'
    assert access.command(me) == ""
    assert access.watch_threads(me) == "threads"
