"""Runs what alerts ask for: in one process of a user, on threads of its own, each command under a supervisor.

No caller waits for a command: ``offer`` returns at once, and ``close`` after a second at most.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from gputop.features.alerts.alert_judge import Place
from gputop.features.alerts.firing import AddressError, Firing, NotHanded, addresses
from gputop.model.quantity import clean_text
from gputop.model.secrets import masked_text
from gputop.system.worker import Worker

# Only one process of a user fires alerts on a machine: which process holds the lock, and when each alert last fired.
#
# The lock is on a file in every directory in which gputops of this user may look, because they do not all know the same
# ones. The same files keep when each alert fired, so that a restart does not break a silence. A lock ends with its
# process, however that ends.

NAME = "alerts"
MOST_BYTES = 1 << 20
MOST_KEPT = 1024
KEPT_S = 30 * 86400.0
"""The longest silence that an alert may ask for."""


class FiringLock:
    """``directories`` are this user's alone. ``reason`` says why nothing can be fired where none can be used."""

    def __init__(self, directories: Sequence[str]) -> None:
        self.reason: str | None = None
        self.holder: int | None = None
        """The process that fires, where it is another one and has said so."""
        self._directories = directories
        self._files: list[int] = []
        self._fired: dict[Place, float] = {}
        self._guard = threading.Lock()

    @property
    def is_held(self) -> bool:
        """Whether this process is the one that fires."""
        return bool(self._files)

    def take(self) -> bool:
        """Become the process that fires, unless another is. Never waits."""
        with self._guard:
            if self._files:
                return True
            opened, reasons, is_free = [], [], True
            for directory in self._directories:
                try:
                    opened.append(_opened(os.path.join(directory, NAME)))
                except OSError as error:
                    reasons.append(f"{directory}: {error.strerror or error}")
            for file in opened:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    is_free = False
            holders = [_read(file) for file in opened]
            self.reason = None if opened else "; ".join(reasons) or "there is no directory for it"
            if not opened or not is_free:
                self.holder = next((pid for pid, _ in holders if pid is not None), None)
                for file in opened:
                    os.close(file)
                return False
            self._files, self.holder = opened, None
            for _, fired in holders:
                for place, t in fired.items():
                    self._fired[place] = max(t, self._fired.get(place, t))
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
            for file in self._files:
                os.close(file)
            self._files = []

    def _write(self) -> None:
        now = time.time()
        newest = sorted(self._fired.items(), key=lambda item: item[1])[-MOST_KEPT:]
        self._fired = {place: t for place, t in newest if now - t < KEPT_S}
        rows = [[name, uuid, round(t, 3)] for (name, uuid), t in self._fired.items()]
        text = json.dumps({"pid": os.getpid(), "fired": rows}).encode() + b"\n"
        for file in self._files:
            # A full disk costs silences over a restart, not alerts.
            with suppress(OSError):
                os.pwrite(file, text, 0)
                os.ftruncate(file, len(text))


def holder(directories: Sequence[str]) -> int | None:
    """The process that fires this user's alerts now, if there is one. Changes nothing."""
    for directory in directories:
        try:
            file = os.open(os.path.join(directory, NAME), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            continue
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


# A command under its supervisor: 30 s, nothing of this process's environment but PATH, HOME and LANG.

LIMIT_S = 30.0
SPARE_S = 10.0
"""How much longer than the limit the supervisor may take before it counts as lost."""
USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"
_HERE = Path(__file__).parent


class Ended(Struct, frozen=True):
    """How a command ended: its exit status, negative for a signal, or None; what went wrong; what it printed."""

    exit_code: int | None
    problem: str | None
    output: str = ""

    @property
    def has_failed(self) -> bool:
        """Whether it ended with a problem or an exit status other than 0."""
        return self.problem is not None or self.exit_code != 0

    def words(self) -> str:
        """``ended with 0``, ``was killed after 30 s``."""
        if self.problem is not None:
            return self.problem
        if self.exit_code is not None and self.exit_code < 0:
            return f"was ended by signal {-self.exit_code}"
        return f"ended with {self.exit_code}"


class Running:
    """A command under its supervisor: it runs to its end or its limit, even if this process ends."""

    def __init__(self, argv: Sequence[str], text: str, limit_s: float = LIMIT_S) -> None:
        """Start a command with a text on its stdin. ``ended`` tells what went wrong."""
        self._limit_s = limit_s + SPARE_S
        self._process: subprocess.Popen[bytes] | None = None
        self._problem: str | None = None
        env = environment(os.environ)
        request = {"argv": list(argv), "env": env, "input": text, "timeout_s": limit_s}
        try:
            self._process = subprocess.Popen(
                _python("supervisor.py"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=env,
                cwd="/",
                start_new_session=True,
            )
            assert self._process.stdin is not None
            with self._process.stdin as pipe:
                pipe.write(json.dumps(request).encode())
            self._process.stdin = None
        except OSError as error:
            self._problem = f"cannot be run: {error.strerror}"

    def ended(self) -> Ended:
        """How it ended. Call it off the tick: it blocks for up to ten seconds more than the limit."""
        process = self._process
        if process is None:
            return Ended(None, self._problem)
        try:
            answer = json.loads(process.communicate(timeout=self._limit_s)[0])
            return Ended(answer["exit"], answer["problem"], one_line(answer["output"]))
        except subprocess.TimeoutExpired:
            return Ended(None, f"was killed after {self._limit_s:g} s, together with its supervisor")
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return Ended(None, self._problem or "how it ended is unknown: its supervisor is gone")
        finally:
            process.kill()
            process.wait()


def notification(addresses: Sequence[str], title: str, body: str) -> Running:
    """Start sending a notification by apprise, under the same limits. Neither argv nor environment holds an address."""
    # A relative path would depend on the current directory, which may belong to any user.
    path = [part for part in sys.path if os.path.isabs(part)]
    request = {"path": path, "urls": list(addresses), "title": title, "body": body}
    return Running(_python("notifier.py"), json.dumps(request))


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that a command gets. Relative folders are left out of PATH: they may be anybody's."""
    variables = {name: environ[name] for name in ("HOME", "LANG") if name in environ}
    path = ":".join(part for part in environ.get("PATH", "").split(":") if part.startswith("/"))
    return {"PATH": path or USUAL_PATH, **variables}


def one_line(text: str) -> str:
    """What a command printed: its lines joined, control characters and secrets masked."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return masked_text(clean_text(" ⏎ ".join(lines)))


def _python(script: str) -> list[str]:
    """This Python on a file of this folder, isolated: it imports from nowhere but the standard library."""
    return [sys.executable or "python3", "-I", "-S", str(_HERE / script)]


MOST_WAITING = 64
"""Firings of one alert that wait for the command before them: one for each GPU of a large machine."""
RETRY_S = 5.0
"""How often a process that does not fire checks whether the one that does has ended."""
HAND_OVER_S = 1.0
"""How long the end of gputop waits for what has fired to be handed to its supervisor."""


class CommandOutcome(Struct, frozen=True):
    """The result of one firing, in words such as ``kubectl ended with 0``."""

    firing: Firing
    words: str
    has_failed: bool
    output: str = ""


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
        self._under_way: dict[str, Firing] = {}
        """What a supervisor is running, by alert."""
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
        """End. Waits up to a second until what has fired is handed over; it then finishes by itself."""
        with self._state:
            self._state.wait_for(lambda: self._busy <= self._under_way.keys(), HAND_OVER_S)
            self._closed = True
            for worker in (self._await_lock, *self._workers.values()):
                worker.stop()
            not_run = [firing for waiting in self._waiting.values() for firing in waiting]
            self._waiting.clear()
            under_way = list(self._under_way.values())
        for firing in under_way:
            self._tell(CommandOutcome(firing, "goes on: it had not ended when gputop did", False))
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
            try:
                self._lock.note(firing.place, firing.t)
                under_way = UnderWay(firing)
                with self._state:
                    self._under_way[name] = firing
                    self._state.notify_all()
                outcome = under_way.outcome()
            except Exception as error:  # noqa: BLE001 — whatever it is, the alert must fire again
                words = f"did not fire: {type(error).__name__}: {one_line(str(error))[:160]}".rstrip(": ")
                outcome = CommandOutcome(firing, words, has_failed=True)
            with self._state:
                self._under_way.pop(name, None)
            if not self._closed:
                self._tell(outcome)


class _Part(Struct, frozen=True):
    """The command or the notification of a firing, under way, or why it is not; ``name`` is how it is called."""

    kind: Literal["command", "notification"]
    name: str
    started: Running | str

    def ended(self) -> Ended:
        """How it ended, when it has."""
        return Ended(None, self.started) if isinstance(self.started, str) else self.started.ended()

    def words(self, ended: Ended) -> str:
        """Its result in words; the exit status of a notification means nothing to people."""
        if self.kind == "notification" and ended.problem is None:
            return f"{self.name} {'failed' if ended.has_failed else 'was sent'}"
        return f"{self.name} {ended.words()}"


class UnderWay:
    """One firing whose command and notification have been started."""

    def __init__(self, firing: Firing) -> None:
        self._firing = firing
        self._parts: list[_Part] = []
        alert = firing.alert
        if alert.run:
            self._parts.append(_Part("command", alert.run[0].rpartition("/")[2], self._command()))
        if alert.notifies:
            self._parts.append(_Part("notification", "notification", self._notification()))

    def outcome(self) -> CommandOutcome:
        """The result, once it is over: after 40 s at most."""
        words, printed, has_failed = [], [], False
        for part in self._parts:
            ended = part.ended()
            words.append(part.words(ended))
            printed += [ended.output] if ended.output else []
            has_failed = has_failed or ended.has_failed
        summary = "; ".join(words) or f"{self._firing.alert.when.text} holds"
        return CommandOutcome(self._firing, summary, has_failed, "; ".join(printed))

    def _command(self) -> Running | str:
        """The running command, or why there is none."""
        try:
            return Running(self._firing.argv(), self._firing.json())
        except NotHanded as error:
            return f"was not run: {error}"

    def _notification(self) -> Running | str:
        alert = self._firing.alert
        try:
            urls = [*alert.notify, *(addresses(alert.notify_file) if alert.notify_file else ())]
        except AddressError as error:
            return f"was not sent: {error}"
        return notification(urls, self._firing.title, self._firing.body)
