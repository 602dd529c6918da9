"""The one door through which a program is started: ours, another's, or one that the user names; and how one of ours is
talked to.

Each gets one of three environments, and nothing that merely lies in the folder where gputop was started is ever run or
imported. A test keeps every other way of starting one closed.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from concurrent.futures import ProcessPoolExecutor

Child = subprocess.Popen[bytes]
TooLate = subprocess.TimeoutExpired
PIPE, NOTHING, WITH_STDOUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT

# Environments: the variables of a program, and the folder that it runs in.

_ROOT = "/"
_USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"


class ProgramEnvironment(Struct, frozen=True):
    """The variables of a program and the folder that it runs in; None is where gputop was started."""

    variables: Mapping[str, str]
    folder: str | None


def ours(**more: str) -> ProgramEnvironment:
    """For gputop's own programs and for tools that measure for it: all variables, far from where gputop was started."""
    return ProgramEnvironment({**os.environ, "PATH": _absolute_path(), **more}, _ROOT)


def the_users(**more: str) -> ProgramEnvironment:
    """For what the user asked for by name: the whole environment, in the folder where gputop was started."""
    return ProgramEnvironment({**os.environ, **more}, None)


_ALERT_VARIABLES = ("HOME", "LANG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")


def an_alerts(**more: str) -> ProgramEnvironment:
    """Environment of an alert's command: PATH, HOME, LANG, a pod's API server, and the alert's values."""
    kept = {name: os.environ[name] for name in _ALERT_VARIABLES if name in os.environ}
    return ProgramEnvironment({"PATH": _absolute_path(), **kept, **more}, _ROOT)


def _absolute_path() -> str:
    """PATH without relative folders: they may be anybody's."""
    folders = (folder for folder in os.environ.get("PATH", "").split(":") if folder.startswith("/"))
    return ":".join(folders) or _USUAL_PATH


# Commands that end with the thread that starts them, however it ends, even by SIGKILL.
#
# The kernel is asked for that on the child's side (PR_SET_PDEATHSIG in linux/prctl.h); a parent that died before the
# request was made is noticed by its pid. In a program of ours it is the first thing done. For another's it needs a few
# lines between fork and exec, which are not safe where other threads run; so a small Python executes them and then
# becomes the program.

_PACKAGE = str(Path(__file__).absolute().parents[2])
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != {parent}: sys.exit(126)
"""
_RUN_MAIN = """
from {module} import main
sys.exit(main())
"""
_BECOME = """
try:
    os.execv(sys.argv[1], sys.argv[1:])
except OSError as error:
    sys.exit(f"cannot run {sys.argv[1]}: {error.strerror}")
"""


def our_program(module: str, *words: str) -> list[str]:
    """The command that runs ``main`` of a module of this package until the calling thread or this process ends.

    It imports what this process can, but nothing from the folder that gputop was started in: anything may lie there.
    """
    return [sys.executable, "-I", "-c", _main_of(module, repr(_import_path())), *words]


def until_we_end(program: str, *words: str) -> list[str]:
    """The command that runs a program of somebody else's, looked for in PATH, until the calling thread or this process
    ends. Raises FileNotFoundError when there is no such program."""
    path = shutil.which(program, path=_absolute_path())
    if path is None:
        raise FileNotFoundError(2, os.strerror(2), program)
    code = _DIE_WITH_PARENT.format(parent=os.getpid()) + _BECOME
    return [sys.executable, "-I", "-S", "-c", code, path, *words]


def die_with_parent(parent: int | None = None) -> None:
    """In a forked child: be killed when the thread that has started it ends, however that comes.

    ``parent`` is the pid of who forked: the child ends at once where it has ended before it could ask.
    """
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(126)


def _main_of(module: str, path: str) -> str:
    """The code of a program: before anything is imported, ``path`` is where it may be found."""
    die = _DIE_WITH_PARENT.format(parent=os.getpid())
    return f"import sys; sys.path[:] = {path}{die}{_RUN_MAIN.format(module=module)}"


def _import_path() -> list[str]:
    """Where this process imports from, this package first, without the current folder."""
    left_out = {_PACKAGE}
    # A folder that was deleted holds nothing to import.
    with suppress(OSError):
        left_out.add(os.getcwd())
    return [_PACKAGE, *(folder for folder in sys.path if os.path.isabs(folder) and folder not in left_out)]


# Starting and ending.

KILLED_S = 1.0
"""How long a killed program is waited for: one that hangs in a driver's call ends when that does."""


class Finished(Struct, frozen=True):
    """How a program ended: its exit status, negative for a signal, and what it wrote, as text."""

    status: int
    out: str
    err: str


def start(
    command: Sequence[str],
    environment: ProgramEnvironment,
    *,
    stdin: int | IO[bytes] = NOTHING,
    stdout: int | IO[bytes] = PIPE,
    stderr: int | IO[bytes] = NOTHING,
    pass_fds: Sequence[int] = (),
) -> Child:
    """Start a program in a session of its own: no key of our terminal reaches it, and ``end`` all that it has started.

    Raises OSError.
    """
    return subprocess.Popen(
        command, stdin=stdin, stdout=stdout, stderr=stderr, bufsize=0, pass_fds=pass_fds,
        env=environment.variables, cwd=environment.folder, start_new_session=True,
    )  # fmt: skip


def finished(
    command: Sequence[str], environment: ProgramEnvironment, limit_s: float, stdin: str | None = None
) -> Finished:
    """Run a program to its end. Raises OSError, and TooLate where the time is over: what it has started has ended."""
    child = start(command, environment, stdin=NOTHING if stdin is None else PIPE, stderr=PIPE)
    try:
        out, err = child.communicate(None if stdin is None else stdin.encode(), limit_s)
    finally:
        end(child)
    return Finished(child.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


async def started(command: Sequence[str], environment: ProgramEnvironment) -> Process:
    """As ``start``, with three pipes, for a program that an event loop reads."""
    import asyncio

    return await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=PIPE,
        env=environment.variables, cwd=environment.folder, start_new_session=True,
    )  # fmt: skip


def in_our_place(command: Sequence[str], before_exec: Callable[[], None]) -> Child:
    """Start the user's command with our terminal, files and signals; ``before_exec`` is called in it. No thread of ours
    may run yet, which is what makes that safe. Raises OSError."""
    return subprocess.Popen(list(command), preexec_fn=before_exec, close_fds=False)


def in_our_terminal(command: Sequence[str]) -> int:
    """Run the user's command with our terminal, which nothing of ours reads or writes meanwhile, to its end. Gives its
    exit status. Raises OSError."""
    return subprocess.call(list(command))


def pool(most: int) -> ProcessPoolExecutor:
    """Forks of this process that end with it, for work that takes whole processors."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    return ProcessPoolExecutor(
        most, mp_context=get_context("fork"), initializer=die_with_parent, initargs=(os.getpid(),)
    )


def end(child: Child, term_s: float = 0.0) -> None:
    """Kill a program that ``start`` has started, with all of its session; it may end by itself for so long before."""
    if term_s and child.poll() is None:
        _signal(child, signal.SIGTERM, term_s)
    # Also where it has ended by itself: its session may hold what it has started.
    _signal(child, signal.SIGKILL, KILLED_S)
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def _signal(child: Child, number: int, wait_s: float) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)
    with suppress(TooLate):
        child.wait(wait_s)


def how_it_ended(status: int) -> str:
    """``was ended by SIGKILL``, ``ended with status 3``."""
    if status >= 0:
        return f"ended with status {status}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}"


# A program of ours that is talked to: JSON objects, one a line, over its stdin and stdout. Both ends of that.
#
# The program ends when its stdin does, when nobody reads what it says, and with its parent. What either end does not
# know is skipped.

T = TypeVar("T")
LONGEST_LINE = 8192
MOST_BYTES_PER_LOOK, MOST_LINES_PER_LOOK = 1 << 16, 256
"""A program that says more between two looks is broken: a line is some 150 bytes."""
EOF_S = 0.3
"""How long it may take to end once its stdin, or its stdout, is closed."""
CLOSED = "was told to end"
_KEPT_ERRORS = 4096
_NO_MESSAGE = (msgspec.DecodeError, msgspec.ValidationError, RecursionError)


class ProgramGone(Exception):
    """The program has ended, or says more than it may. One line, without its name: ``was ended by SIGSEGV``."""


class Dialogue(Generic[T]):
    """The end of the one who asks. ``close`` it, whatever happens."""

    def __init__(self, command: Sequence[str], environment: ProgramEnvironment, message: Any) -> None:
        """Start the program, which says messages of this type. Raises OSError."""
        self._child = start(command, environment, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        assert self._child.stdin is not None and self._child.stdout is not None and self._child.stderr is not None
        self._in, self._out, self._err = (
            p.fileno() for p in (self._child.stdin, self._child.stdout, self._child.stderr)
        )
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(message)
        # Commands that a program which hangs cannot take are dropped.
        os.set_blocking(self._in, False)
        self._text = self._errors = b""
        self._lock = threading.Lock()
        self._is_closed = False
        self.pid = self._child.pid
        self.heard_at = time.monotonic()
        """When it last said something, in monotonic seconds; before that, when it was started."""

    def heard(self, wait_s: float, gather_s: float = 0.0) -> list[T]:
        """What it has said, waited for so long; what follows within ``gather_s`` comes with it. Raises ProgramGone."""
        try:
            readable, _, _ = select.select([self._out, self._err], [], [], wait_s)
        except OSError:
            raise ProgramGone(CLOSED) from None
        if readable and gather_s:
            time.sleep(gather_s)
        with self._lock:
            if self._is_closed:
                # By another thread; what has these descriptors now is not ours.
                raise ProgramGone(CLOSED)
            if self._err in readable:
                self._keep_errors()
            if self._out not in readable:
                return []
            piece = os.read(self._out, MOST_BYTES_PER_LOOK)
            if not piece:
                raise ProgramGone(self._last_words())
        *lines, self._text = (self._text + piece).split(b"\n")
        if len(lines) > MOST_LINES_PER_LOOK or len(self._text) > LONGEST_LINE:
            raise ProgramGone("writes more than it was asked for")
        self.heard_at = time.monotonic()
        return [message for line in lines for message in _decoded(self._decoder, line)]

    def tell(self, message: Struct) -> None:
        """Say something to it. Whether it has ended is told by ``heard``."""
        with self._lock, suppress(OSError):
            if not self._is_closed:
                os.write(self._in, _encoded(message))

    def close(self, term_s: float = 0.0) -> None:
        """Close its stdin, which ends it; or kill it, after so long, with all that it has started. From any thread."""
        child = self._child
        with self._lock:
            self._is_closed = True
            if child.stdin is not None:
                child.stdin.close()
        with suppress(TooLate):
            child.wait(EOF_S)
        end(child, term_s)

    def _keep_errors(self) -> None:
        self._errors = (self._errors + os.read(self._err, _KEPT_ERRORS))[-_KEPT_ERRORS:]

    def _last_words(self) -> str:
        """Why it ended without saying so itself."""
        try:
            status = self._child.wait(EOF_S)
        except TooLate:
            return "has closed its output"
        if select.select([self._err], [], [], 0.0)[0]:
            self._keep_errors()
        lines = [line.strip() for line in self._errors.decode(errors="replace").splitlines() if line.strip()]
        return f"{how_it_ended(status)} ({lines[-1][:200]})" if lines and status >= 0 else how_it_ended(status)


# The end of the program itself.

_output = threading.Lock()


def say(message: Struct) -> None:
    """Write one whole line to stdout. If the reader has gone, this process ends, too."""
    with _output:
        try:
            os.write(1, _encoded(message))
        except OSError:
            os._exit(0)


def told(message: type[T]) -> Iterator[T]:
    """What stdin says, to its end."""
    decoder = msgspec.json.Decoder(message)
    while line := sys.stdin.buffer.readline(LONGEST_LINE):
        yield from _decoded(decoder, line)


def _encoded(message: Struct) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def _decoded(decoder: msgspec.json.Decoder[T], line: bytes) -> list[T]:
    try:
        return [decoder.decode(line)]
    except _NO_MESSAGE:
        return []
