"""Frames for the tests of recordings: a small machine whose numbers follow from the time alone."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace

from gputop.model.snapshot import (
    Event,
    GpuSample,
    GpuStatic,
    HostSample,
    Machine,
    ProcessSample,
    ProcessStatic,
    Snapshot,
)
from gputop.recording.check import decode_line
from gputop.recording.decode import LineDecoder
from gputop.recording.encode import LineEncoder
from gputop.recording.reader import read_snapshots
from gputop.recording.rounding import rounded
from gputop.recording.writer import RecordingWriter

T0 = 1_780_000_000.0
MACHINE = Machine("node-17", "boot-1", "580.65")


def frame(
    k: int, *, gpus: int = 2, processes: int = 3, t0: float = T0, machine: Machine = MACHINE
) -> Snapshot:
    """The frame ``k`` seconds after ``t0``: every number is drawn from a generator seeded with ``k``."""
    draw = random.Random(k)
    cards = tuple(
        GpuSample(
            static=GpuStatic(i, f"GPU-{i:04d}", "NVIDIA H100 80GB HBM3", "hopper", 132),
            util_pct=draw.uniform(0, 100),
            sm_active_pct=draw.uniform(0, 100),
            mem_used_bytes=draw.randrange(80 << 30),
            mem_total_bytes=80 << 30,
            power_w=draw.uniform(70, 700),
            energy_j=1e8 + 400.123 * k,
            throttle_reasons=0x4 if k % 7 == 0 else 0,
            ecc_uncorrected=0,
            remap_pending=False,
            sm_source="gpm",
            sm_window_s=1.0,
            unavailable={"fan_pct": "no fan on this GPU"},
        )
        for i in range(gpus)
    )
    rows = tuple(
        ProcessSample(
            pid=4000 + i,
            starttime=700 + i,
            ppid=1,
            role="gpu" if i == 0 else "loader",
            gpu=0,
            run_pct=draw.uniform(0, 100),
            state=draw.choice("RSD"),
            rss_bytes=draw.randrange(1 << 33),
            nccl=False,
            static=ProcessStatic(
                "ml",
                f"python train.py --rank {i}",
                "python",
                loader="torch" if i else None,
                job_key=f"key{i}",
            ),
        )
        for i in range(processes)
    )
    return Snapshot(
        t0 + k, machine, cards, rows, HostSample(cpu_pct=draw.uniform(0, 100), cpu_count=32)
    )


def frames(count: int, **given: object) -> Iterator[Snapshot]:
    """The first so many frames."""
    for k in range(count):
        yield frame(k, **given)  # type: ignore[arg-type]


def recorded(path: Path, snapshots: Iterable[Snapshot]) -> Path:
    """A recording of these snapshots."""
    writer = RecordingWriter(str(path))
    for snapshot in snapshots:
        writer.write(rounded(snapshot))
    writer.close()
    return path


def written(path: Path, count: int, **given: int) -> Path:
    """A recording of the first so many frames."""
    return recorded(path, frames(count, **given))


def times(path: Path) -> list[float]:
    """The seconds after T0 of every frame that can be read."""
    return [snapshot.t - T0 for snapshot in read_snapshots(str(path))]


def lines_of(*snapshots: Snapshot) -> list[bytes]:
    """The lines of a recording of these snapshots, as one member or more."""
    encoder, lines = LineEncoder(), []
    for snapshot in snapshots:
        if not encoder.fits(snapshot):
            lines.append(encoder.begin_member(snapshot))
        lines += encoder.frame_lines(snapshot)
    return lines


def read_lines(lines: Iterable[bytes]) -> tuple[list[Snapshot], LineDecoder]:
    """The frames of lines, and the decoder that read them."""
    decoder = LineDecoder()
    return [found for line in lines if (found := decoder.feed(line)) is not None], decoder


def read_back(*snapshots: Snapshot) -> list[Snapshot]:
    """Snapshots after a way through a recording, which has no damage."""
    found, decoder = read_lines(lines_of(*snapshots))
    assert decoder.damaged == 0, decoder.reason
    return found


def recorded_events(path: str | Path) -> list[Event]:
    """The lines of a whole file that are events, verdicts too."""
    data = Path(path).read_bytes()
    lines = map(
        decode_line, (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).splitlines()
    )
    return [replace(line, derived=False) for line in lines if isinstance(line, Event)]
