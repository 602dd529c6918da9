"""Deep inspection of one process: threads from /proc, Python stacks from py-spy if it is installed.

py-spy reads the memory of the process from outside (``dump --nonblocking`` does not pause it). It takes a pid, so the
identity is compared before and after, and stacks of another process are discarded.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from gputop.model.extras import install
from gputop.model.inspection import (
    DeepLook,
    InspectedProcess,
    ProcessIdentity,
    ThreadSample,
    ThreadStack,
)
from gputop.model.secrets import masked_text, masked_words
from gputop.sources.processes.on_demand.requested_looks import read_threads
from gputop.sources.processes.tree.process_facts import GONE, identity_problem
from gputop.sources.procfs import link_at, read_file, text_of
from gputop.system.children import TooLate, finished, ours

LOOKS_AT_S = (0.0, 0.75, 1.5)
"""Times of the stack samples, seconds after the first: a stack that stays for 1.5 s is where the time goes."""
LONGEST_DUMP_S = 5.0
MOST_FRAMES = 64
CAP_SYS_PTRACE = 1 << 19
_PTRACE_SCOPES = {
    "1": "run gputop with sudo, or allow it to your own processes: sudo sysctl kernel.yama.ptrace_scope=0",
    "2": "only root may trace; run gputop with sudo",
    "3": "nobody may trace until the machine is booted with another value",
}


def install_hint() -> str:
    """Return how to install py-spy beside gputop."""
    return f"py-spy shows what the Python code does: {install('deep')}, or py-spy alone"


class NoStack(Struct, frozen=True):
    """Reason for a missing stack.

    ``denied``: only the permission to read the process was missing.
    """

    reason: str
    denied: bool = False


NO_MAIN_THREAD = NoStack("py-spy saw no main thread: the process is starting or ending")


class DeepLooker:
    """Inspects processes of this machine.

    ``py_spy`` names the program; by default, it is searched for.
    """

    def __init__(
        self,
        proc: str = "/proc",
        py_spy: str | None = None,
        *,
        wait: Callable[[float], None] = time.sleep,
    ):
        self._proc = proc
        self._py_spy = py_spy or find_py_spy()
        self._wait = wait

    def look(self, identity: ProcessIdentity, loader: ProcessIdentity | None) -> DeepLook:
        """Inspect a process, and one loader, three times in 1.5 s.

        Blocks for about two seconds.
        """
        chosen = [identity] if loader is None else [identity, loader]
        stacks: dict[ProcessIdentity, list[ThreadStack]] = {process: [] for process in chosen}
        problems: dict[ProcessIdentity, NoStack] = {}
        begin = time.monotonic()
        for moment in LOOKS_AT_S if self._py_spy else ():
            self._wait(max(0.0, begin + moment - time.monotonic()))
            for process in chosen:
                if process not in problems:
                    stack = self._stack(process)
                    if isinstance(stack, ThreadStack):
                        stacks[process].append(stack)
                    else:
                        problems[process] = stack
            if len(problems) == len(chosen):
                break
        sights = [
            self._inspected(process, tuple(stacks[process]), problems.get(process))
            for process in chosen
        ]
        argv, folder = self._start(identity)
        return DeepLook(sights[0], sights[1] if loader is not None else None, argv, folder)

    def _stack(self, identity: ProcessIdentity) -> ThreadStack | NoStack:
        """Return the main thread's stack, or the reason for its absence."""
        problem = identity_problem(self._proc, identity)
        if problem is not None:
            return NoStack(problem)
        command = [str(self._py_spy), "dump", "--nonblocking", "--json", "--pid", str(identity.pid)]
        try:
            done = finished(command, ours(RUST_BACKTRACE="0"), LONGEST_DUMP_S)
        except TooLate:
            return NoStack(f"py-spy gave no answer in {LONGEST_DUMP_S:.0f} s")
        except OSError as error:
            return NoStack(f"py-spy could not be run: {error.strerror}")
        problem = identity_problem(self._proc, identity)
        if problem is not None:
            return NoStack(problem)
        if done.returncode != 0:
            return _failure(done.stderr)
        return main_stack(done.stdout, identity.pid) or NO_MAIN_THREAD

    def _inspected(
        self, identity: ProcessIdentity, stacks: tuple[ThreadStack, ...], problem: NoStack | None
    ) -> InspectedProcess:
        threads = self._threads(identity)
        if stacks:
            return InspectedProcess(identity, threads, stacks)
        if self._py_spy is None:
            words = identity_problem(self._proc, identity) or "py-spy is not installed"
            return InspectedProcess(identity, threads, reason=words, help=install_hint())
        if problem is None:
            return InspectedProcess(identity, threads)
        return InspectedProcess(
            identity,
            threads,
            reason=problem.reason,
            help=permission_help(self._proc) if problem.denied else "",
        )

    def _threads(self, identity: ProcessIdentity) -> tuple[ThreadSample, ...]:
        """Return the threads, the main one first.

        Empty when the pid belongs to another process or cannot be listed.
        """
        threads = read_threads(identity.pid, identity.starttime, None, 0.0, self._proc).threads
        return threads if identity_problem(self._proc, identity) is None else ()

    def _start(self, identity: ProcessIdentity) -> tuple[tuple[str, ...], str | None]:
        """Return (argv, working folder) of a process, secrets masked.

        Unreadable parts are empty.
        """
        try:
            line = read_file(f"{self._proc}/{identity.pid}/cmdline")
        except OSError:
            line = b""
        folder = link_at(f"{self._proc}/{identity.pid}/cwd")
        if identity_problem(self._proc, identity) is not None:
            return (), None
        words = line.removesuffix(b"\0").split(b"\0") if line else []
        return tuple(
            masked_words([word.decode("utf-8", "replace") for word in words])
        ), masked_text(folder) if folder else None


def find_py_spy() -> str | None:
    """Return the path of py-spy, or None.

    PATH and the scripts of this Python are searched.
    """
    script = Path(sysconfig.get_path("scripts")) / "py-spy"
    return shutil.which("py-spy") or (str(script) if os.access(script, os.X_OK) else None)


class _Frame(Struct):
    name: str | None = None
    filename: str | None = None
    short_filename: str | None = None
    line: int | None = None


class _Dumped(Struct):
    """One thread in the output of ``py-spy dump --json`` (0.4)."""

    thread_name: str | None = None
    os_thread_id: int | None = None
    active: bool = False
    frames: list[_Frame] = []


def main_stack(text: str | bytes, pid: int) -> ThreadStack | None:
    """Return the main thread's stack from py-spy's output, or None."""
    try:
        threads = msgspec.json.decode(text, type=list[_Dumped])
    except (msgspec.MsgspecError, RecursionError):
        return None
    for thread in threads:
        if thread.os_thread_id == pid or (
            thread.os_thread_id is None and thread.thread_name == "MainThread"
        ):
            frames = (
                (
                    masked_text(f.name or "?"),
                    masked_text(f.short_filename or f.filename or "?"),
                    f.line or 0,
                )
                for f in thread.frames[:MOST_FRAMES]
            )
            return ThreadStack(tuple(frames), thread.active)
    return None


def _failure(error: str) -> NoStack:
    """Return one line that explains py-spy's failure.

    py-spy's error output decides.
    """
    lines = [line.strip().removeprefix("Error: ") for line in error.splitlines() if line.strip()]
    if any(
        "permission denied" in line.lower() or "not permitted" in line.lower() for line in lines
    ):
        return NoStack(
            "permission denied: py-spy may not read the memory of this process", denied=True
        )
    if any("python version" in line for line in lines):
        return NoStack("not a Python process, or a version of Python that py-spy does not know")
    if any("process is running" in line for line in lines):
        return NoStack(GONE)
    return NoStack(f"py-spy failed: {masked_text(lines[0]) if lines else 'without a word'}")


def permission_help(proc: str) -> str:
    """Return a remedy for a missing permission to trace.

    See ptrace(2), "Ptrace access mode checking".
    """
    status = text_of(f"{proc}/self/status")
    bounds = next(
        (line.split()[1] for line in status.splitlines() if line.startswith("CapBnd:")), None
    )
    if bounds is not None and not int(bounds, 16) & CAP_SYS_PTRACE:
        return (
            "this container may not trace: start it with --cap-add=SYS_PTRACE, or run gputop on "
            "the host"
        )
    scope = text_of(f"{proc}/sys/kernel/yama/ptrace_scope")
    remedy = _PTRACE_SCOPES.get(scope)
    if remedy is not None:
        return f"kernel.yama.ptrace_scope is {scope}: {remedy}"
    return "run gputop as the user of the process, or with sudo"
