"""Recordings written to disk: one file of flushed gzip members, or a directory of such files with an upper size.

After ``write`` returns, the frame outlives the end of this process, however sudden. Files are opened exclusively and
never appended to; the oldest are deleted whole. Every call may block on the disk: ``Recorder`` keeps it off the
monitor's thread.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from functools import partial
from itertools import count
from queue import Full, Queue
from typing import Any

from msgspec.structs import replace

from gputop.model.snapshot import Event, Snapshot
from gputop.recording.encode import LineEncoder, encode_line, event_line
from gputop.recording.format import MEMBER_FRAMES, RecordingError, RunFacts
from gputop.system.worker import Worker

STDOUT = "-"
"""The target of a recording that goes to standard output."""
_GZIP = 31
LEVEL = 5
"""Measured for 8 GPUs and 64 processes at 1 Hz: 10.4 MB/h at 0.20 ms a frame; level 6 saves 3 % more for 0.27 ms."""
FILE_SECONDS = 3600.0
FILE_BYTES = 64 << 20
_LEAST_FILE_BYTES = 1 << 20
_NAME = re.compile(r".+-\d{8}T\d{6}Z-\d+(?:\.\d+)?\.gputop\.jsonl\.gz")
MOST_EARLY = 256
"""Events that wait for the first frame."""


def file_name(hostname: str, t: float, number: int = 1) -> str:
    """``HOST-20261120T071500Z-PID.gputop.jsonl.gz``; ``number`` counts the files of one second."""
    host = re.sub(r"[^A-Za-z0-9._-]", "_", hostname)[:64] or "host"
    begun = datetime.fromtimestamp(t, timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    return f"{host}-{begun}-{os.getpid()}{f'.{number}' if number > 1 else ''}.gputop.jsonl.gz"


class _File:
    """One open file: bytes go through one gzip member after the other, each write is flushed to the system."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.size = self.frames = 0
        self.first_t: float | None = None
        self._packed = path.endswith(".gz")
        self._packer: Any = None
        """What ``zlib.compressobj`` gives, whose type has no public name; None where nothing is packed."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)
        # Held while the file is written, so that no other recorder deletes it to make room. On a file system without
        # locks nothing is deleted either.
        with suppress(OSError):
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def begin_member(self) -> None:
        """End the member before and let the next bytes start a new one."""
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
        """Close without another write, cut back to what was written whole."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                os.ftruncate(fd, self.size)
            finally:
                os.close(fd)

    def remove(self) -> None:
        """Delete the file, which has no frame."""
        os.unlink(self.path)

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]
        self.size += len(data)


class _Stdout(_File):
    """Standard output: plain lines, handed over with each write."""

    def __init__(self) -> None:
        self.path = "stdout"
        self.size = self.frames = 0
        self.first_t = None
        self._packed, self._packer = False, None
        self._fd = os.dup(1)

    def abandon(self) -> None:
        """Close; what was written cannot be taken back."""
        self.close()

    def remove(self) -> None:
        """There is no file."""


class RecordingWriter:
    """Writes snapshots to a file, or to files in a directory that change each hour and each 64 MB.

    ``target`` is STDOUT, a directory that exists, a path that ends with ``/`` (it is made), or a file that must not
    exist; a name without ``.gz`` is written as plain text. ``most_bytes`` bounds a directory: the oldest whole files
    go. Every method raises RecordingError, after which the writer is closed.
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
        """The file that is written now, or was written last."""
        self._is_directory = target.endswith(os.sep) or os.path.isdir(target)
        if most_bytes is not None:
            if not self._is_directory:
                raise RecordingError(f"{target}: a size limit deletes old files, so it needs a directory")
            self._file_bytes = min(FILE_BYTES, max(_LEAST_FILE_BYTES, most_bytes // 4))
        with self._failing():
            if self._is_directory:
                os.makedirs(target, mode=0o700, exist_ok=True)
            else:
                self._file = self._opened(target)

    @property
    def bytes_written(self) -> int:
        """Bytes on disk, over all files of this writer."""
        return self._bytes_before + (self._file.size if self._file is not None else 0)

    def write(self, snapshot: Snapshot, derived: Iterable[Event] = ()) -> None:
        """Append one rounded frame, and events derived from it.

        When this returns, the kernel has them and they survive a kill.
        """
        if snapshot.t <= 0.0:
            raise RecordingError("this machine's clock is set before 1970, which no recording holds: set it to today")
        with self._failing():
            file = self._file_for(snapshot)
            lines: list[bytes] = []
            # A clock that was set back begins a new member, so that times only rise within one.
            is_back = self._last_t is not None and snapshot.t < self._last_t
            self._last_t = snapshot.t
            if self._in_member in (0, MEMBER_FRAMES) or is_back or not self._encoder.fits(snapshot):
                file.begin_member()
                self._make_room()
                self._in_member = 0
                head = self._encoder.begin_member(snapshot, frames_before=file.frames, clock_set_back=is_back)
                lines.append(head)
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
        """Append one event at once; before the first frame it waits for it, with so many others at most."""
        if self._in_member:
            self._append(event_line(event))
        elif len(self._early) < MOST_EARLY:
            self._early.append(event)

    def write_run(self, facts: RunFacts) -> None:
        """Append what ran, behind the last frame; nothing where there is none."""
        if self._in_member:
            self._append(encode_line(facts))

    def _append(self, line: bytes) -> None:
        assert self._file is not None
        with self._failing():
            self._file.append([line])

    def close(self) -> None:
        """End the last member; a file without a frame is removed. Raises RecordingError when that fails; what was
        written before is safe."""
        file, self._file, self._in_member = self._file, None, 0
        if file is None:
            return
        try:
            file.close()
            if file.size == 0:
                file.remove()
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
        file = _Stdout() if path == STDOUT else _File(path)
        self.path = file.path
        return file

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Turns an error of the system into one in words, with the file closed and cut to its last whole frame; without
        any frame it goes."""
        try:
            yield
        except OSError as error:
            path = self.path or self._target
            file, self._file, self._in_member = self._file, None, 0
            if file is not None:
                self._bytes_before += file.size
                with suppress(OSError):
                    file.abandon()
                    if file.size == 0:
                        file.remove()
            words = error.strerror or error
            if isinstance(error, FileExistsError):
                words = "exists already; a recording never overwrites a file, choose another name"
            raise RecordingError(f"{path}: {words}") from error

    def _make_room(self) -> None:
        """Delete the oldest finished recordings of this user until the directory is below its limit."""
        if self._most_bytes is None:
            return
        recordings: list[tuple[str, int]] = []
        for entry in os.scandir(self._target):
            status = entry.stat(follow_symlinks=False)
            if _NAME.fullmatch(entry.name) and stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                recordings.append((entry.path, status.st_size))
        # Names of one machine sort by time; those of several sort by the time inside the name.
        recordings.sort(key=lambda pair: pair[0].rsplit("-", 2)[-2])
        total = sum(size for _, size in recordings)
        for path, size in recordings:
            if total <= self._most_bytes:
                return
            if path != self.path and _deleted(path):
                total -= size


def _deleted(path: str) -> bool:
    """Delete a recording that is not being written; False when somebody does or when that is unknown."""
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


# A recorder beside a monitor: frames go into a bounded queue, a daemon thread of its own writes them.
#
# ``offer`` never waits and never raises: a slow disk costs frames, a full one ends the recording with a reason in
# ``error``, and the monitor goes on.

QUEUE_FRAMES = 120
"""Two minutes at 1 Hz: longer than a disk stalls while it flushes, and a few MB of memory."""
MOST_OWED = 256
"""Events of dropped frames that are kept for the next frame."""


class Recorder:
    """Records the frames that it is offered.

    ``target`` and ``most_bytes`` are as in RecordingWriter. Raises RecordingError at once when the target
    cannot be written at all; whatever fails later is in ``error``.
    """

    def __init__(self, target: str, *, most_bytes: int | None = None) -> None:
        self._writer = RecordingWriter(target, most_bytes=most_bytes)
        self._queue: Queue[Callable[[], None]] = Queue(QUEUE_FRAMES)
        """What is to be written next: calls of the writer."""
        self._last_t: float | None = None
        self.seconds = 0.0
        """Time from the first offered frame to the last; a clock that is set back takes none away and adds none."""
        self.error: str | None = None
        """Why recording has stopped; None while it goes on or when it was ended in order."""
        self.dropped = 0
        """Frames that were not recorded because the disk was too slow. Their events come with the next frame."""
        self._owed: tuple[Event, ...] = ()
        self.ran: RunFacts | None = None
        """What ran: written behind the last frame."""
        self._worker = Worker("recorder", self._write, close=lambda: self._write(ends=True))
        # A thread that cannot be started is told at once.
        self._worker.ask()

    @property
    def path(self) -> str | None:
        """The file that is written now, or was written last; None before the first frame in a directory."""
        return self._writer.path

    @property
    def frames(self) -> int:
        """Frames that are safely written."""
        return self._writer.frames

    @property
    def bytes_written(self) -> int:
        """Bytes written, over all files of this recorder."""
        return self._writer.bytes_written

    def offer(self, snapshot: Snapshot, derived: Iterable[Event] = ()) -> None:
        """Queue one rounded frame and events derived from it.

        Never waits; drops the frame when the queue is full.
        """
        if self._has_ended:
            return
        if self._last_t is not None:
            self.seconds += max(0.0, snapshot.t - self._last_t)
        self._last_t = snapshot.t
        marked = [replace(event, derived=True) for event in derived]
        snapshot = replace(snapshot, events=(*self._owed, *snapshot.events, *marked))
        if self._queued(partial(self._writer.write, snapshot)):
            self._owed = ()
        else:
            self._owed = snapshot.events[:MOST_OWED]
            self.dropped += 1

    def event(self, event: Event) -> None:
        """Queue one event by itself, as for a mark while no frame comes."""
        if not self._has_ended and not self._queued(partial(self._writer.write_event, event)):
            self._owed = (*self._owed, event)[:MOST_OWED]

    def name_run(self, facts: RunFacts) -> None:
        """Queue what runs, for a recording whose end may never be written."""
        if not self._has_ended:
            self._queued(partial(self._writer.write_run, facts))

    @property
    def _has_ended(self) -> bool:
        return self.error is not None or self._worker.stopping.is_set()

    def _queued(self, call: Callable[[], None]) -> bool:
        try:
            self._queue.put_nowait(call)
        except Full:
            return False
        self._worker.ask()
        return True

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what is queued and end the file. Waits at most ``timeout_s``: a hung disk is left to the thread."""
        self._worker.stop(timeout_s)
        if self._worker.alive and self.error is None:
            self.error = f"{self._writer.path}: the disk does not answer; the last frames may be missing"

    def _write(self, *, ends: bool = False) -> None:
        """Write what is queued, and what comes last where the recording ``ends``, as it does with the first error."""
        try:
            while self.error is None and not self._queue.empty():
                self._queue.get_nowait()()
            if ends and self.error is None:
                for event in self._owed:
                    self._writer.write_event(event)
                if self.ran is not None:
                    self._writer.write_run(self.ran)
                self._writer.close()
        except Exception as error:  # noqa: BLE001 — whatever it is, the frames that are missing must be told
            words = str(error) if isinstance(error, RecordingError) else f"{type(error).__name__}: {error}".rstrip(": ")
            self.error = f"recording stopped: {words}; frames written: {self._writer.frames}"
            with suppress(RecordingError):
                self._writer.close()
