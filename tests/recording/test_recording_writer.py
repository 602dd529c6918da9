"""Where recordings go, what happens to old ones, and that nothing about a disk reaches the monitor."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.model.snapshot import Event, Snapshot
from gputop.recording import writer as writer_module
from gputop.recording.format import RecordingError
from gputop.recording.reader import read_snapshots
from gputop.recording.recorder import QUEUE_FRAMES, Recorder
from gputop.recording.writer import RecordingWriter
from tests.support.recording_frames import T0, frame, frames, recorded_events, times, written


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def record(target: Path, snapshots: Iterator[Snapshot], **given: int | None) -> RecordingWriter:
    writer = RecordingWriter(f"{target}/", most_bytes=given.get("most_bytes"))
    for snapshot in snapshots:
        writer.write(snapshot)
    writer.close()
    return writer


def test_a_recording_is_for_its_owner_alone_and_never_overwrites(tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl.gz", 1)
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    with pytest.raises(RecordingError, match=r"exists already.*choose another name"):
        RecordingWriter(str(path))
    assert path.read_bytes() == before


def test_a_file_that_got_no_frame_is_removed(tmp_path: Path) -> None:
    RecordingWriter(str(tmp_path / "r.jsonl.gz")).close()
    assert names(tmp_path) == []


def test_a_directory_gets_a_new_file_each_hour(tmp_path: Path) -> None:
    record(tmp_path / "d", (frame(k) for k in range(0, 7300, 100)))
    assert len(names(tmp_path / "d")) == 3
    assert times(tmp_path / "d") == list(range(0, 7300, 100))


def test_a_clock_set_back_begins_a_new_file(tmp_path: Path) -> None:
    record(tmp_path / "d", iter([frame(5000), frame(1)]))
    assert len(names(tmp_path / "d")) == 2


def test_a_new_file_each_so_many_bytes_and_the_oldest_whole_ones_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_LEAST_FILE_BYTES", 8192)
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine" * 9999)
    writer = record(folder, frames(600), most_bytes=40_000)
    recordings = [path for path in folder.iterdir() if path.name != "notes.txt"]
    total = sum(path.stat().st_size for path in recordings)
    assert total <= 40_000 + 2 * 8192
    assert writer.bytes_written > 2 * total
    found = times(folder)
    assert found == list(range(600 - len(found), 600))
    assert (folder / "notes.txt").exists()


def test_a_file_that_another_recorder_writes_is_never_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_LEAST_FILE_BYTES", 8192)
    active = tmp_path / "node-17-20200101T000000Z-1.gputop.jsonl.gz"
    finished = tmp_path / "node-17-20200101T000001Z-1.gputop.jsonl.gz"
    active.write_bytes(b"x" * 50_000)
    finished.write_bytes(b"x" * 50_000)
    with open(active, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        record(tmp_path, frames(130), most_bytes=40_000)
    assert active.exists()
    assert not finished.exists()


def test_a_size_limit_for_one_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="needs a directory"):
        RecordingWriter(str(tmp_path / "r.jsonl.gz"), most_bytes=1 << 20)


FULL_DISK = """
import resource, signal, sys
from gputop.recording.recorder import Recorder
from tests.support.recording_frames import frame
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sys.dont_write_bytecode = True  # it would be half a file
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
recorder = Recorder(sys.argv[1])
for k in range(100):
    recorder.offer(frame(k, processes=20))
recorder.close()
print(recorder.frames, recorder.error)
"""


def test_a_full_disk_ends_the_recording_with_a_reason_and_keeps_what_was_written(
    tmp_path: Path,
) -> None:
    path = tmp_path / "r.jsonl.gz"
    made = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=True
    )
    count, _, error = made.stdout.strip().partition(" ")
    assert error.startswith(f"recording stopped: {path}: ")
    assert 0 < int(count) < 100
    assert times(path) == list(range(int(count)))
    assert made.stderr == ""


def test_a_recorder_takes_frames_and_events_and_ends_in_order(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path / "r.jsonl.gz"))
    recorder.event(Event(T0, "mark", "early"))
    for snapshot in frames(3):
        recorder.offer(snapshot, [Event(snapshot.t, "verdict", "healthy", 0)])
    recorder.event(Event(T0 + 3, "mark", "late"))
    recorder.close()
    recorder.offer(frame(9))
    assert (recorder.error, recorder.frames, recorder.dropped, recorder.seconds) == (
        None,
        3,
        0,
        2.0,
    )
    assert recorder.path is not None
    assert recorder.bytes_written == os.path.getsize(recorder.path)
    back = list(read_snapshots(recorder.path))
    assert [[event.text for event in s.events] for s in back] == [["early"], [], ["late"]]
    assert [event.text for event in recorded_events(recorder.path)] == [
        "early",
        *["healthy"] * 3,
        "late",
    ]


def test_a_hung_disk_costs_frames_but_never_holds_the_one_who_offers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold, entered = threading.Event(), threading.Event()

    def hang(self: RecordingWriter, *_: object) -> None:
        entered.set()
        hold.wait()

    monkeypatch.setattr(RecordingWriter, "write", hang)
    recorder = Recorder(str(tmp_path / "r.jsonl.gz"))
    recorder.offer(frame(0))
    assert entered.wait(10.0)
    for _ in range(QUEUE_FRAMES + 5):
        recorder.offer(frame(1))
    assert recorder.dropped == 5
    recorder.close(timeout_s=0.05)
    assert recorder.error is not None and "does not answer" in recorder.error
    hold.set()


def test_a_target_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    for target in (tmp_path / "none" / "r.jsonl.gz", Path("/proc/none/")):
        with pytest.raises(RecordingError):
            Recorder(str(target) + ("/" if target.suffix == "" else ""))


def test_an_interval_that_changes_is_recorded(tmp_path: Path) -> None:
    writer = RecordingWriter(str(tmp_path / "r.jsonl.gz"))
    for k, interval in ((0, 10.0), (10, 1.0), (11, 1.0)):
        writer.write(replace(frame(k), interval_s=interval))
    writer.close()
    assert [s.interval_s for s in read_snapshots(str(tmp_path / "r.jsonl.gz"))] == [10.0, 1.0, 1.0]
