"""Starts all programs: gputop's own, others, and the user's.

Each gets one of three environments; nothing in the folder where gputop was started is run or imported by accident. A
test forbids every other way to start a program.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
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
    stderr: int | IO[bytes] = NOTHING,
    pass_fds: Sequence[int] = (),
) -> Child:
    """Start a program in a session of its own.

    No key of our terminal reaches it, and ``end`` ends all that it has started. Raises OSError.
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


class ForkEnded(Exception):
    """A fork ended without a result; ``how`` is one phrase, ``is_late`` whether its time was up."""

    def __init__(self, status: int) -> None:
        self.how = how_it_ended(status)
        self.is_late = status == -signal.SIGPROF
        super().__init__(self.how)


def in_a_fork(work: Callable[[], bytes], *, cpu_s: float, growth_bytes: int) -> bytes:
    """Return the result of ``work`` in a fork that may take so much.

    ``cpu_s`` bounds its processor time, also where it hangs in C; ``growth_bytes`` bounds what its
    address space may grow by, beyond which it gets MemoryError. Call it before other threads are
    started. Raises ForkEnded and OSError.
    """
    told, tells = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _work_in_fork(work, parent, tells, cpu_s, growth_bytes)
    os.close(tells)
    try:
        with open(told, "rb") as result:
            data = result.read()
    except BaseException:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    _, status = os.waitpid(pid, 0)
    if status:
        raise ForkEnded(os.waitstatus_to_exitcode(status))
    return data


def _work_in_fork(
    work: Callable[[], bytes], parent: int, tells: int, cpu_s: float, growth_bytes: int
) -> None:
    """Write the result of ``work``, and end this process."""
    status = 1
    try:
        die_with_parent(parent)
        # Nobody reads a core file, or a stack on stderr, of what a damaged file does to its reader.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if "faulthandler" in sys.modules:
            sys.modules["faulthandler"].disable()
        limit_growth(growth_bytes)
        # SIGPROF ends the process in the middle of a C function, too.
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        data = work()
        with open(tells, "wb") as result:
            result.write(data)
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
