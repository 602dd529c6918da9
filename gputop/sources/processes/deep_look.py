"""A deep look at one process: its threads from /proc, its Python stacks from py-spy where that is installed.

py-spy reads the memory of the process from outside (``dump --nonblocking`` does not pause it). It is asked by pid, so
the identity is compared before and after, and what was read of another process is thrown away.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gputop.model.extras import install
from gputop.model.inspection import DeepLook, ProcessIdentity, ProcessSight, ThreadSight, ThreadStack
from gputop.model.secrets import masked_text, masked_words
from gputop.sources.processes.process_facts import GONE, identity_problem
from gputop.sources.processes.wait_channel import wait_class
from gputop.sources.procfs import parse_stat, read_file, read_small

LOOKS_AT_S = (0.0, 0.75, 1.5)
"""Times of the looks, seconds after the first: a stack that stays for 1.5 s is where the time goes."""
LONGEST_DUMP_S = 5.0
MOST_THREADS = 256
MOST_FRAMES = 64
CAP_SYS_PTRACE = 1 << 19
INSTALL = f"py-spy shows what the Python code does: {install('deep')}, or py-spy alone"


class DeepLooker:
    """Looks at processes of this machine. ``py_spy`` names the program; without it, it is searched for."""

    def __init__(self, proc: str = "/proc", py_spy: str | None = None, *, wait: Callable[[float], None] = time.sleep):
        self._proc = proc
        self._py_spy = py_spy or find_py_spy()
        self._wait = wait

    def look(self, identity: ProcessIdentity, loader: ProcessIdentity | None) -> DeepLook:
        """Look at a process, and one loader of it, three times in 1.5 s. Blocks for about two seconds."""
        chosen = [identity] if loader is None else [identity, loader]
        stacks: dict[ProcessIdentity, list[ThreadStack]] = {who: [] for who in chosen}
        problems: dict[ProcessIdentity, str] = {}
        begin = time.monotonic()
        for moment in LOOKS_AT_S if self._py_spy else ():
            self._wait(max(0.0, begin + moment - time.monotonic()))
            for who in chosen:
                if who not in problems:
                    found = self._stack(who)
                    if isinstance(found, ThreadStack):
                        stacks[who].append(found)
                    else:
                        problems[who] = found
            if len(problems) == len(chosen):
                break
        sights = [self._sight(who, tuple(stacks[who]), problems.get(who, "")) for who in chosen]
        argv, folder = self._start(identity)
        return DeepLook(sights[0], sights[1] if loader is not None else None, argv, folder)

    def _stack(self, identity: ProcessIdentity) -> ThreadStack | str:
        """The main thread's stack now, or why there is none."""
        problem = identity_problem(self._proc, identity)
        if problem is not None:
            return problem
        command = [str(self._py_spy), "dump", "--nonblocking", "--json", "--pid", str(identity.pid)]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LONGEST_DUMP_S,
                check=False,
                env={**os.environ, "RUST_BACKTRACE": "0"},
            )
        except subprocess.TimeoutExpired:
            return f"py-spy gave no answer in {LONGEST_DUMP_S:.0f} s"
        except OSError as error:
            return f"py-spy could not be run: {error.strerror}"
        problem = identity_problem(self._proc, identity)
        if problem is not None:
            return problem
        if done.returncode != 0:
            return _failure(done.stderr.decode("utf-8", "replace"))
        return main_stack(done.stdout, identity.pid) or "py-spy saw no main thread: the process is starting or ending"

    def _sight(self, identity: ProcessIdentity, stacks: tuple[ThreadStack, ...], reason: str) -> ProcessSight:
        threads = self._threads(identity)
        if stacks:
            return ProcessSight(identity, threads, stacks)
        if self._py_spy is None:
            problem = identity_problem(self._proc, identity)
            return ProcessSight(identity, threads, reason=problem or "py-spy is not installed", help=INSTALL)
        denied = reason.startswith("permission denied")
        return ProcessSight(identity, threads, reason=reason, help=permission_help(self._proc) if denied else "")

    def _threads(self, identity: ProcessIdentity) -> tuple[ThreadSight, ...]:
        """The threads, the main one first; empty when the process is another one by now."""
        folder = f"{self._proc}/{identity.pid}/task"
        try:
            tids = sorted(int(name) for name in os.listdir(folder))[:MOST_THREADS]
        except OSError:
            return ()
        found = [self._thread(f"{folder}/{tid}", tid) for tid in tids]
        if identity_problem(self._proc, identity) is not None:
            return ()
        return tuple(sorted((t for t in found if t is not None), key=lambda t: t.tid != identity.pid))

    def _thread(self, folder: str, tid: int) -> ThreadSight | None:
        try:
            stat = parse_stat(read_small(f"{folder}/stat"))
        except OSError:
            return None
        if stat is None:
            return None
        try:
            channel = read_small(f"{folder}/wchan").decode("ascii", "replace").strip()
        except OSError:
            channel = ""
        # The kernel writes 0 for a thread that runs, and for readers without permission.
        known = channel if channel not in ("", "0") else None
        name = masked_text(stat.comm.decode("utf-8", "replace"))
        return ThreadSight(tid, name, stat.state, wait_class(channel), known)

    def _start(self, identity: ProcessIdentity) -> tuple[tuple[str, ...], str | None]:
        """(argv, working folder) of a process, as far as they may be read; secrets masked."""
        try:
            line = read_file(f"{self._proc}/{identity.pid}/cmdline")
        except OSError:
            line = b""
        try:
            folder: str | None = os.readlink(f"{self._proc}/{identity.pid}/cwd")
        except OSError:
            folder = None
        if identity_problem(self._proc, identity) is not None:
            return (), None
        words = line.removesuffix(b"\0").split(b"\0") if line else []
        return tuple(masked_words([word.decode("utf-8", "replace") for word in words])), folder and masked_text(folder)


def find_py_spy() -> str | None:
    """The py-spy program: on PATH, or among the scripts of this Python."""
    beside = Path(sysconfig.get_path("scripts")) / "py-spy"
    return shutil.which("py-spy") or (str(beside) if os.access(beside, os.X_OK) else None)


def main_stack(text: bytes, pid: int) -> ThreadStack | None:
    """The main thread in what ``py-spy dump --json`` (0.4) printed; None when it is not there."""
    try:
        threads = json.loads(text)
    except (ValueError, RecursionError):
        return None
    for thread in threads if isinstance(threads, list) else ():
        if not isinstance(thread, Mapping):
            continue
        if thread.get("os_thread_id") == pid or (
            thread.get("os_thread_id") is None and thread.get("thread_name") == "MainThread"
        ):
            frames = thread.get("frames")
            known = (
                [_frame(frame) for frame in frames if isinstance(frame, Mapping)] if isinstance(frames, list) else []
            )
            return ThreadStack(tuple(known[:MOST_FRAMES]), thread.get("active") is True)
    return None


def _frame(frame: Mapping[str, Any]) -> tuple[str, str, int]:
    line = frame.get("line")
    file = frame.get("short_filename") or frame.get("filename") or "?"
    name = masked_text(str(frame.get("name") or "?"))
    return name, masked_text(str(file)), line if isinstance(line, int) else 0


def _failure(error: str) -> str:
    """One line for why py-spy failed, from what it wrote."""
    lines = [line.strip().removeprefix("Error: ") for line in error.splitlines() if line.strip()]
    if any("permission denied" in line.lower() or "not permitted" in line.lower() for line in lines):
        return "permission denied: py-spy may not read the memory of this process"
    if any("python version" in line for line in lines):
        return "not a Python process, or a version of Python that py-spy does not know"
    if any("process is running" in line for line in lines):
        return GONE
    return f"py-spy failed: {masked_text(lines[0]) if lines else 'without a word'}"


def permission_help(proc: str) -> str:
    """What would let py-spy read another process. See ptrace(2), "Ptrace access mode checking"."""
    try:
        status = read_small(f"{proc}/self/status").decode("ascii", "replace")
    except OSError:
        status = ""
    bounds = next((line.split()[1] for line in status.splitlines() if line.startswith("CapBnd:")), None)
    if bounds is not None and not int(bounds, 16) & CAP_SYS_PTRACE:
        return "this container may not trace: start it with --cap-add=SYS_PTRACE, or run gputop on the host"
    try:
        scope = read_small(f"{proc}/sys/kernel/yama/ptrace_scope").strip()
    except OSError:
        scope = b"0"
    if scope == b"1":
        return (
            "kernel.yama.ptrace_scope is 1: run gputop with sudo, or allow it to your own processes: "
            "sudo sysctl kernel.yama.ptrace_scope=0"
        )
    if scope == b"2":
        return "kernel.yama.ptrace_scope is 2: only root may trace; run gputop with sudo"
    if scope == b"3":
        return "kernel.yama.ptrace_scope is 3: nobody may trace until the machine is booted with another value"
    return "run gputop as the user of the process, or with sudo"
