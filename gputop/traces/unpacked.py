"""A trace file's bytes, unpacked where it is gzip and read ahead by one thread while the pieces before are decoded."""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterator
from queue import Empty, Queue

from gputop.traces.columns import TraceError

PIECE_BYTES = 8 << 20
MOST_BYTES = 16 << 30
"""Bytes that a compressed file may unpack to; far above any trace that a profiler wrote."""
MOST_RATIO = 1000
_RATIO_FROM = 256 << 20
_GZIP = b"\x1f\x8b"


class Text:
    """The bytes of a file, unpacked where it is gzip, read ahead by one thread. Close it after use.

    ``truncated`` is known at the end: the last member of a gzip file is not complete.
    """

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self._file = open(path, "rb")  # noqa: SIM115 - closed by close()
        self.size_bytes = os.fstat(self._file.fileno()).st_size
        self.compressed = self._file.peek(2)[:2] == _GZIP
        self.truncated = False
        self.read_bytes = 0
        self._ready: Queue[bytes | BaseException | None] = Queue(maxsize=2)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="trace reader", daemon=True)
        self._thread.start()

    def pieces(self) -> Iterator[bytes]:
        """Pieces of the text in order. Raises TraceError for a file that unpacks without end, and OSError."""
        while True:
            piece = self._ready.get()
            if piece is None:
                return
            if isinstance(piece, BaseException):
                raise piece
            yield piece

    def close(self) -> None:
        """Stop reading ahead and close the file."""
        self._closed.set()
        while self._thread.is_alive():
            try:
                self._ready.get_nowait()
            except Empty:
                self._thread.join(0.05)
        self._file.close()

    def _work(self) -> None:
        try:
            for piece in self._unpacked() if self.compressed else self._plain():
                self._ready.put(piece)
                if self._closed.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - handed to who reads
            self._ready.put(error)
        else:
            self._ready.put(None)

    def _plain(self) -> Iterator[bytes]:
        while piece := self._file.read(PIECE_BYTES):
            self.read_bytes += len(piece)
            yield piece

    def _unpacked(self) -> Iterator[bytes]:
        """All members one after the other. With a torn or damaged end, what came before it."""
        unpacker = zlib.decompressobj(31)
        out, pending = 0, b""
        while True:
            if not pending:
                pending = self._file.read(1 << 20)
                self.read_bytes += len(pending)
                if not pending:
                    self.truncated = self.truncated or not unpacker.eof
                    return
            if unpacker.eof:
                if not pending.startswith(_GZIP):
                    return
                unpacker = zlib.decompressobj(31)
            try:
                piece = unpacker.decompress(pending, PIECE_BYTES)
            except zlib.error:
                self.truncated = True
                return
            pending = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
            out += len(piece)
            if out > MOST_BYTES or (out > _RATIO_FROM and out > MOST_RATIO * max(1, self.read_bytes)):
                raise TraceError("unpacks to more than any trace holds: is this a gzip bomb?")
            if piece:
                yield piece
