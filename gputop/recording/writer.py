"""Write recordings to a file of flushed gzip members.

A directory of such files can have an upper size. After ``write`` returns, the frame survives any end of this process.
Files are opened exclusively and never appended to; the oldest are deleted whole. Every call may block on the disk:
``Recorder`` keeps it off the monitor's thread.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from itertools import count
from typing import Any

from gputop.model.snapshot import Event, Snapshot
from gputop.recording.encode import LineEncoder, encode_line, event_line
from gputop.recording.format import MEMBER_FRAMES, RecordingError, RunFacts

STDOUT = "-"
"""The target of a recording that goes to standard output."""
_GZIP = 31
LEVEL = 8
"""Measured for the demo's 8 GPUs: 0.32 ms a frame; level 5 takes 0.17 ms and 30 % more space, level 9 saves nothing."""
FILE_SECONDS = 3600.0
FILE_BYTES = 64 << 20
_LEAST_FILE_BYTES = 1 << 20
_NAME = re.compile(r".+-\d{8}T\d{6}Z-\d+(?:\.\d+)?\.gputop\.jsonl\.gz")
MOST_EARLY = 256
"""Events that may wait for the first frame."""


def file_name(hostname: str, t: float, number: int = 1) -> str:
    """Return ``HOST-20261120T071500Z-PID.gputop.jsonl.gz``; ``number`` counts the files of one second."""
    host = re.sub(r"[^A-Za-z0-9._-]", "_", hostname)[:64] or "host"
    begun = datetime.fromtimestamp(t, timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    return f"{host}-{begun}-{os.getpid()}{f'.{number}' if number > 1 else ''}.gputop.jsonl.gz"


class _File:
    """Open file of gzip members or plain text, or standard output.

    Each write is flushed to the system.
    """

    def __init__(self, path: str) -> None:
        self._is_stdout = path == STDOUT
        self.path = "stdout" if self._is_stdout else path
        self.size = self.frames = 0
        self.first_t: float | None = None
        self._packed = path.endswith(".gz")
        self._packer: Any = None
        """The compressor, whose type has no public name; None for plain text."""
        if self._is_stdout:
            self._fd = os.dup(1)
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)
        # The lock keeps other recorders from deleting the file to make room. On a file system without locks nothing is
        # deleted either.
        with suppress(OSError):
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def begin_member(self) -> None:
        """End the open member and start a new one."""
        if self._packer is not None:
            self._put(self._packer.flush())
        self._packer = zlib.compressobj(LEVEL, zlib.DEFLATED, _GZIP) if self._packed else None

    def append(self, lines: Iterable[bytes]) -> None:
        data = b"".join(lines)
        if self._packer is not None:
            data = self._packer.compress(data) + self._packer.flush(zlib.Z_SYNC_FLUSH)
        self._put(data)

    def close(self) -> None:
        if self._fd >= 0:
            try:
                if self._packer is not None:
                    self._put(self._packer.flush())
            finally:
                self._packer = None
                fd, self._fd = self._fd, -1
                os.close(fd)

    def abandon(self) -> None:
        """Drop the unwritten rest; truncate to the last whole write. The caller closes.

        Written lines of standard output cannot be taken back.
        """
        self._packer = None
        if self._fd >= 0 and not self._is_stdout:
            os.ftruncate(self._fd, self.size)

    def remove_if_empty(self) -> None:
        """Delete a file without a frame."""
        if not self.size and not self._is_stdout:
            os.unlink(self.path)

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]
        self.size += len(data)


class RecordingWriter:
    """Writes snapshots to one file, or to hourly files.

    ``target`` is STDOUT, a directory, a path that ends with ``/`` (it is made), or a file that must not exist; a name
    without ``.gz`` is written as plain text. In a directory a file ends after an hour or 64 MB, and ``most_bytes``
    bounds all of them: the oldest whole files go. Every method raises RecordingError, after which the writer is closed.
    """

    def __init__(self, target: str, *, most_bytes: int | None = None) -> None:
        self._target = target
        self._encoder = LineEncoder()
        self._most_bytes = most_bytes
        self._file_bytes = FILE_BYTES
        self._file: _File | None = None
        self._in_member = 0
        self._last_t: float | None = None
        self._early: list[Event] = []
        self.frames = 0
        self._bytes_before = 0
        self.path: str | None = None
        """The newest file."""
        self._is_directory = target.endswith(os.sep) or os.path.isdir(target)
        if most_bytes is not None:
            if not self._is_directory:
                raise RecordingError(
                    f"{target}: a size limit deletes old files, so it needs a directory"
                )
            self._file_bytes = min(FILE_BYTES, max(_LEAST_FILE_BYTES, most_bytes // 4))
        with self._failing():
            if self._is_directory:
                os.makedirs(target, mode=0o700, exist_ok=True)
            else:
                self._file = self._opened(target)

    @property
    def bytes_written(self) -> int:
        """Bytes on disk in all files of this writer."""
        return self._bytes_before + (self._file.size if self._file is not None else 0)

    def write(self, snapshot: Snapshot, derived: Iterable[Event] = ()) -> None:
        """Append one rounded frame, and events derived from it.

        When this returns, the kernel has them and they survive a kill.
        """
        if snapshot.t <= 0.0:
            raise RecordingError(
                "this machine's clock is set before 1970, which no recording holds: set it to today"
            )
        lines: list[bytes] = []
        with self._failing():
            file = self._file_for(snapshot)
            # A clock that was set back begins a new member, so that times only rise within one.
            is_back = self._last_t is not None and snapshot.t < self._last_t
            self._last_t = snapshot.t
            if self._in_member in (0, MEMBER_FRAMES) or is_back or not self._encoder.fits(snapshot):
                file.begin_member()
                self._make_room()
                self._in_member = 0
                lines.append(
                    self._encoder.begin_member(
                        snapshot, frames_before=file.frames, clock_set_back=is_back
                    )
                )
            lines += map(event_line, self._early)
            lines += self._encoder.frame_lines(snapshot, derived)
            file.append(lines)
            file.frames += 1
        self._early.clear()
        if file.first_t is None:
            file.first_t = snapshot.t
        self._in_member += 1
        self.frames += 1

    def write_event(self, event: Event) -> None:
        """Append one event at once.

        Before the first frame the event waits, and then follows the machine line.
        """
        if self._in_member:
            self._append(event_line(event))
        elif len(self._early) < MOST_EARLY:
            self._early.append(event)

    def write_run(self, facts: RunFacts) -> None:
        """Append the line of the program that ran.

        Does nothing if there is no frame.
        """
        if self._in_member:
            self._append(encode_line(facts))

    def _append(self, line: bytes) -> None:
        assert self._file is not None
        with self._failing():
            self._file.append([line])

    def close(self) -> None:
        """End the last member; remove a file without a frame.

        Raises RecordingError when that fails; earlier frames are safe.
        """
        file, self._file, self._in_member = self._file, None, 0
        if file is None:
            return
        try:
            file.close()
            file.remove_if_empty()
        except OSError as error:
            raise RecordingError(f"{file.path}: {error.strerror or error}") from error
        finally:
            self._bytes_before += file.size

    def _file_for(self, snapshot: Snapshot) -> _File:
        file = self._file
        if file is not None and self._is_directory and file.first_t is not None:
            if file.size < self._file_bytes and 0.0 <= snapshot.t - file.first_t < FILE_SECONDS:
                return file
            self.close()
            file = None
        if file is None:
            file = self._file = self._next_file(snapshot)
        return file

    def _next_file(self, snapshot: Snapshot) -> _File:
        for number in count(1):
            name = file_name(snapshot.machine.hostname, snapshot.t, number)
            with suppress(FileExistsError):
                return self._opened(os.path.join(self._target, name))
        raise AssertionError

    def _opened(self, path: str) -> _File:
        file = _File(path)
        self.path = file.path
        return file

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Turn an OSError into a RecordingError.

        The file is truncated to its last whole frame; an empty file is removed.
        """
        try:
            yield
        except OSError as error:
            path = self.path or self._target
            file, self._file, self._in_member = self._file, None, 0
            if file is not None:
                self._bytes_before += file.size
                with suppress(OSError):
                    file.abandon()
                with suppress(OSError):
                    file.close()
                    file.remove_if_empty()
            words = error.strerror or error
            if isinstance(error, FileExistsError):
                words = "exists already; a recording never overwrites a file, choose another name"
            raise RecordingError(f"{path}: {words}") from error

    def _make_room(self) -> None:
        """Delete the oldest finished recordings down to the size limit.

        Only recordings of this user are deleted.
        """
        if self._most_bytes is None:
            return
        recordings: list[tuple[str, int]] = []
        for entry in os.scandir(self._target):
            status = entry.stat(follow_symlinks=False)
            if (
                _NAME.fullmatch(entry.name)
                and stat.S_ISREG(status.st_mode)
                and status.st_uid == os.geteuid()
            ):
                recordings.append((entry.path, status.st_size))
        # Sort by the time inside the name: files may be from several machines.
        recordings.sort(key=lambda pair: pair[0].rsplit("-", 2)[-2])
        total = sum(size for _, size in recordings)
        for path, size in recordings:
            if total <= self._most_bytes:
                return
            if path != self.path and _deleted(path):
                total -= size


def _deleted(path: str) -> bool:
    """Delete a recording unless it may be in use.

    Returns whether the recording was deleted.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(fd)
