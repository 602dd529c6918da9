"""Bytes of a trace file, unpacked and read ahead by one thread while earlier pieces are decoded."""

from __future__ import annotations

import os
import zlib
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import BinaryIO

from gputop.features.traces.columns import TraceError
from gputop.system.unpack_limit import TOO_MUCH, most_unpacked

PIECE_BYTES = 8 << 20
MOST_BYTES = 16 << 30
"""Bytes that a compressed file may unpack to; far above any trace that a profiler wrote."""


class Text:
    """The bytes of a file, unpacked if it is gzip.

    ``truncated``: its end is missing or damaged.
    """

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self._path = path
        self.size_bytes = os.stat(path).st_size
        self.read_bytes = 0
        self.truncated = False

    def pieces(self) -> Generator[bytes, None, None]:
        """Yield pieces of the text in order.

        A thread reads each one while the one before is used.

        Raises TraceError for a file that unpacks without end, and OSError.
        """
        with open(self._path, "rb") as file, ThreadPoolExecutor(1, "gputop-trace-reader") as reader:
            packed = file.peek(2)[:2] == b"\x1f\x8b"
            pieces = self._unpacked(file) if packed else iter(partial(file.read, PIECE_BYTES), b"")
            ahead = reader.submit(next, pieces, b"")
            while piece := ahead.result():
                self.read_bytes = file.tell()
                ahead = reader.submit(next, pieces, b"")
                yield piece

    def _unpacked(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield all members, of a damaged one the undamaged begin."""
        unpacker, pending, out, is_within = zlib.decompressobj(31), b"", 0, True
        taken = 0
        while pending := pending or file.read(1 << 20):
            given = len(pending)
            try:
                piece = unpacker.decompress(pending, PIECE_BYTES)
            except zlib.error:
                break
            is_within, pending = True, unpacker.unconsumed_tail
            if unpacker.eof:
                is_within, pending, unpacker = False, unpacker.unused_data, zlib.decompressobj(31)
            out += len(piece)
            taken += given - len(pending)
            if out > MOST_BYTES or out > most_unpacked(taken):
                raise TraceError(f"unpacks to {TOO_MUCH}: is this a gzip bomb?")
            if piece:
                yield piece
        self.truncated = is_within
