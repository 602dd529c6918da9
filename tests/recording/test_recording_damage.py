"""Recordings by enemies and accidents: torn, flipped, fuzzed, forged as bombs, cut off by a kill."""

from __future__ import annotations

import gzip
import os
import pickle
import random
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.diagnosis.engine import Diagnoser
from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.snapshot import Snapshot
from gputop.recording.format import RecordingError
from gputop.recording.reader import Recording, read_snapshots
from tests.support.recording_frames import T0, frame, frames, lines_of, rounded, times, written
from tests.tools.fuzz_recordings import faults


def members_of(data: bytes) -> list[int]:
    """Offsets of the gzip members of a sound file."""
    offsets, at = [], 0
    while at < len(data):
        offsets.append(at)
        unpacker = zlib.decompressobj(31)
        unpacker.decompress(data[at:])
        at = len(data) - len(unpacker.unused_data)
    return offsets


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


def test_a_flipped_byte_costs_at_most_its_member_and_shows_as_a_gap(tmp_path: Path) -> None:
    whole = written(tmp_path / "r.jsonl.gz", 240, gpus=1, processes=1).read_bytes()
    offsets = [*members_of(whole), len(whole)]
    assert len(offsets) == 5
    truth = {s.t: s.gpus for s in (rounded(s) for s in frames(240, gpus=1, processes=1))}
    draw = random.Random(7)
    path = tmp_path / "flipped"
    places = [*offsets[:-1], *(o + 1 for o in offsets[:-1]), *(o - 1 for o in offsets[1:])]
    for place in [*places, *(draw.randrange(len(whole)) for _ in range(4))]:
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


def test_the_frames_that_a_damaged_member_has_lost_are_counted(tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl.gz", 200, gpus=1, processes=1)
    data = bytearray(path.read_bytes())
    for member in (0, 2):
        place = members_of(path.read_bytes())[member] + 200
        data[place : place + 8] = b"\xff" * 8
    path.write_bytes(data)
    gaps = [
        event.text for s in read_snapshots(str(path)) for event in s.events if event.kind == "gap"
    ]
    assert gaps == [
        "the recording is damaged before this: 60 frames are lost",
        "no data for 61 s: the recording is damaged here: 60 frames are lost",
    ]


@pytest.mark.parametrize("seed", range(8))
def test_of_a_file_whose_only_member_is_damaged_the_frames_before_are_read(
    tmp_path: Path, seed: int
) -> None:
    path = written(tmp_path / "r.jsonl.gz", 50, gpus=1, processes=1)
    data = bytearray(path.read_bytes())
    place = random.Random(seed).randrange(len(data) // 2, len(data) - 20)
    data[place : place + 16] = b"\xff" * 16
    path.write_bytes(data)
    found = list(read_snapshots(str(path)))
    assert [s.t for s in found] == [T0 + k for k in range(len(found))] and 15 < len(found) < 50
    text = found[-1].events[-1].text
    words, _, reason = text.partition(": ")
    assert words == "the recording is damaged after this"
    assert reason.startswith(("a damaged member", "not a line of a recording: "))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"hello\n", "not a line of a recording"),
        (b"\x1f\x8b\x08\x00" + b"x" * 200, "a damaged member"),
        (b'{"k":"machine","version":2}\n', "no frame of a recording in it"),
        (
            b'{"k":"machine","version":2,"gpus":[{"index":0,"uuid":"A","name":"x"},{"index":1,"uuid":"A","name":"x"}]}\n'
            b'{"k":"frame","t":1790000000,"gpus":[{},{}]}\n',
            "two GPUs have one uuid",
        ),
    ],
)
def test_a_file_without_a_frame_says_why(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "r"
    path.write_bytes(content)
    for read in (lambda: list(read_snapshots(str(path))), lambda: Recording(str(path))):
        with pytest.raises(RecordingError, match=said):
            read()


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        (b"notes\n", "`gputop record` and `gputop run` write recordings"), (b'{"a": 1}', "write recordings"),
        (b'{"schemaVersion": 1, "traceEvents": [', "`gputop trace` reads profilers' traces"),
        (gzip.compress(b'{"traceEvents": []}'), "`gputop trace`"), (b"SQLite format 3\0" + b"x" * 90, "`gputop trace`"),
        (pickle.dumps({"segments": []}), "`gputop memory`"), (b"\xff" * 90, "write recordings"),
    ],
    ids=range(7),
)  # fmt: skip
def test_another_file_gets_advice_and_no_words_of_a_parser(
    content: bytes, advice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r"
    path.write_bytes(content)
    for command in ("report", "diagnose"):
        assert main([command, str(path)]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and advice in said and "no frame of a recording in it" in said
        assert "JSON" not in said and "Object" not in said and "byte" not in said


def _cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def _flips(data: bytes, draw: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(draw.randrange(1, 30)):
        damaged[draw.randrange(len(damaged))] = draw.randrange(256)
    return bytes(damaged)


def _shuffled(data: bytes, draw: random.Random) -> bytes:
    size = draw.randrange(1, 400)
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    draw.shuffle(pieces)
    return b"".join(pieces)


def _inserted(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data))
    return data[:at] + draw.randbytes(draw.randrange(1, 300)) + data[at:]


def _edited(data: bytes, draw: random.Random) -> bytes:
    """Text replaced inside sound lines: wrong types, huge numbers, nesting, control characters."""
    lines = data.splitlines(keepends=True)
    for _ in range(draw.randrange(1, 6)):
        i = draw.randrange(len(lines))
        old = draw.choice([b"null", b"[", b"]", b"0", b'"', b",", b":1", b"gpu", b"frame", b"."])
        odd = [
            b"NaN",
            b"1e999",
            b"[" * 2000,
            b'"\\u001b[2J"',
            b"{}",
            b"-1",
            b"9" * 6000,
            b'{"a":[]}',
            b'"\\ud800"',
        ]
        new = draw.choice(odd)
        lines[i] = lines[i].replace(old, new, draw.randrange(1, 4))
    return b"".join(lines)


@pytest.mark.parametrize(
    "seeds", [range(25), pytest.param(range(25, 200), marks=pytest.mark.slow)], ids=["25", "200"]
)
def test_fuzzed_files_are_read_cleanly_or_refused_in_one_line(tmp_path: Path, seeds: range) -> None:
    packed = written(tmp_path / "a.jsonl.gz", 70, gpus=1, processes=2).read_bytes()
    plain = written(tmp_path / "a.jsonl", 70, gpus=1, processes=2).read_bytes()
    path = tmp_path / "fuzzed"
    changes: list[Callable[[bytes, random.Random], bytes]] = [_cut, _flips, _shuffled, _inserted]
    for seed in seeds:
        draw = random.Random(seed)
        if seed % 5 == 4:
            data = _edited(plain, draw)
            data = gzip.compress(data, 1) if seed % 2 else data
        else:
            data = changes[seed % 5](packed if seed % 2 else plain, draw)
        path.write_bytes(data)
        try:
            for snapshot in read_snapshots(str(path)):
                assert_printable(snapshot)
            recording = Recording(str(path))
            list(recording.snapshots(T0 + 10, T0 + 20))
            recording.close()
        except RecordingError as error:
            assert "\n" not in str(error) and "\x1b" not in str(error)


@pytest.mark.parametrize(
    "seeds",
    [
        range(14),
        pytest.param(range(14, 100), marks=pytest.mark.slow),
        pytest.param(range(100, 800), marks=(pytest.mark.slow, pytest.mark.weekly)),
    ],
    ids=["14", "100", "800"],
)
def test_every_command_answers_on_spoiled_recordings_or_says_one_line(
    tmp_path: Path, seeds: range
) -> None:
    assert faults(seeds, tmp_path) == []


def assert_printable(snapshot: Snapshot) -> None:
    texts = [
        snapshot.machine.hostname,
        *snapshot.notices,
        *(event.text for event in snapshot.events),
    ]
    texts += [g.static.name for g in snapshot.gpus] + [g.sm_reason or "" for g in snapshot.gpus]
    texts += [p.static.command or "" for p in snapshot.processes] + [
        p.state or "" for p in snapshot.processes
    ]
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for text in texts for c in text)


MB = 1 << 20
HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"
KEY, *_, GOOD = lines_of(frame(0))


def _block(text: bytes) -> bytes:
    """Deflated text that may stand anywhere, and as often as one likes, in a stream."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(text) + packer.flush(zlib.Z_FULL_FLUSH)


def _unfolds(line: bytes) -> bytes:
    """A frame and then a GB of a line; the stream has no end, so nothing but its beginning is ever known."""
    return HEADER + _block(KEY + GOOD) + _block(line * (MB // len(line))) * 1024


def _member(*pieces: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(map(packer.compress, (KEY, GOOD, *pieces))) + packer.flush()


BOMBS: dict[str, Callable[[], bytes]] = {
    "newlines": lambda: _unfolds(b"\n"), "empty objects": lambda: _unfolds(b"{}\n"),
    "marks": lambda: _unfolds(b'{"k":"event","t":1,"kind":"mark","text":""}\n'), "one line": lambda: _unfolds(b"A"),
    "members": lambda: _member(b"{}\n" * (4 * MB // 3)) * 256,
    "lists": lambda: _member(*[b"[" + b"[],[]," * (MB // 3)] * 6),
    "long": lambda: _member(*[b'{"k":"frame","t":1,"gpus":[' + b"[]," * (MB // 2) + b"0]}\n"] * 10),
    "nested": lambda: _member(*[b"[" * (MB // 2) + b"\n"] * 20), "not packed": lambda: bytes(120 * MB),
}  # fmt: skip
READ_ALL = """
import sys, time
from gputop.recording.format import RecordingError
from gputop.recording.reader import Recording, read_snapshots
for path in sys.argv[1:]:
    begun = time.process_time()
    try:
        sum(1 for _ in read_snapshots(path))
        recording = Recording(path)
        sum(1 for _ in recording.snapshots())
        recording.close()
    except RecordingError:
        pass
    assert time.process_time() - begun < 3.0, path
print(next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.parametrize(
    "names", [["newlines"], pytest.param([*BOMBS], marks=pytest.mark.slow)], ids=["newlines", "all"]
)
def test_a_bomb_costs_neither_three_seconds_nor_200_mb(tmp_path: Path, names: list[str]) -> None:
    """Of CPU, for every way in which a file is read one after the other."""
    for name in names:
        (tmp_path / name).write_bytes(BOMBS[name]())
    read = [sys.executable, "-c", READ_ALL, *(str(tmp_path / name) for name in names)]
    done = subprocess.run(read, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) < 200


def test_a_bomb_alone_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(BOMBS["members"]())
    with pytest.raises(RecordingError, match="unpacks to more than 100 times its size"):
        Recording(str(path))


WRITE_FOR_EVER = """
import sys
from gputop.recording.writer import RecordingWriter
from tests.support.recording_frames import frame
writer = RecordingWriter(sys.argv[1])
k = 0
while True:
    writer.write(frame(k))
    sys.stdout.write(f"{k}\\n")
    sys.stdout.flush()
    k += 1
"""


@pytest.mark.slow
def test_every_acknowledged_frame_survives_a_kill_at_any_moment(tmp_path: Path) -> None:
    """Five kills; ``GPUTOP_KILLS=50`` for more. How many frames to wait for is drawn, so no clock is needed."""
    draw = random.Random(3)
    for n in range(int(os.environ.get("GPUTOP_KILLS", "5"))):
        path = tmp_path / f"{n}.jsonl.gz"
        with subprocess.Popen(
            [sys.executable, "-c", WRITE_FOR_EVER, str(path)], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            for _ in range(draw.randrange(1, 400)):
                process.stdout.readline()
            process.kill()
            acknowledged = [line for line in process.stdout.read().split(b"\n") if line]
        last = int(acknowledged[-1]) if acknowledged else 0
        found = times(path)
        assert found == list(range(len(found)))
        assert len(found) > last


def judged_recording(path: Path) -> GpuDiagnosis:
    """The last diagnosis of a recording's first GPU."""
    diagnoser = Diagnoser()
    *_, last = [diagnoser.diagnose(snapshot) for snapshot in read_snapshots(str(path))]
    return last[0]


@pytest.mark.parametrize(
    ("has_key", "says"), [(True, "no process"), (False, "processes n/a: the recording")]
)
def test_frames_that_say_nothing_of_processes_do_not_say_that_there_are_none(
    tmp_path: Path, has_key: bool, says: str
) -> None:
    processes = ',"processes":[]' if has_key else ""
    head = '{"k":"machine","version":2,"gpus":[{"index":0,"uuid":"A","name":"x"}]}\n'
    path = tmp_path / "foreign.gputop.jsonl"
    for util, words in (
        (0.0, f"util 0 % for 60 s, {says}"),
        (60.0, says if has_key is False else "no process visible"),
    ):
        gpus = f'"gpus":[{{"util_pct":{util},"power_w":70.0}}]'
        rows = [f'{{"k":"frame","t":{T0 + second},{gpus}{processes}}}\n' for second in range(60)]
        path.write_text(head + "".join(rows))
        d = judged_recording(path)
        assert words in " | ".join((*d.evidence, *d.notes)), d
