"""Recordings by enemies and strangers, through every command that reads one.

Each ends soon, without an internal error, in at most one line about the fault; the good frames are shown.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import resource
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.recording.reader import Recording
from tests.support.pace import slowness
from tests.support.seldom import quick_ones

VECTOR = Path(__file__).parents[1] / "vectors" / "dataloader_cpu.jsonl"
FRAMES = 40
MACHINE, *PROCESSES = VECTOR.read_bytes().splitlines(keepends=True)[:4]
GOOD = [MACHINE, *PROCESSES, *VECTOR.read_bytes().splitlines(keepends=True)[4 : 4 + FRAMES]]
"""A recording of a GPU that waits for its dataloader."""
FIRST, MIDDLE, LAST = 4, 4 + FRAMES // 2, 3 + FRAMES
MOST_S = 3.0
SLOWNESS = slowness()


def commands(path: Path) -> dict[str, list[str]]:
    """Return each command that reads a recording."""
    name, folder = str(path), path.parent
    return {
        "diagnose": ["diagnose", name],
        "report": ["report", name, "-o", str(folder / "report.html")],
        "compare": ["compare", name, name],
        "dump": ["dump", "--json", name],
        "screenshot": ["screenshot", name, "-o", str(folder / "screen.txt")],
    }


def with_time(number: int, t: str) -> bytes:
    """Return the recording with another time in one of its frames."""
    lines = list(GOOD)
    lines[number] = re.sub(rb'"t":[0-9.]+', b'"t":' + t.encode(), lines[number], count=1)
    return b"".join(lines)


def with_line(number: int, line: bytes) -> bytes:
    """Return the recording with one more line."""
    return b"".join((*GOOD[:number], line, b"\n", *GOOD[number:]))


def other_machine(**changes: object) -> bytes:
    """Return the machine line with other values."""
    return json.dumps(json.loads(MACHINE) | changes, separators=(",", ":")).encode()


def noise(size: int) -> bytes:
    """Return text that hardly packs."""
    return random.Random(size).randbytes(size // 2).hex().encode()


def packed(*texts: bytes) -> bytes:
    """Return texts as gzip members."""
    return b"".join(gzip.compress(text, 1) for text in texts)


def stored_members(count: int) -> bytes:
    """Return headers of members, each of which unpacks to all that follows it."""
    header = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"
    body = b"{" + b" " * 40
    block = struct.pack("<BHH", 0, len(body) + 10 + 5, 0xFFFF ^ (len(body) + 10 + 5)) + body
    tail = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (header + block) * count + tail.compress(b" " * (1 << 20)) + tail.flush()


TEXT = b"".join(GOOD)
SLOW = "a long line, packed"
IMPOSSIBLE_TIMES = ("NaN", "-1", "0", "1e300", "1e999", "-Infinity", '"x"', "null", "9" * 5000)
DAMAGED: dict[str, tuple[Callable[[], bytes], int]] = {
    **{
        f"time {t[:9]} at line {number}": (lambda n=number, t=t: with_time(n, t), FRAMES - 1)  # type: ignore[misc]
        for number, times in ((FIRST, IMPOSSIBLE_TIMES), (MIDDLE, ("1e999",)), (LAST, ("1e300",)))
        for t in times
    },
    "a line of format 1": (lambda: with_line(MIDDLE, b'{"k":"key"}'), FRAMES),
    "a line of format 3": (lambda: with_line(MIDDLE, b'{"k":"machine","version":3}'), FRAMES),
    "this machine in format 3": (
        lambda: with_line(MIDDLE, other_machine(version=3, tomorrow=[1])),
        FRAMES,
    ),
    "another machine in format 3": (
        lambda: with_line(LAST, other_machine(version=3, hostname="node-18")),
        FRAMES - 1,
    ),
    "another form in format 3": (
        lambda: with_line(LAST, b'{"k":"machine","version":3,"gpus":"x"}'),
        FRAMES - 1,
    ),
    "a version of many digits": (
        lambda: with_line(MIDDLE, b'{"k":"machine","version":' + b"9" * 5000 + b"}"),
        FRAMES,
    ),
    "a machine line that cannot be": (
        lambda: with_line(MIDDLE, other_machine(interval_s=-1.0)),
        FRAMES,
    ),
    "a long line": (lambda: with_line(MIDDLE, b"x" * (9 << 20)), FRAMES),
    "a long line at the end": (lambda: TEXT + b"x" * (9 << 20), FRAMES),
    SLOW: (lambda: packed(with_line(MIDDLE, noise(17 << 20))), FRAMES),
    "a long line in the first of two members": (
        lambda: packed(with_line(LAST, noise(17 << 20))[: -len(GOOD[LAST])], MACHINE + GOOD[LAST]),
        FRAMES,
    ),
    "nothing but a long line after good frames": (
        lambda: packed(TEXT + b"A" * (30 << 20)),
        FRAMES,
    ),
}  # fmt: skip
SOUND: dict[str, Callable[[], bytes]] = {
    "time far ahead at first": lambda: with_time(FIRST, "90000000000.0"),
    "time far ahead in the middle": lambda: with_time(FIRST + 8, "90000000000.0"),
    "time far ahead at last": lambda: with_time(LAST, "90000000000.0"),
    "time of 1970 at first": lambda: with_time(FIRST, "1.0"),
    "time an hour ahead at first": lambda: with_time(FIRST, "1780003600.0"),
    "a byte-order mark": lambda: b"\xef\xbb\xbf" + TEXT,
    "a byte-order mark, packed": lambda: packed(b"\xef\xbb\xbf" + TEXT),
    "a byte-order mark in the middle": lambda: with_line(MIDDLE, b"\xef\xbb\xbf" + MACHINE.strip()),
    "a member a line": lambda: packed(*GOOD),
    "a member of another order of keys": lambda: packed(
        TEXT.replace(b'"k":"frame","t":', b'"t":').replace(b'"gpus":[{"util', b'"k":"frame","gpus":[{"util')
    ),
}  # fmt: skip
QUICK_DAMAGE = (
    f"time NaN at line {FIRST}", f"time 1e999 at line {MIDDLE}", "a line of format 1", "another machine in format 3",
    "a version of many digits", "a machine line that cannot be", "a long line",
)  # fmt: skip
QUICK_SOUND = (
    "time far ahead in the middle", "a byte-order mark, packed", "a member of another order of keys"
)  # fmt: skip
"""One of each kind; the others are slow."""
WITHOUT_FRAMES: dict[str, Callable[[], bytes]] = {
    "headers alone": lambda: b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff" * 30_000,
    "members with a machine line": lambda: packed(MACHINE) * 2000,
    "members without a text": lambda: packed(b"") * 5000,
    "members of spaces": lambda: packed(b"{" + b" " * 3000) * 2000,
    "members within members": lambda: stored_members(5000),
    "a machine of another format": lambda: other_machine(version=3) + b"\n" + TEXT,
    "a first line of format 1": lambda: b'{"k":"key"}\n' + TEXT,
    "a machine line that cannot be": lambda: other_machine(interval_s=1e300) + b"\n",
}


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def run_all(
    path: Path, capsys: pytest.CaptureFixture[str], only: str = ""
) -> dict[str, tuple[int, str, list[str]]]:
    """Run each command; return its status, its output and its lines of stderr."""
    results = {}
    for name, words in commands(path).items():
        if only in name:
            begun = time.process_time()
            status = main(words)
            assert time.process_time() - begun < MOST_S * SLOWNESS, name
            out, err = capsys.readouterr()
            said = [line for line in err.splitlines() if ": wrote " not in line]
            assert status in (0, 1, 2), (name, err)
            assert len(said) <= 1, (name, said)
            assert "Traceback" not in err
            results[name] = status, out, said
    return results


def assert_shown(path: Path, results: dict[str, tuple[int, str, list[str]]], frames: int) -> None:
    """Every command shows the frames that are good."""
    assert len(results["dump"][1].splitlines()) == frames
    for name in ("diagnose", "report", "screenshot"):
        file = {"report": "report.html", "screenshot": "screen.txt"}.get(name)
        text = results[name][1] if file is None else (path.parent / file).read_text("utf-8")
        assert "starved: dataloader" in text, name
        assert "not recorded" not in text and "0000 h" not in text, name
    assert results["diagnose"][0] == 1
    assert not any(results[name][0] for name in ("report", "compare", "dump", "screenshot"))


@pytest.mark.parametrize("name", quick_ones(DAMAGED, QUICK_DAMAGE))
def test_damage_costs_its_line_and_is_told_by_every_command(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, frames = DAMAGED[name]
    path = tmp_path / "r"
    path.write_bytes(made())
    results = run_all(path, capsys)
    assert_shown(path, results, frames)
    assert "damaged" in (tmp_path / "report.html").read_text("utf-8")
    for command in ("diagnose", "compare", "dump", "screenshot"):
        assert "damaged" in " ".join(results[command][2]), command


@pytest.mark.parametrize("name", quick_ones(SOUND, QUICK_SOUND))
def test_what_is_odd_but_readable_is_shown_whole(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r"
    path.write_bytes(SOUND[name]())
    results = run_all(path, capsys)
    assert_shown(path, results, FRAMES)
    assert not results["screenshot"][2]


@pytest.mark.parametrize("name", WITHOUT_FRAMES)
def test_a_file_without_frames_is_refused_soon_in_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r"
    path.write_bytes(WITHOUT_FRAMES[name]())
    for command, (status, out, said) in run_all(path, capsys).items():
        assert (status, out, len(said)) == (2, "", 1), command


def test_a_segment_begins_at_each_frame_whose_time_falls(tmp_path: Path) -> None:
    """Also within a member, where no machine line says so; every frame is found again by its time."""
    times = [5, 6, 9, 7, 8, 9, 10, 3, 4, 4, 5]
    text = MACHINE + b"".join(
        b'{"k":"frame","t":%d,"gpus":[{"util_pct":50}]}\n' % (1_780_000_000 + t) for t in times
    )
    path = tmp_path / "r"
    for data in (text, packed(text), packed(text, MACHINE + b'{"k":"frame","t":1780000002}\n')):
        path.write_bytes(data)
        recording = Recording(str(path))
        spans = [(s.begin - 1.78e9, s.end - 1.78e9) for s in recording.segments]
        assert spans[:3] == [(5, 9), (7, 10), (3, 5)]
        found = [snapshot.t - 1.78e9 for snapshot in recording.snapshots()]
        assert found[: len(times)] == times
        for number, (begin, end) in enumerate(spans[:3]):
            inside = recording.segment_frames(number, 1.78e9 + begin, 1.78e9 + end)
            assert [s.t - 1.78e9 for s in inside] == [[5, 6, 9], [7, 8, 9, 10], [3, 4, 4, 5]][
                number
            ]
        assert [recording.segment_at(1.78e9 + t) for t in (6, 8, 10, 4)] == [0, 1, 1, 2]
        place, frame = next(recording.play(1, 1.78e9 + 8.5))
        assert (place, frame.t - 1.78e9) == (1, 8)
        assert recording.place_before(1, 1.78e9 + 7, 1) == (0, 1.78e9 + 9)
        recording.close()


@pytest.mark.parametrize("interval_s", [86400.0, 3600.0, 45.0, 0.01])
def test_an_interval_that_the_frames_do_not_keep_costs_nothing(
    interval_s: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r"
    path.write_bytes(other_machine(interval_s=interval_s) + b"\n" + b"".join(GOOD[1:]))
    results = run_all(path, capsys)
    assert len(results["dump"][1].splitlines()) == FRAMES
    if interval_s > 1.0:
        assert_shown(path, results, FRAMES)


def crowd(frames: int, role: str, gpus: int = 1) -> bytes:
    """Return a recording of as many processes as a frame may have.

    ``role`` is that of all but the first; they take turns on the GPUs.
    """
    machine, frame = json.loads(MACHINE), json.loads(GOOD[FIRST])
    gpu, (owner, loader, _) = machine["gpus"][0], frame["processes"]
    machine["gpus"] = [gpu | {"index": i, "uuid": f"GPU-{i}"} for i in range(gpus)]
    static = json.loads(PROCESSES[1])["static"]
    lines: list[dict[str, object]] = [machine]
    processes = [owner]
    for pid in range(5000, 5000 + 4095):
        who = {"pid": pid, "starttime": pid}
        lines.append({"k": "process", **who, "static": static})
        model = owner if role == "gpu" else loader | {"role": role}
        processes.append(model | who | {"gpu": pid % gpus})
    for number in range(frames):
        frame = json.loads(GOOD[FIRST + number])
        frame["gpus"] *= gpus
        lines.append(frame | {"processes": processes})
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


@pytest.mark.parametrize("role", ["gpu", "loader"])
def test_as_many_processes_as_a_frame_may_have_are_judged_soon(
    role: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r"
    path.write_bytes(crowd(2, role))
    results = run_all(path, capsys, only="diagnose")
    assert "(1 s)" in results["diagnose"][1]


HEAVY: dict[str, Callable[[], bytes]] = {
    "owners": lambda: crowd(20, "gpu"),
    "loaders": lambda: crowd(20, "loader"),
    "helpers of eight GPUs": lambda: crowd(20, "helper", gpus=8),
    "members of spaces": lambda: packed(b"{" + b" " * 30_000) * 20_000,
    "a long line": lambda: with_line(MIDDLE, b"x" * (100 << 20)),
    "a long line, packed": lambda: packed(with_line(MIDDLE, noise(100 << 20))),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.weekly] * (n in ("owners", "a long line"))) for n in HEAVY],
)
def test_heavy_recordings_cost_little_time_and_memory(name: str, tmp_path: Path) -> None:
    """Twice three seconds of CPU, 300 MB."""
    path = tmp_path / "r"
    path.write_bytes(HEAVY[name]())
    for words in commands(path).values():
        # As text: JSON of so many processes is a hundred megabytes.
        words = [word for word in words if word != "--json"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, *words], capture_output=True, text=True, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode in (0, 1, 2), done.stderr[-2000:]
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        assert spent < 2 * MOST_S * SLOWNESS * (1 + (words[0] == "compare")), words
        most_kib = int(done.stderr.splitlines()[-1])
        print(name, words[0], f"{spent:.2f} s", most_kib >> 10, "MB")
        assert most_kib < 300 * 1024, words


MEASURED = """
import sys
from gputop.cli import main
try:
    status = main(sys.argv[1:])
finally:
    # Of this program alone: what getrusage says holds the test's own memory before it.
    facts = dict(line.split(":") for line in open("/proc/self/status"))
    print(facts["VmHWM"].split()[0], file=sys.stderr)
sys.exit(status)
"""
