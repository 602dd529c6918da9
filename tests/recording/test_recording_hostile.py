"""Recordings by enemies and accidents: fuzzed, forged as bombs, cut off by a kill."""

from __future__ import annotations

import gzip
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.model.snapshot import Snapshot
from gputop.recording.format import RecordingError
from gputop.recording.reader import Recording, read_snapshots
from tests.support.recording_frames import T0, times, written


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
        new = draw.choice(
            [
                b"NaN",
                b"1e999",
                b"[" * 2000,
                b'"\\u001b[2J"',
                b"{}",
                b"-1",
                b"9" * 6000,
                b'{"a":[]}',
                b"true",
                b'"\\ud800"',
            ]
        )
        lines[i] = lines[i].replace(old, new, draw.randrange(1, 4))
    return b"".join(lines)


@pytest.mark.parametrize("seeds", [range(25), pytest.param(range(25, 200), marks=pytest.mark.slow)], ids=["25", "200"])
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
            list(recording.events())
            recording.close()
        except RecordingError as error:
            assert "\n" not in str(error) and "\x1b" not in str(error)


def assert_printable(snapshot: Snapshot) -> None:
    texts = [snapshot.machine.hostname, *snapshot.notices, *(event.text for event in snapshot.events)]
    texts += [g.static.name for g in snapshot.gpus] + [g.sm_reason or "" for g in snapshot.gpus]
    texts += [p.static.command or "" for p in snapshot.processes] + [p.state or "" for p in snapshot.processes]
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for text in texts for c in text)


BOMBS = """
import gzip, json, sys, zlib
from pathlib import Path
from gputop.recording.encode import Encoder
from gputop.recording.reader import Recording
from gputop.recording.reader import read_snapshots
from gputop.recording.format import RecordingError
from tests.support.recording_frames import frame
folder = Path(sys.argv[1])

def packed(name, pieces):
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    with open(folder / name, "wb") as file:
        for piece in pieces:
            file.write(packer.compress(piece))
        file.write(packer.flush())

encoder = Encoder()
key = encoder.key_lines(frame(0))[0]
good = encoder.frame_lines(frame(0))[-1]
mb = 1 << 20
packed("zeros", [b"\\0" * mb] * 300)
packed("newlines", [key] + [b"\\n" * mb] * 60)
packed("spaces", [key, good] + [b" " * mb] * 300)
packed("lists", [key, b"[" + b"[],[]," * (mb // 3)] * 6)
packed("long", [key, b'{"k":"frame","t":1,"gpus":[' + b"[]," * (mb // 2) + b"0]}\\n"] * 10)
packed("objects", [key] + [b'{"k":"event","t":1,"kind":"mark","text":"' + b"x" * (mb // 2) + b'"}\\n'] * 120)
packed("nested", [key] + [b"[" * (mb // 2) + b"\\n"] * 20)
def names():
    yield key
    for n in range(0, 12000, 20):
        procs = [{"pid": p, "user": chr(128512) * 4096} for p in range(n, n + 20)]
        yield json.dumps({"k": "procs", "procs": procs}, ensure_ascii=False).encode() + b"\\n"
    yield good

def uuids():
    for n in range(200):
        gpus = [{"uuid": f"{n}-{i}"} for i in range(256)]
        yield json.dumps({"k": "key", "v": 1, "gpus": gpus}).encode() + b"\\n" + good

packed("names", names())
packed("uuids", uuids())
with open(folder / "plainzeros", "wb") as file:
    file.truncate(120 * mb)
for path in sorted(folder.iterdir()):
    try:
        n = sum(1 for _ in read_snapshots(str(path)))
        Recording(str(path)).close()
        print(path.name, n)
    except RecordingError as error:
        print(path.name, "refused")
print("peak", next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
def test_bombs_take_less_than_200_mb(tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-c", BOMBS, str(tmp_path)], capture_output=True, text=True, timeout=280, check=False
    )
    assert made.returncode == 0, made.stderr[-2000:]
    *results, peak = made.stdout.splitlines()
    assert len(results) == 10
    assert int(peak.split()[1]) < 200


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
        with subprocess.Popen([sys.executable, "-c", WRITE_FOR_EVER, str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(draw.randrange(1, 400)):
                process.stdout.readline()
            process.kill()
            acknowledged = [line for line in process.stdout.read().split(b"\n") if line]
        last = int(acknowledged[-1]) if acknowledged else 0
        found = times(path)
        assert found == list(range(len(found)))
        assert len(found) > last
