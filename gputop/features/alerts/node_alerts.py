"""The alerts of one watched run: judged at every frame, listed for the screen, and fired in one process of a user, on
threads of its own: no frame waits for a command.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import stat
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct

from gputop.features.alerts.alert_table import Alert
from gputop.features.alerts.firing import Firing, Judge, NotHanded, Place, firing_of
from gputop.model.alert_board import AlertBoard, AlertRow
from gputop.model.quantity import clean_text, terminal_safe
from gputop.model.secrets import masked_text
from gputop.monitor import Frame
from gputop.system.children import WITH_STDOUT, Child, an_alerts, end, how_it_ended, start
from gputop.system.worker import Worker

# Only one process of a user fires alerts on a machine: which process holds the lock, and when each alert last fired.
#
# The lock is on a file in the user's runtime directory. The same file keeps when each alert fired, so that a restart
# does not break a silence. A lock ends with its process, however that ends.

NAME = "alerts"
MOST_BYTES = 1 << 20
MOST_KEPT = 1024


class FiringLock:
    """``directory`` is this user's alone. ``why_not`` says why this process does not fire; empty where it does."""

    def __init__(self, directory: str) -> None:
        self.why_not = "nothing has fired yet"
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
        try:
            file = _opened(self._path)
        except OSError as error:
            self.why_not = f"nothing is fired: {self._path}: {error.strerror or error}"
            return False
        pid, fired = _read(file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            holder = "another gputop" if pid is None else f"the gputop with pid {pid}"
            self.why_not = f"{holder} fires this user's alerts"
            return False
        with self._guard:
            self._file, self._fired, self.why_not = file, fired, ""
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
        self._fired = dict(sorted(self._fired.items(), key=lambda item: item[1])[-MOST_KEPT:])
        rows = [[name, group, round(t, 3)] for (name, group), t in self._fired.items()]
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
        return int(state["pid"]), {(str(name), str(group)): float(t) for name, group, t in state["fired"]}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None, {}


# A command: 30 s in a session of its own, nothing of this process's environment but PATH, HOME and LANG.

LIMIT_S = 30.0
MOST_OUTPUT = 4096
LOOK_S = 0.05


class CommandOutcome(Struct, frozen=True):
    """The result of one firing, in words such as ``env ended with status 0``, and the first 4 kB that it printed."""

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
    output, killed, limit = b"", "", time.monotonic() + limit_s
    with process.stdout as pipe:
        while process.poll() is None and not killed:
            output += _printed(pipe.fileno(), LOOK_S)[: MOST_OUTPUT - len(output)]
            if is_over.is_set() or time.monotonic() >= limit:
                killed = "was killed with gputop's end" if is_over.is_set() else f"was killed after {limit_s:g} s"
        output += _printed(pipe.fileno(), 0.0)[: MOST_OUTPUT - len(output)]
    if killed:
        end(process)
    return output, killed or how_it_ended(process.returncode)


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


# The run.

MOST_MESSAGES = 100
MOST_WAITING = 64
"""Firings of one alert that wait for the command before them: one for each GPU of a large machine."""
RETRY_S = 5.0
"""How often a process that does not fire checks whether the one that does has ended."""
END_S = 5.0
"""How long the end of gputop waits for what has fired, before it ends that."""
SHOWN_ONLY = "shown only: gputop --alerts fires them"


class NodeAlerts:
    """Without a ``lock`` alerts are judged and shown, and nothing is ever run.

    ``tell`` is called with one line for each firing, from other threads; without it the lines wait in ``messages``.
    """

    def __init__(
        self, alerts: Sequence[Alert], lock: FiringLock | None = None, tell: Callable[[str], None] | None = None
    ) -> None:
        self._judge = Judge(alerts)
        self._silenced: set[str] = set()
        self._last: dict[str, CommandOutcome] = {}
        self._failures: dict[str, str] = {}
        self.messages: deque[str] = deque(maxlen=MOST_MESSAGES)
        self._tell = tell or self.messages.append
        self._lock = lock
        self._retry_at = 0.0
        self._waiting: dict[str, deque[Firing]] = {}
        self._workers: dict[str, Worker[None]] = {}
        """One for each alert that has fired: of its commands one runs at a time."""
        self._is_closed = False
        self._is_over = threading.Event()
        self._adopt()

    def take(self, frame: Frame) -> None:
        """Judge one more frame, and hand what fires to its threads. Never waits."""
        self._adopt()
        for change in self._judge.take(frame.snapshot, frame.diagnoses):
            if change.kind == "resolved" or self._lock is None:
                continue
            if change.alert.name in self._silenced:
                # It has not fired: if it still holds once this run may fire, it does so then.
                del self._judge.fired[change.place]
            elif self._lock.is_held and not self._is_closed:
                self._fire(firing_of(change, frame))

    def why_not(self) -> str:
        """Why this run fires nothing; empty where it does."""
        return SHOWN_ONLY if self._lock is None else self._lock.why_not

    def board(self) -> AlertBoard:
        """Every alert as it stands."""
        return AlertBoard(tuple(self._row(alert) for alert in self._judge.alerts), self.why_not())

    def toggle_silence(self, name: str) -> None:
        """Silence an alert until gputop ends, or let it fire again."""
        self._silenced ^= {name}

    def close(self) -> None:
        """End. Waits five seconds for what has fired, then kills what runs and says what was not run."""
        self._is_closed = True
        self._wait()
        self._is_over.set()
        self._wait()
        for worker in self._workers.values():
            worker.stop()
        if self._lock is not None:
            self._lock.close()

    def _wait(self) -> None:
        limit = time.monotonic() + END_S
        while time.monotonic() < limit and any(
            self._waiting[name] or worker.busy_since is not None for name, worker in self._workers.items()
        ):
            time.sleep(LOOK_S / 5)

    def _adopt(self) -> None:
        """Become the process that fires where none does any more, with what was fired before."""
        lock = self._lock
        if lock is None or lock.is_held or self._is_closed or time.monotonic() < self._retry_at:
            return
        self._retry_at = time.monotonic() + RETRY_S
        if lock.take():
            self._judge.fired = dict(lock.fired())

    def _fire(self, firing: Firing) -> None:
        name = firing.alert.name
        waiting = self._waiting.setdefault(name, deque())
        if len(waiting) >= MOST_WAITING:
            self._ended(CommandOutcome(firing, f"was not run: {MOST_WAITING} wait before it", has_failed=True))
            return
        waiting.append(firing)
        try:
            self._workers.setdefault(name, Worker(f"alert-{name}", partial(self._work, waiting))).ask()
        except RuntimeError:
            waiting.clear()
            self._ended(CommandOutcome(firing, "was not run: no thread can be started", has_failed=True))

    def _work(self, waiting: deque[Firing]) -> None:
        """Run what waits of one alert, one firing after the other."""
        while waiting:
            firing = waiting.popleft()
            try:
                self._ended(self._outcome(firing))
            except Exception as error:  # noqa: BLE001 — whatever it is, the alert must fire again
                words = f"did not fire: {type(error).__name__}: {one_line(str(error))[:160]}".rstrip(": ")
                self._ended(CommandOutcome(firing, words, has_failed=True))

    def _outcome(self, firing: Firing) -> CommandOutcome:
        if self._is_over.is_set():
            return CommandOutcome(firing, "was not run: gputop ended while one before it ran", has_failed=True)
        assert self._lock is not None
        self._lock.note((firing.alert.name, firing.group), firing.t)
        return outcome_of(firing, self._is_over)

    def _row(self, alert: Alert) -> AlertRow:
        last = self._last.get(alert.name)
        return AlertRow(
            alert.name,
            alert.when.text,
            alert.for_s,
            tuple((s.gpu, s.since, s.is_active) for s in self._judge.standing(alert.name) if s.since is not None),
            None if last is None else (last.firing.t, last.firing.where, last.words),
            last is not None and last.has_failed,
            alert.name in self._silenced,
            None if self._lock is None else self._judge.silent_until(alert),
            alert.per,
            alert.gpus,
        )

    def _ended(self, outcome: CommandOutcome) -> None:
        """One firing is over. The same failure of an alert is told once, until it goes well or fails otherwise."""
        name = outcome.firing.alert.name
        self._last[name] = outcome
        if not outcome.has_failed:
            self._failures.pop(name, None)
        elif self._failures.get(name) == outcome.words:
            return
        else:
            self._failures[name] = outcome.words
        printed = f": {outcome.output}" if outcome.has_failed and outcome.output else ""
        self._tell(terminal_safe(f"alert {name} on {outcome.firing.where}: {outcome.words}{printed}"[:500]))
