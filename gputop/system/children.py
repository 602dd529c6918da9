"""The one door through which a program is started: ours, another's, or one that the user names.

Each gets one of three environments, and nothing that merely lies in the folder where gputop was started is ever run or
imported. A test keeps every other way of starting one closed.
"""

from __future__ import annotations

import os
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


def an_alerts() -> ProgramEnvironment:
    """For what an alert runs: PATH, HOME and LANG alone."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    return ProgramEnvironment({"PATH": _absolute_path(), **kept}, _ROOT)


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


def users_python(module: str, *words: str) -> list[str]:
    """As ``our_program``, in the Python that the user would start: with what his variables say, and his modules first.

    Only for what runs his own code by design: the current folder comes into it when that is imported.
    """
    return [sys.executable, "-c", _main_of(module, f"[*filter(None, sys.path), {_PACKAGE!r}]"), *words]


def until_we_end(program: str, *words: str) -> list[str]:
    """The command that runs a program of somebody else's, looked for in PATH, until the calling thread or this process
    ends. Raises FileNotFoundError when there is no such program."""
    path = shutil.which(program, path=_absolute_path())
    if path is None:
        raise FileNotFoundError(2, os.strerror(2), program)
    code = _DIE_WITH_PARENT.format(parent=os.getpid()) + _BECOME
    return [sys.executable, "-I", "-S", "-c", code, path, *words]


def die_with_parent() -> None:
    """In a forked child: be killed when the thread that has started it ends, however that comes."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


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

    return ProcessPoolExecutor(most, mp_context=get_context("fork"), initializer=die_with_parent)


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
