"""A megabyte that unfolds into a gigabyte costs no more than a recording of its size."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.recording.encode import Encoder
from gputop.recording.file_lines import BOMB_RATIO
from gputop.recording.format import RecordingError
from gputop.recording.reader import Recording, read_snapshots
from gputop.recording.writer import RecordingWriter
from tests.support.recording_frames import T0, frame, times, written

MB = 1 << 20
HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"
MOST_CPU_S = 3.0


def _frame() -> bytes:
    encoder = Encoder()
    return b"".join([*encoder.key_lines(frame(0)), *encoder.frame_lines(frame(0))])


def _block(text: bytes) -> bytes:
    """Deflated text that may stand anywhere, and as often as one likes, in a stream."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(text) + packer.flush(zlib.Z_FULL_FLUSH)


def _unfolds(line: bytes, into: int = 1024) -> Callable[[], bytes]:
    """A frame and then so many MB of a line; the stream has no end, so nothing but its beginning is ever known."""
    return lambda: HEADER + _block(_frame()) + _block(line * (MB // len(line))) * into


def _members(line: bytes) -> Callable[[], bytes]:
    """The same in 256 whole members of 4 MB, each of which begins as a recording does."""

    def made() -> bytes:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        return (packer.compress(_frame() + line * (4 * MB // len(line))) + packer.flush()) * 256

    return made


def _one_stream_under_many_names() -> bytes:
    """The names of a hundred thousand headers run on to one text, so that each of them unfolds it."""
    named = b"\x1f\x8b\x08\x08" + b"......"
    return named * 100_000 + b"\x00" + _block(_frame()) + _block(b"\n" * MB) * 4


BOMBS = {
    "newlines": _unfolds(b"\n"),
    "newlines after carriage returns": _unfolds(b"\r\n"),
    "empty objects": _unfolds(b"{}\n"),
    "lines of another kind": _unfolds(b'{"k":"none"}\n'),
    "spaces": _unfolds(b" \n"),
    "marks": _unfolds(b'{"k":"event","t":1,"kind":"mark","text":""}\n'),
    "verdicts": _unfolds(b'{"k":"event","t":1,"kind":"verdict","text":""}\n'),
    "members of newlines": _members(b"\n"),
    "members of empty objects": _members(b"{}\n"),
    "one line": _unfolds(b"A"),
    "headers alone": lambda: b"\x1f\x8b\x08" * (MB // 3),
    "names": _one_stream_under_many_names,
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if n % 2 else ()) for n, name in enumerate(BOMBS)]
)
def test_a_bomb_costs_no_more_than_three_seconds(tmp_path: Path, name: str) -> None:
    """Of CPU, for every way in which a file is read one after the other."""
    path = tmp_path / "r.jsonl.gz"
    path.write_bytes(BOMBS[name]())
    begun = time.process_time()
    with suppress(RecordingError):
        sum(1 for _ in read_snapshots(str(path)))
    with suppress(RecordingError):
        recording = Recording(str(path))
        sum(1 for _ in recording.snapshots())
        sum(1 for _ in recording.events())
        recording.close()
    assert time.process_time() - begun < MOST_CPU_S


def test_what_came_before_a_bomb_is_read_and_the_loss_is_shown(tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl.gz", 130)
    path.write_bytes(path.read_bytes() + HEADER + _block(_frame()) + _block(b"{}\n" * (MB // 3)) * 1024)
    assert times(path) == list(range(130))
    *_, last = read_snapshots(str(path))
    assert [event.text for event in last.events] == ["the recording is damaged after this"]


@pytest.mark.slow
def test_a_machine_on_which_nothing_changes_is_no_bomb(tmp_path: Path) -> None:
    """What packs best of all that a recorder writes, and then again as gzip -9 would."""
    still = frame(0, gpus=8, processes=900)
    writer = RecordingWriter(str(tmp_path / "r.jsonl.gz"))
    for k in range(150):
        writer.write(replace(still, t=T0 + k))
    writer.close()
    packed = (tmp_path / "r.jsonl.gz").read_bytes()
    plain, rest = b"", packed
    while rest:
        unpacker = zlib.decompressobj(31)
        plain += unpacker.decompress(rest)
        rest = unpacker.unused_data
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    (tmp_path / "again.jsonl.gz").write_bytes(packer.compress(plain) + packer.flush())
    assert len(plain) > 16 * MB, "more than is held of any member"
    for name in ("r.jsonl.gz", "again.jsonl.gz"):
        assert len(plain) / (tmp_path / name).stat().st_size < BOMB_RATIO
        assert times(tmp_path / name) == list(range(150))


def test_blank_lines_between_lines_are_no_damage(tmp_path: Path) -> None:
    path = written(tmp_path / "r.jsonl", 20)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\n\n\n"))
    assert times(path) == list(range(20))
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    (tmp_path / "r.jsonl.gz").write_bytes(packer.compress(path.read_bytes()) + packer.flush())
    assert times(tmp_path / "r.jsonl.gz") == list(range(20))
