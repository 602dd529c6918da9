"""The alerts of one watched run, fired by one process of a user."""

from __future__ import annotations

import fcntl
import os
import select
import stat
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from msgspec import Struct

from gputop.features.alerts.alert_table import Alert
from gputop.features.alerts.evaluator import AlertEvaluator, Firing
from gputop.model.alert_board import AlertBoard, AlertRow
from gputop.model.clean_text import clean_text, terminal_safe
from gputop.model.json_text import safe_json
from gputop.model.secrets import masked_text
from gputop.monitor import Frame
from gputop.system.children import WITH_STDOUT, an_alerts, end, how_it_ended, start
from gputop.system.worker import Worker

LIMIT_S = 30.0
MOST_OUTPUT = 4096
POLL_S = 0.05
MOST_MESSAGES = 100
MOST_WAITING = 64
END_S = 5.0
"""How long the end of gputop waits for commands before it kills them."""
SHOWN_ONLY = "shown only: gputop --alerts fires them"


class FiringLock:
    """A file lock: one process of a user fires alerts.

    The lock ends with its process.
    """

    def __init__(self, directory: str) -> None:
        self.why_not = ""
        self._path = os.path.join(directory, "alerts")
        self._file: int | None = None

    def take(self) -> bool:
        """Take the lock unless another process holds it; never waits. ``why_not`` says why it failed."""
        if self._file is None:
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
                self._file = os.open(self._path, flags, 0o600)
                status = os.fstat(self._file)
                if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                    raise PermissionError(1, "not a file of this user")
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.why_not = ""
            except BlockingIOError:
                self.why_not = "another gputop of this user fires the alerts"
                self.close()
            except OSError as error:
                self.why_not = f"nothing is fired: {self._path}: {error.strerror or error}"
                self.close()
        return self._file is not None

    def close(self) -> None:
        """Release the lock."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class CommandOutcome(Struct, frozen=True):
    """The result of one firing, and its first 4 kB of output."""

    firing: Firing
    words: str
    has_failed: bool = True
    output: str = ""


def run_command(
    firing: Firing, is_over: threading.Event | None = None, limit_s: float = LIMIT_S
) -> CommandOutcome:
    """Run a firing's command to its end; blocks.

    It is killed with its session at the limit, or when ``is_over`` is set; a daemon that has left the session goes on.
    """
    command = firing.alert.run
    if not command:
        return CommandOutcome(firing, f"{firing.alert.when.text} holds", has_failed=False)
    name = command[0].rpartition("/")[2]
    try:
        with tempfile.TemporaryFile() as text:
            text.write(safe_json(firing.data, allow_nan=True).encode() + b"\n")
            text.seek(0)
            process = start(command, an_alerts(**firing.variables), stdin=text, stderr=WITH_STDOUT)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return CommandOutcome(firing, f"{name} cannot be run: {reason}")
    assert process.stdout is not None
    pipe, output, limit = process.stdout.fileno(), b"", time.monotonic() + limit_s
    is_over = is_over or threading.Event()
    while process.poll() is None and not is_over.is_set() and time.monotonic() < limit:
        output += _read(pipe, POLL_S)[: MOST_OUTPUT - len(output)]
    if process.returncode is None:
        words = (
            "was killed with gputop's end"
            if is_over.is_set()
            else f"was killed after {limit_s:g} s"
        )
        end(process)
    else:
        words = how_it_ended(process.returncode)
        # A daemon may hold the pipe open: read only what is there.
        output += _read(pipe, 0.0)[: MOST_OUTPUT - len(output)]
    process.stdout.close()
    lines = [
        line.rstrip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()
    ]
    printed = masked_text(clean_text(" ⏎ ".join(lines)))
    return CommandOutcome(firing, f"{name} {words}", process.returncode != 0, printed)


def _read(pipe: int, wait_s: float) -> bytes:
    """Read from a pipe what arrives within ``wait_s``."""
    if not select.select([pipe], [], [], wait_s)[0]:
        return b""
    data = os.read(pipe, 1 << 16)
    if not data:
        # The command has closed its output: select returns at once from now on.
        time.sleep(wait_s)
    return data


class NodeAlerts:
    """Evaluates alerts at every frame, and runs commands on one thread.

    Without a ``lock`` alerts are only shown. ``tell`` gets one line for each firing, from that thread; without it the
    lines wait in ``messages``.
    """

    def __init__(
        self,
        alerts: Sequence[Alert],
        lock: FiringLock | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.messages: deque[str] = deque(maxlen=MOST_MESSAGES)
        self._evaluator = AlertEvaluator(alerts)
        self._lock = lock
        self._tell = tell or self.messages.append
        self._last: dict[str, CommandOutcome] = {}
        self._waiting: deque[Firing] = deque()
        self._worker: Worker[None] = Worker("alerts", self._run_waiting)
        self._is_closed = False
        self._is_over = threading.Event()
        if lock is not None:
            lock.take()

    def take(self, frame: Frame) -> None:
        """Evaluate one more frame, and hand firings to the thread. Never waits."""
        for firing in self._evaluator.take(frame):
            if self._lock is None or self._is_closed or not self._lock.take():
                continue
            if len(self._waiting) >= MOST_WAITING:
                self._ended(CommandOutcome(firing, f"was not run: {MOST_WAITING} wait before it"))
            else:
                self._waiting.append(firing)
                self._worker.ask()

    def why_not(self) -> str:
        """Return why this run fires nothing; empty where it does."""
        return SHOWN_ONLY if self._lock is None else self._lock.why_not

    def board(self) -> AlertBoard:
        """Return the state of every alert."""
        return AlertBoard(tuple(map(self._row, self._evaluator.alerts)), self.why_not())

    def close(self) -> None:
        """Wait five seconds for commands, then kill the running one and drop the others."""
        self._is_closed = True
        for _ in range(2):
            limit = time.monotonic() + END_S
            while (
                self._waiting or self._worker.busy_since is not None
            ) and time.monotonic() < limit:
                time.sleep(POLL_S / 5)
            self._is_over.set()
        self._worker.stop()
        if self._lock is not None:
            self._lock.close()

    def _run_waiting(self) -> None:
        """Run the waiting commands, on the thread."""
        while self._waiting:
            firing = self._waiting[0]
            try:
                if self._is_over.is_set():
                    outcome = CommandOutcome(
                        firing, "was not run: gputop ended while another command ran"
                    )
                else:
                    outcome = run_command(firing, self._is_over)
            except Exception as error:  # noqa: BLE001 - the last frame of a thread: the user must read it
                outcome = CommandOutcome(
                    firing, f"did not fire: {type(error).__name__}: {clean_text(str(error))}"
                )
            self._waiting.popleft()
            self._ended(outcome)

    def _ended(self, outcome: CommandOutcome) -> None:
        """Report one outcome; an alert's repeated failure is reported once."""
        name = outcome.firing.alert.name
        previous = self._last.get(name)
        self._last[name] = outcome
        if previous is not None and outcome.has_failed and previous.words == outcome.words:
            return
        printed = f": {outcome.output}" if outcome.has_failed and outcome.output else ""
        self._tell(
            terminal_safe(f"alert {name} on {outcome.firing.where}: {outcome.words}{printed}"[:500])
        )

    def _row(self, alert: Alert) -> AlertRow:
        last = self._last.get(alert.name)
        return AlertRow(
            alert.name,
            alert.when.text,
            alert.for_s,
            tuple(
                (state.gpu, state.since, state.is_active)
                for state in self._evaluator.states(alert.name)
            ),
            None if last is None else (last.firing.t, last.firing.where, last.words),
            last is not None and last.has_failed,
            None if self._lock is None else self._evaluator.silent_until(alert),
        )
