"""Runs what alerts ask for: in one process of a user, on threads of its own.

No caller waits for a command: ``offer`` returns at once, and ``close`` waits a few seconds for what has begun.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import stat
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct

from gputop.features.alerts.alert_judge import Place
from gputop.features.alerts.firing import Firing, NotHanded
from gputop.model.quantity import clean_text
from gputop.model.secrets import masked_text
from gputop.system.children import WITH_STDOUT, Child, an_alerts, start
from gputop.system.worker import Worker

# Only one process of a user fires alerts on a machine: which process holds the lock, and when each alert last fired.
#
# The lock is on a file in the user's runtime directory. The same file keeps when each alert fired, so that a restart
# does not break a silence. A lock ends with its process, however that ends.

NAME = "alerts"
MOST_BYTES = 1 << 20
MOST_KEPT = 1024
KEPT_S = 30 * 86400.0
"""The longest silence that an alert may ask for."""


class FiringLock:
    """``directory`` is this user's alone. ``reason`` says why nothing can be fired where it cannot be used."""

    def __init__(self, directory: str) -> None:
        self.reason: str | None = None
        self.holder: int | None = None
        """The process that fires, where it is another one and has said so."""
        self._path = os.path.join(directory, NAME)
        self._file: int | None = None
        self._fired: dict[Place, float] = {}
        self._guard = threading.Lock()

    @property
    def is_held(self) -> bool:
        """Whether this process is the one that fires."""
        return self._file is not None

    def take(self) -> bool:
        """Become the process that fires, unless another is. Never waits."""
        with self._guard:
            if self._file is not None:
                return True
            try:
                file = _opened(self._path)
            except OSError as error:
                self.reason = f"{self._path}: {error.strerror or error}"
                return False
            self.holder, fired = _read(file)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(file)
                return False
            self._file, self._fired, self.holder, self.reason = file, fired, None, None
            self._write()
            return True

    def fired(self) -> Mapping[Place, float]:
        """When each alert fired last on each GPU, by whichever process."""
        with self._guard:
            return dict(self._fired)

    def note(self, place: Place, t: float) -> None:
        """Note that an alert fires, before it does: if the process is killed in between, it counts as fired."""
        with self._guard:
            self._fired[place] = t
            self._write()

    def close(self) -> None:
        """Release the lock, so that another process may fire."""
        with self._guard:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _write(self) -> None:
        if self._file is None:
            return
        now = time.time()
        newest = sorted(self._fired.items(), key=lambda item: item[1])[-MOST_KEPT:]
        self._fired = {place: t for place, t in newest if now - t < KEPT_S}
        rows = [[name, uuid, round(t, 3)] for (name, uuid), t in self._fired.items()]
        text = json.dumps({"pid": os.getpid(), "fired": rows}).encode() + b"\n"
        # A full disk costs silences over a restart, not alerts.
        with suppress(OSError):
            os.pwrite(self._file, text, 0)
            os.ftruncate(self._file, len(text))


def holder(directory: str) -> int | None:
    """The process that fires this user's alerts now, if there is one. Changes nothing."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        file = os.open(os.path.join(directory, NAME), flags)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _read(file)[0]
    finally:
        os.close(file)
    return None


def _opened(path: str) -> int:
    """The file, created if missing. Raises OSError where it is not this user's own."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        os.close(file)
        raise PermissionError(1, "not a file of this user")
    return file


def _read(file: int) -> tuple[int | None, dict[Place, float]]:
    """Who holds the lock and what fired when; nothing of what cannot be understood.

    Only the first object counts: after it the rest of a longer one may be left, where a writer was killed.
    """
    try:
        state: Any = json.JSONDecoder().raw_decode(os.pread(file, MOST_BYTES, 0).decode())[0]
        rows = [(str(name), str(uuid), float(t)) for name, uuid, t in state["fired"]]
        return int(state["pid"]), {(name, uuid): t for name, uuid, t in rows if 0.0 < t < 1e11}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None, {}


# A command: 30 s in a session of its own, nothing of this process's environment but PATH, HOME and LANG.

LIMIT_S = 30.0
MOST_OUTPUT = 4096
LOOK_S = 0.05
KILLING_S = 5.0
"""How long a command may take to die: one that hangs in the kernel is left behind."""


class CommandOutcome(Struct, frozen=True):
    """The result of one firing, in words such as ``kubectl ended with 0``, and the first 4 kB that it printed."""

    firing: Firing
    words: str
    has_failed: bool
    output: str = ""


def outcome_of(firing: Firing, is_over: threading.Event | None = None, limit_s: float = LIMIT_S) -> CommandOutcome:
    """Run the command of a firing to its end, its limit, or until ``is_over`` is set, and say what became of it.

    Blocks. At the limit its session is killed; what has left that session by then is its own business.
    """
    if not firing.alert.run:
        return CommandOutcome(firing, f"{firing.alert.when.text} holds", has_failed=False)
    name = firing.alert.run[0].rpartition("/")[2]
    try:
        with tempfile.TemporaryFile() as text:
            text.write(firing.json().encode())
            text.seek(0)
            process = start(firing.argv(), an_alerts(), stdin=text, stderr=WITH_STDOUT)
    except NotHanded as error:
        return CommandOutcome(firing, f"{name} was not run: {error}", has_failed=True)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return CommandOutcome(firing, f"{name} cannot be run: {reason}", has_failed=True)
    output, words = _watched(process, is_over or threading.Event(), limit_s)
    printed = one_line(output.decode("utf-8", "replace"))
    return CommandOutcome(firing, f"{name} {words}", process.returncode != 0, printed)


def _watched(process: Child, is_over: threading.Event, limit_s: float) -> tuple[bytes, str]:
    """What a command printed first, and how it ended; the rest of what it prints is read and dropped."""
    assert process.stdout is not None
    output, words, end = b"", "", time.monotonic() + limit_s
    with process.stdout as pipe:
        while process.poll() is None and time.monotonic() < end + KILLING_S:
            output += _printed(pipe.fileno(), LOOK_S)[: MOST_OUTPUT - len(output)]
            if not words and (is_over.is_set() or time.monotonic() >= end):
                words = "was killed with gputop's end" if is_over.is_set() else f"was killed after {limit_s:g} s"
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        output += _printed(pipe.fileno(), 0.0)[: MOST_OUTPUT - len(output)]
    code = process.returncode or 0
    return output, words or (f"was ended by signal {-code}" if code < 0 else f"ended with {code}")


def _printed(pipe: int, wait_s: float) -> bytes:
    """What arrives within a moment."""
    if not select.select([pipe], [], [], wait_s)[0]:
        return b""
    data = os.read(pipe, 1 << 16)
    if not data:
        # It has closed what it prints to, and select returns at once from now on.
        time.sleep(wait_s)
    return data


def one_line(text: str) -> str:
    """What a command printed: its lines joined, control characters and secrets masked."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return masked_text(clean_text(" ⏎ ".join(lines)))


MOST_WAITING = 64
"""Firings of one alert that wait for the command before them: one for each GPU of a large machine."""
RETRY_S = 5.0
"""How often a process that does not fire checks whether the one that does has ended."""
END_S = 5.0
"""How long the end of gputop waits for a command that has begun, before it ends it."""


class Runner:
    """``tell`` is called from other threads with each outcome."""

    def __init__(self, lock: FiringLock, tell: Callable[[CommandOutcome], None]) -> None:
        self._lock = lock
        self._tell = tell
        self._state = threading.Condition()
        self._waiting: dict[str, deque[Firing]] = {}
        self._workers: dict[str, Worker[None]] = {}
        """One for each alert that has fired."""
        self._busy: set[str] = set()
        self._under_way: set[str] = set()
        """The alerts whose command runs."""
        self._is_over = threading.Event()
        self._adopted: Mapping[Place, float] | None = None
        self._closed = False
        self._awaits = not lock.take() and lock.reason is None
        self._await_lock = Worker("alerts-lock", self._take_lock, again=RETRY_S)
        if lock.is_held:
            self._adopted = lock.fired()

    def why_not(self) -> str:
        """Why this process does not fire; empty where it does."""
        if self._lock.is_held:
            return ""
        if self._lock.reason is not None:
            return f"nothing is fired: {self._lock.reason}"
        holder = "another gputop" if self._lock.holder is None else f"the gputop with pid {self._lock.holder}"
        return f"{holder} fires this user's alerts"

    def adopted(self) -> Mapping[Place, float] | None:
        """Once after this process has become the one that fires: when each alert fired last.

        Called at every tick. The first call starts the thread that waits for another firing process to end.
        """
        if self._awaits:
            self._awaits = False
            self._await_lock.ask()
        adopted, self._adopted = self._adopted, None
        return adopted

    def offer(self, firing: Firing) -> None:
        """Fire, if this process is the one that does. Never waits."""
        if not self._lock.is_held or self._closed:
            return
        name = firing.alert.name
        with self._state:
            waiting = self._waiting.setdefault(name, deque())
            worker = self._workers.setdefault(name, Worker(f"alert-{name}", partial(self._work, name)))
            is_full = len(waiting) >= MOST_WAITING
            if not is_full:
                waiting.append(firing)
                self._busy.add(name)
        if is_full:
            self._tell(CommandOutcome(firing, f"was not run: {MOST_WAITING} wait before it", True))
            return
        try:
            worker.ask()
        except RuntimeError:
            with self._state:
                self._busy.discard(name)
                waiting.clear()
            self._tell(CommandOutcome(firing, "was not run: no thread can be started", True))

    def close(self) -> None:
        """End. Waits five seconds for what has begun, then kills it."""
        with self._state:
            self._closed = True
            not_run = []
            for name, waiting in self._waiting.items():
                while len(waiting) > (name not in self._under_way):
                    not_run.append(waiting.pop())
            self._state.wait_for(lambda: not self._busy, END_S)
            self._is_over.set()
            self._state.wait_for(lambda: not self._busy, END_S)
            for worker in (self._await_lock, *self._workers.values()):
                worker.stop()
        for firing in not_run:
            self._tell(CommandOutcome(firing, "was not run: gputop ended while one before it ran", True))
        self._lock.close()

    def _take_lock(self) -> None:
        if self._lock.take():
            self._adopted = self._lock.fired()
            self._await_lock.stop()

    def _work(self, name: str) -> None:
        """Run the queue of one alert, one firing after the other."""
        while True:
            with self._state:
                waiting = self._waiting.get(name)
                if not waiting:
                    self._busy.discard(name)
                    self._state.notify_all()
                    return
                firing = waiting.popleft()
                self._under_way.add(name)
            try:
                self._lock.note(firing.place, firing.t)
                outcome = outcome_of(firing, self._is_over)
            except Exception as error:  # noqa: BLE001 — whatever it is, the alert must fire again
                words = f"did not fire: {type(error).__name__}: {one_line(str(error))[:160]}".rstrip(": ")
                outcome = CommandOutcome(firing, words, has_failed=True)
            with self._state:
                self._under_way.discard(name)
            self._tell(outcome)
