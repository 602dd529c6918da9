"""Recordings that were torn, flipped, forged or made by another hand: read as far as they are true, never further."""

from __future__ import annotations

import gzip
import json
import os
import random
import zlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.recording.encode import Encoder
from gputop.recording.file_lines import FilePart, lines_of, open_recording
from gputop.recording.format import RecordingError
from gputop.recording.reader import Recording, read_snapshots
from gputop.recording.writer import RecordingWriter
from tests.support.descriptors import open_below
from tests.support.recording_frames import T0, frame, frames, rounded, times, written

GOLDEN = Path(__file__).parents[1] / "golden"


def members_of(data: bytes) -> list[int]:
    """Offsets of the gzip members of a sound file."""
    offsets, at = [], 0
    while at < len(data):
        offsets.append(at)
        unpacker = zlib.decompressobj(31)
        unpacker.decompress(data[at:])
        at = len(data) - len(unpacker.unused_data)
    return offsets


@pytest.mark.parametrize("name", ["r.gputop.jsonl.gz", "r.jsonl"])
def test_what_was_written_is_read_whatever_the_file_is_called(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, 130).rename(tmp_path / "renamed")
    back = list(read_snapshots(str(path)))
    assert [replace(s, machine=frame(0).machine) for s in back] == [rounded(s) for s in frames(130)]


def test_zcat_reads_a_recording(tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl.gz", 70)
    lines = gzip.decompress(path.read_bytes()).splitlines()
    assert [json.loads(line)["k"] for line in lines].count("frame") == 70
    assert [i for i, line in enumerate(lines) if b'"k":"key"' in line] == [0, 61]


def test_a_recording_that_was_packed_again_by_gzip_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl", 130)
    packed = tmp_path / "r.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert times(packed) == list(range(130))


@pytest.mark.parametrize("name", ["r.jsonl.gz", "r.jsonl"])
def test_a_torn_tail_costs_only_what_was_not_finished(tmp_path: Path, name: str) -> None:
    whole = written(tmp_path / name, 5, gpus=1, processes=1).read_bytes()
    path = tmp_path / "torn"
    before = 0
    # Every length near the end, where the newest frames are torn, and every 29th before.
    for size in (*range(0, len(whole) - 100, 29), *range(max(0, len(whole) - 100), len(whole))):
        path.write_bytes(whole[:size])
        try:
            found = times(path)
        except RecordingError:
            found = []
        assert found == list(range(len(found)))
        assert len(found) >= before
        before = len(found)
    assert before == 5


def test_each_acknowledged_frame_is_in_the_file_before_the_next(tmp_path: Path) -> None:
    writer = RecordingWriter(str(tmp_path / "r.jsonl.gz"))
    for k, snapshot in enumerate(frames(65)):
        writer.write(snapshot)
        if k % 8 == 0:
            assert times(tmp_path / "r.jsonl.gz") == list(range(k + 1))
    writer.close()


def test_a_flipped_byte_costs_at_most_its_member_and_shows_as_a_gap(tmp_path: Path) -> None:
    whole = written(tmp_path / "r.jsonl.gz", 240, gpus=1, processes=1).read_bytes()
    offsets = [*members_of(whole), len(whole)]
    assert len(offsets) == 5
    truth = {s.t: s.gpus for s in (rounded(s) for s in frames(240, gpus=1, processes=1))}
    draw = random.Random(7)
    path = tmp_path / "flipped"
    places = [*offsets[:-1], *(o + 1 for o in offsets[:-1]), *(o - 1 for o in offsets[1:])]
    for place in [*places, *(draw.randrange(len(whole)) for _ in range(8))]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        hit = next(i for i, offset in enumerate(offsets[1:]) if place < offset)
        expected = {T0 + k for k in range(240) if k // 60 != hit}
        found = list(read_snapshots(str(path)))
        assert expected <= {s.t for s in found}, place
        assert all(s.gpus == truth[s.t] for s in found), place
        if len(found) < 240 and hit < 3:
            after = next(s for s in found if s.t >= T0 + 60 * (hit + 1))
            assert [event.kind for event in after.events] == ["gap"]


@pytest.mark.parametrize(("lost", "said"), [(0, "before this"), (1, "damaged here"), (3, "after this")])
@pytest.mark.parametrize("place", [2, -12], ids=["header", "end"])
def test_a_lost_member_is_called_damage_wherever_it_stood(tmp_path: Path, lost: int, said: str, place: int) -> None:
    path = written(tmp_path / "r.jsonl.gz", 240, gpus=1, processes=1)
    data = bytearray(path.read_bytes())
    ends = [*members_of(bytes(data)), len(data)]
    at = ends[lost] + place if place > 0 else ends[lost + 1] + place
    data[at : at + 8] = b"\xff" * 8
    path.write_bytes(data)
    recording = Recording(str(path))
    found = [event.text for snapshot in recording.snapshots() for event in snapshot.events if event.kind == "gap"]
    recording.close()
    assert len(found) == 1
    assert said in found[0]
    assert sum(event.kind == "gap" for snapshot in read_snapshots(str(path)) for event in snapshot.events) == 1


def test_two_torn_recordings_written_behind_each_other_lose_at_most_the_torn_member(tmp_path: Path) -> None:
    first = written(tmp_path / "a.jsonl.gz", 100).read_bytes()
    path = tmp_path / "joined"
    path.write_bytes(first[:-50] + first)
    found = times(path)
    assert found[:60] == list(range(60))
    assert found[-100:] == list(range(100))


def test_a_member_that_runs_over_the_next_one_is_not_believed(tmp_path: Path) -> None:
    stored = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff" + b"\x00\xff\xff\x00\x00" + b'{"k":"frame","t":1}\n'
    path = tmp_path / "r"
    path.write_bytes(stored + b"the next one")
    with open_recording(str(path)) as file:
        assert list(lines_of(file, FilePart(0, True, 0, len(stored)))) == [None]
        assert next(lines_of(file, FilePart(0, True))) == b'{"k":"frame","t":1}', "torn, if nothing follows"


def test_events_after_the_last_frame_are_given_to_it(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    encoder = Encoder()
    lines = [*encoder.key_lines(frame(0)), *encoder.frame_lines(frame(0))]
    path.write_bytes(b"".join(lines) + b'{"k":"event","t":1780000001,"kind":"mark","text":"done"}\n')
    (only,) = read_snapshots(str(path))
    assert [event.text for event in only.events] == ["done"]


def test_a_directory_is_read_in_the_order_of_time(tmp_path: Path) -> None:
    for name, begin in (("node-17-20261120T081500Z-9", 4000), ("node-17-20261120T071500Z-10", 0)):
        writer = RecordingWriter(str(tmp_path / f"{name}.gputop.jsonl.gz"))
        for k in range(3):
            writer.write(frame(begin + k))
        writer.close()
    assert times(tmp_path) == [0, 1, 2, 4000, 4001, 4002]


def test_a_directory_of_very_many_files_has_few_of_them_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputop.recording.reader.MOST_OPEN", 1)
    for hour in range(4):
        writer = RecordingWriter(str(tmp_path / f"node-2026010{hour}T000000Z-1.jsonl{'.gz' * (hour % 2)}"))
        for second in range(70):
            writer.write(frame(3600 * hour + second))
        writer.close()
    recording = Recording(str(tmp_path))
    wanted = [T0 + 3600 * hour + second for hour in range(4) for second in range(70)]
    assert [snapshot.t for snapshot in recording.snapshots()] == wanted
    assert len(open_below(tmp_path)) == 1
    # Those that are open outlive their deletion; of the others what is deleted is missing.
    for hour in (0, 2):
        next(tmp_path.glob(f"node-2026010{hour}*")).unlink()
    left = list(recording.snapshots())
    assert [snapshot.t for snapshot in left] == [*wanted[:140], *wanted[210:]]
    assert [event.kind for event in left[140].events] == ["gap"] and "damaged" in left[140].events[0].text
    recording.close()
    assert open_below(tmp_path) == []


def test_a_directory_of_two_machines_is_refused(tmp_path: Path) -> None:
    for host in ("node-17", "node-18"):
        written(tmp_path / f"{host}-20261120T081500Z-9.gputop.jsonl.gz", 1)
    with pytest.raises(RecordingError, match=r"several machines.*name one file"):
        list(read_snapshots(str(tmp_path)))


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"hello\n", b"{}\n", b"\x1f\x8b", b"\x1f\x8b\x08" + b"\0" * 99, b"\0" * 5000]
)
def test_a_file_that_is_no_recording_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match="no frame of a recording"):
        list(read_snapshots(str(path)))
    with pytest.raises(RecordingError, match="no frame of a recording"):
        Recording(str(path))


def test_what_is_not_a_regular_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(RecordingError, match="not a regular file"):
            list(read_snapshots(str(path)))
    with pytest.raises(RecordingError, match="No such file"):
        list(read_snapshots(str(tmp_path / "none")))
    with pytest.raises(RecordingError, match="no recording in this directory"):
        list(read_snapshots(str(tmp_path)))


def test_a_newer_format_is_refused_by_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"k":"key","v":7}\n')
    with pytest.raises(RecordingError, match=r"r\.jsonl: recorded in format 7"):
        list(read_snapshots(str(path)))


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("v1*.jsonl*")), ids=lambda path: path.name)
def test_version_1_stays_readable(path: Path) -> None:
    expected = json.loads((GOLDEN / "v1.expected.json").read_text())[path.name]
    found = list(read_snapshots(str(path)))
    assert len(found) == expected["frames"]
    last = found[-1]
    assert [last.t, last.interval_s, last.machine.hostname] == expected["last"]
    assert [[g.static.uuid, g.util_pct, g.sm_active_pct, g.sm_source, g.mem_used_bytes] for g in last.gpus] == expected[
        "gpus"
    ]
    assert [[p.pid, p.role, p.static.command, p.run_pct] for p in last.processes] == expected["processes"]
    assert [[e.kind, e.text] for s in found for e in s.events] == expected["events"]
    assert dict(last.gpus[0].unavailable) == expected["unavailable"]
