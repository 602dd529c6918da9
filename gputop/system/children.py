"""Starts all programs: gputop's own, others, and the user's.

Each gets one of three environments; nothing in the folder where gputop was started is run or imported by accident. A
test forbids every other way to start a program.
"""

from __future__ import annotations

import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from concurrent.futures import ProcessPoolExecutor

Child = subprocess.Popen[bytes]
TooLate = subprocess.TimeoutExpired
PIPE, NOTHING, WITH_STDOUT = subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT

_ROOT = "/"
_USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"


class ProgramEnvironment(Struct, frozen=True):
    """Variables and folder of a program; None is the current folder."""

    variables: Mapping[str, str]
    folder: str | None


def ours(**more: str) -> ProgramEnvironment:
    """Environment of gputop's own programs and measuring tools.

    All variables, but away from the folder where gputop was started.
    """
    return ProgramEnvironment({**os.environ, "PATH": _absolute_path(), **more}, _ROOT)


def a_jobs() -> ProgramEnvironment:
    """Environment of the user's own Python: all variables, PYTHONPATH too, in the current folder."""
    return ProgramEnvironment({**os.environ}, None)


_ALERT_VARIABLES = ("HOME", "LANG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")


def an_alerts(**more: str) -> ProgramEnvironment:
    """Environment of an alert's command.

    PATH, HOME, LANG, a pod's API server, and the alert's values.
    """
    kept = {name: os.environ[name] for name in _ALERT_VARIABLES if name in os.environ}
    return ProgramEnvironment({"PATH": _absolute_path(), **kept, **more}, _ROOT)


def _absolute_path() -> str:
    """Return PATH without relative folders, which may be anybody's."""
    folders = (folder for folder in os.environ.get("PATH", "").split(":") if folder.startswith("/"))
    return ":".join(folders) or _USUAL_PATH


_PACKAGE = str(Path(__file__).absolute().parents[2])
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != {parent}: sys.exit(126)
"""
"""Kills a program when the thread that started it ends, even by SIGKILL (PR_SET_PDEATHSIG in linux/prctl.h).

A parent that died before the request is noticed by its pid. Our own programs run this first. Lines between fork and
exec are not safe beside other threads, so for a foreign program a small Python runs this and then becomes the program.
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
    """Return the command that runs ``main`` of a module of gputop.

    The program ends with the calling thread or this process. It imports what this process can, but nothing from the
    folder where gputop was started.
    """
    left_out = {_PACKAGE}
    # A folder that was deleted holds nothing to import.
    with suppress(OSError):
        left_out.add(os.getcwd())
    path = [
        _PACKAGE,
        *(folder for folder in sys.path if os.path.isabs(folder) and folder not in left_out),
    ]
    die = _DIE_WITH_PARENT.format(parent=os.getpid())
    code = f"import sys; sys.path[:] = {path!r}{die}{_RUN_MAIN.format(module=module)}"
    return [sys.executable, "-I", "-c", code, *words]


def until_we_end(program: str, *words: str) -> list[str]:
    """Return the command that runs a foreign program found in PATH.

    The program ends with the calling thread or this process. Raises FileNotFoundError where it is missing.
    """
    path = shutil.which(program, path=_absolute_path())
    if path is None:
        raise FileNotFoundError(2, os.strerror(2), program)
    code = _DIE_WITH_PARENT.format(parent=os.getpid()) + _BECOME
    return [sys.executable, "-I", "-S", "-c", code, path, *words]


def die_with_parent(parent: int | None = None) -> None:
    """Let a forked child be killed when its starting thread ends.

    ``parent`` is the pid that forked: the child ends at once if that has ended already.
    """
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(126)


KILLED_S = 1.0
"""How long a killed program is waited for: one that hangs in a driver's call ends when that does."""


def start(
    command: Sequence[str],
    environment: ProgramEnvironment,
    *,
    stdin: int | IO[bytes] = NOTHING,
    stdout: int | IO[bytes] = PIPE,
    stderr: int | IO[bytes] | None = NOTHING,
    pass_fds: Sequence[int] = (),
) -> Child:
    """Start a program in a session of its own.

    No key of our terminal reaches it, and ``end`` ends all that it has started; stderr None is ours. Raises OSError.
    """
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        bufsize=0,
        pass_fds=pass_fds,
        env=environment.variables,
        cwd=environment.folder,
        start_new_session=True,
    )


def finished(
    command: Sequence[str], environment: ProgramEnvironment, limit_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end.

    Raises OSError, and TooLate after ``limit_s``; all that it has started is then ended.
    """
    child = start(command, environment, stderr=PIPE)
    try:
        out, err = child.communicate(timeout=limit_s)
    finally:
        end(child)
    texts = out.decode(errors="replace"), err.decode(errors="replace")
    return subprocess.CompletedProcess(command, child.returncode, *texts)


async def started(command: Sequence[str], environment: ProgramEnvironment) -> Process:
    """Start a program with three pipes for an event loop."""
    import asyncio

    return await asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=environment.variables,
        cwd=environment.folder,
        start_new_session=True,
    )


def in_our_place(command: Sequence[str], before_exec: Callable[[], None]) -> Child:
    """Start the user's command with our terminal, files and signals.

    ``before_exec`` is called in the child, which is safe only before any thread of ours runs. Raises OSError.
    """
    return subprocess.Popen(list(command), preexec_fn=before_exec, close_fds=False)


def in_our_terminal(command: Sequence[str]) -> int:
    """Run the user's command in our terminal; return its exit status.

    Nothing of ours may read or write the terminal meanwhile. Raises OSError.
    """
    return subprocess.call(list(command))


def pool(most: int) -> ProcessPoolExecutor:
    """Return a pool of forks that end with this process."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    return ProcessPoolExecutor(
        most, mp_context=get_context("fork"), initializer=die_with_parent, initargs=(os.getpid(),)
    )


class ServingFork(Struct, frozen=True):
    """A fork of this process that answers: its pid, and our ends of the pipes to and from it."""

    pid: int
    asks: int
    told: int

    def wait(self) -> int:
        """Wait for its end; return its exit status, negative for a signal."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def start_fork(serve: Callable[[int, int], None]) -> ServingFork:
    """Fork this process; ``serve`` is called there with the descriptors to read from and to write to.

    The fork ends when ``serve`` returns, or with the calling thread. Raises OSError.
    """
    told, tells = os.pipe()
    asked, asks = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            die_with_parent(parent)
            os.close(told)
            os.close(asks)
            serve(asked, tells)
            status = 0
        finally:
            os._exit(status)
    os.close(tells)
    os.close(asked)
    return ServingFork(pid, asks, told)


class ForkLimits(Struct, frozen=True):
    """What a fork may take; None is without a limit.

    ``cpu_s`` bounds its processor time, also where it hangs in C. ``growth_bytes`` bounds what its
    address space may grow by, beyond which it gets MemoryError. ``silent_s`` is how long it may take
    to its first byte, ``wall_s`` to its end.
    """

    cpu_s: float | None = None
    growth_bytes: int | None = None
    silent_s: float | None = None
    wall_s: float | None = None


class ForkEnded(Exception):
    """A fork ended without saying all; ``how`` is one phrase, ``is_late`` whether its time was up.

    ``said`` is what it had said until then.
    """

    def __init__(self, status: int, said: bytes, *, is_late: bool) -> None:
        self.how, self.said, self.is_late = how_it_ended(status), said, is_late
        super().__init__(self.how)


def in_a_fork(work: Callable[[IO[bytes]], None], limits: ForkLimits) -> bytes:
    """Return what ``work`` writes, in a fork that may take so much.

    Call it before other threads are started. Raises ForkEnded and OSError.
    """
    told, tells = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(told)
        _work_in_fork(work, parent, tells, limits)
    os.close(tells)
    said, status, is_late = bytearray(), None, False
    try:
        is_late = not _listen(told, pid, said, limits)
        if not is_late:
            _, status = os.waitpid(pid, 0)
    finally:
        os.close(told)
        if status is None:
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
    if status:
        code = os.waitstatus_to_exitcode(status)
        raise ForkEnded(code, bytes(said), is_late=is_late or code == -signal.SIGPROF)
    return bytes(said)


def _listen(told: int, pid: int, said: bytearray, limits: ForkLimits) -> bool:
    """Add what a fork says until its end; False if its time was up before."""
    begun = time.monotonic()
    os.set_blocking(told, False)
    # What the fork has started may hold its pipe for longer than it lives.
    its_end = os.pidfd_open(pid)
    try:
        while True:
            ends = limits.wall_s if said else _sooner(limits.silent_s, limits.wall_s)
            left = None if ends is None else max(0.0, begun + ends - time.monotonic())
            ready = select.select([told, its_end], (), (), left)[0]
            if not ready:
                return False
            with suppress(BlockingIOError):
                while piece := os.read(told, _PIECE_BYTES):
                    said += piece
                return True
            if its_end in ready:
                return True
    finally:
        os.close(its_end)


_PIECE_BYTES = 1 << 20


def _sooner(first: float | None, second: float | None) -> float | None:
    times = [seconds for seconds in (first, second) if seconds is not None]
    return min(times, default=None)


def _work_in_fork(
    work: Callable[[IO[bytes]], None], parent: int, tells: int, limits: ForkLimits
) -> None:
    """Do the work, and end this process."""
    status = 1
    try:
        die_with_parent(parent)
        # Nobody reads a core file, or a stack on stderr, of what foreign data do to their reader.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if "faulthandler" in sys.modules:
            sys.modules["faulthandler"].disable()
        if limits.growth_bytes is not None:
            limit_growth(limits.growth_bytes)
        if limits.cpu_s is not None:
            # SIGPROF ends the process in the middle of a C function, too.
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_PROF, limits.cpu_s)
        with open(tells, "wb") as result:
            work(result)
        status = 0
    finally:
        os._exit(status)


def limit_growth(growth_bytes: int) -> None:
    """Limit the growth of this process's address space."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", "rb") as statm:
        pages = int(statm.read().split(None, 1)[0])
    limit = pages * resource.getpagesize() + growth_bytes
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def end(child: Child, term_s: float = 0.0) -> None:
    """Kill a started program with its session.

    It may end by itself within ``term_s`` after a SIGTERM.
    """
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
    """Describe a status: ``was ended by SIGKILL``, ``ended with status 3``."""
    if status >= 0:
        return f"ended with status {status}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}"
