"""A redacted source: what it gives, and what processes are asked, names nobody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
from tests.support.private import assert_private, private_snapshot


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
