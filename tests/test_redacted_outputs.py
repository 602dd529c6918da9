"""``--redact`` in what commands print, record and draw, and in what processes are asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gputop.cli import main
from gputop.model.inspection import (
    DeepLook,
    Environment,
    InspectedProcess,
    InspectedThread,
    ProcessIdentity,
    SignalOutcome,
    ThreadStack,
)
from gputop.model.redaction import Redactor
from gputop.model.snapshot import Event, Snapshot
from gputop.recording.writer import RecordingWriter
from gputop.sources.redacted import NOT_SHOWN, Redacted, RedactedAccess
from tests.support.private import PRIVATE, assert_private, private_snapshot


@pytest.fixture
def recording(tmp_path: Path) -> str:
    path = str(tmp_path / "r.jsonl.gz")
    writer = RecordingWriter(path)
    for t in range(40):
        writer.write(private_snapshot(float(t)))
    writer.close()
    return path


def _unwrapped(text: str) -> int:
    """Lines, but for those that go on with the one before: a name may be longer than what stands in its place."""
    return sum(not line.startswith("    ") for line in text.splitlines())


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "FILE"), ("compare", "FILE", "FILE", "--json"), ("dump", "FILE", "--csv"), ("diagnose", "FILE"),
        *(
            pytest.param(words, marks=pytest.mark.slow)
            for words in (
                ("report", "FILE", "--json"), ("report", "FILE", "--markdown"), ("compare", "FILE", "FILE"),
                ("dump", "FILE", "--json"), ("diagnose", "FILE", "--json"),
            )
        ),
    ],
    ids=" ".join,
)  # fmt: skip
def test_commands_on_a_recording_print_no_name(
    recording: str, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.replace("FILE", recording) for word in arguments]
    main(words)
    plain = capsys.readouterr().out
    main([*words, "--redact"])
    shown = capsys.readouterr().out
    assert_private(shown)
    assert _unwrapped(shown) == _unwrapped(plain)
    assert "compare" in arguments or any(word in plain for word in PRIVATE)


@pytest.mark.parametrize(
    "suffix", ["txt", *(pytest.param(suffix, marks=pytest.mark.slow) for suffix in ("svg", "ans"))]
)
def test_a_picture_shows_no_name(recording: str, suffix: str, tmp_path: Path) -> None:
    for name, more in (("plain", []), ("redacted", ["--redact"])):
        assert main(["screenshot", recording, "-o", str(tmp_path / f"{name}.{suffix}"), *more]) == 0
    assert "alice" in (tmp_path / f"plain.{suffix}").read_text()
    assert_private((tmp_path / f"redacted.{suffix}").read_text())


def test_a_recording_of_a_redacted_source_holds_no_name(tmp_path: Path) -> None:
    class Once:
        interval_s = 1.0
        late = (Event(1.0, "mark", "alice is done"),)

        def start(self, notify: Any) -> None: ...

        def poll(self) -> Snapshot:
            return private_snapshot()

        def close(self) -> None: ...

    source = Redacted(Once(), Redactor())
    snapshot = source.poll()
    assert snapshot is not None
    writer = RecordingWriter(str(tmp_path / "r.jsonl"))
    writer.write(snapshot)
    writer.close()
    assert_private((tmp_path / "r.jsonl").read_text())
    assert source.late[0].text == "user1 is done"


def test_what_processes_are_asked_names_nobody() -> None:
    me = ProcessIdentity(1, 2)

    class Access:
        def send(self, identity: ProcessIdentity, number: int) -> SignalOutcome:
            return SignalOutcome(identity, False, "it belongs to alice")

        def environment(self, identity: ProcessIdentity) -> Environment:
            return Environment(identity, (("HOME", "/home/alice"),))

        def look(self, identity: ProcessIdentity, loader: ProcessIdentity | None) -> DeepLook:
            stack = ThreadStack((("step", "/data/secret-project/train.py", 3),))
            sight = InspectedProcess(identity, (InspectedThread(1, "alice", "S"),), (stack,))
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


def test_own_processes_are_found_under_their_user_s_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--once", "--redact", "-u", "rl"]) == 0
    shown = capsys.readouterr().out
    assert "4711" in shown and "user1" in shown
    assert "4301" not in shown and "train.py" not in shown
