"""Reads one file of either format, recognised by its first bytes and not by its name."""

from __future__ import annotations

import os
from collections.abc import Callable

from gputop.features.traces.chrome import read_chrome
from gputop.features.traces.columns import Trace, TraceError
from gputop.features.traces.nsys import HEADER, read_nsys
from gputop.system.given_file import open_regular

Progress = Callable[[int, int], None]
_FOREIGN: tuple[tuple[bytes, str], ...] = (
    (b"\x80", "is a pickle: `gputop memory` reads memory snapshots; a trace is what export_chrome_trace writes"),
    (b"PK\x03\x04", "is a zip archive: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd: unpack it first (zstd -d)"),
    (b"BZh", "is compressed with bzip2: unpack it first"),
    (b"\xfd7zXZ", "is compressed with xz: unpack it first"),
)
NSYS_REPORT = ".nsys-rep"


def read_trace(path: str, progress: Progress | None = None) -> Trace:
    """Read a profiler's file. ``progress`` is given how much was read and how much there is.

    Raises TraceError for what is not a trace, and OSError.
    """
    if path.endswith((NSYS_REPORT, ".qdrep")):
        raise TraceError(
            f"{path} is Nsight Systems' own format: run `nsys export --type sqlite {path}`, or add --export"
        )
    with open_regular(path) as file:
        begin, size = file.read(16), os.fstat(file.fileno()).st_size
    if begin == HEADER:
        return read_nsys(path, size, progress)
    for magic, advice in _FOREIGN:
        if begin.startswith(magic):
            raise TraceError(f"{path} {advice}")
    return read_chrome(path, progress)
