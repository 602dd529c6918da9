"""Runs one command for an alert to its end: a separate program, so that the limit holds without gputop.

``python -I -S supervisor.py``, standard library only. On stdin is one JSON object: ``argv``, ``env``, ``input`` (the
command's stdin), ``timeout_s``. On stdout it writes one: ``exit`` (the status, negative for a signal, or null),
``problem`` (a text or null) and ``output`` (the first 4 kB of stdout and stderr).

Everything that the command starts becomes a child of this program when its parent ends, so nothing of it is left when
the time is up, however it daemonizes.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

MOST_OUTPUT = 4096
LOOK_S = 0.02
KILLING_S = 5.0
"""How long to go on killing, on a machine without processor time to spare, or what may not be killed."""
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36
"""linux/prctl.h."""


def main() -> int:
    """Run what stdin says. An input that was cut off, because gputop was killed while writing it, runs nothing."""
    request = json.load(sys.stdin)
    # gputop's parent may have ignored or blocked signals that this program and the command need.
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    libc = ctypes.CDLL(None)
    libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    json.dump(_supervise(request, lambda: libc.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)), sys.stdout)
    return 0


def _supervise(request: dict[str, Any], die_with_us: Any) -> dict[str, Any]:
    deadline = time.monotonic() + request["timeout_s"]
    command_input = os.memfd_create("alert")
    os.write(command_input, request["input"].encode())
    os.lseek(command_input, 0, os.SEEK_SET)
    output, command_output = os.pipe()
    os.set_blocking(output, False)
    try:
        process = subprocess.Popen(
            request["argv"],
            stdin=command_input,
            stdout=command_output,
            stderr=command_output,
            env=request["env"],
            cwd="/",
            start_new_session=True,
            # This program has one thread, which is what makes a function before exec safe.
            preexec_fn=die_with_us,
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return {"exit": None, "problem": f"cannot be run: {reason}", "output": ""}
    os.close(command_output)
    os.close(command_input)
    output_bytes, status, has_children = b"", None, True
    while has_children and time.monotonic() < deadline:
        output_bytes += _read(output, MOST_OUTPUT - len(output_bytes))
        status, has_children = _reap(process.pid, status)
    problem = None
    if has_children:
        late = status is None
        status, has_children = _kill_all(process.pid, status)
        what_ended = "was killed" if late else "had ended, what it left running was killed"
        problem = f"{what_ended} after {request['timeout_s']:g} s"
        if has_children:
            problem += ", but for processes that may not be killed"
    output_bytes += _read(output, MOST_OUTPUT - len(output_bytes))
    process.returncode = 0 if status is None else status
    return {"exit": status, "problem": problem, "output": output_bytes.decode("utf-8", "replace")}


def _read(output: int, room: int) -> bytes:
    """What arrives within a moment, as much as there is room for; the rest is read and dropped."""
    if not select.select([output], [], [], LOOK_S)[0]:
        return b""
    try:
        data = os.read(output, 1 << 16)
    except BlockingIOError:
        return b""
    if not data:
        # All writers have closed it; select would return at once from now on.
        time.sleep(LOOK_S)
    return data[:room]


def _reap(command: int, status: int | None) -> tuple[int | None, bool]:
    """Reap children: the command's status where it is known, and whether any child is left."""
    while True:
        try:
            pid, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status, False
        if pid == 0:
            return status, True
        if pid == command:
            status = os.waitstatus_to_exitcode(code)


def _kill_all(command: int, status: int | None) -> tuple[int | None, bool]:
    """Kill every descendant until none is left."""
    end = time.monotonic() + KILLING_S
    has_children = True
    while has_children and time.monotonic() < end:
        for pid in _stopped():
            _signal(pid, signal.SIGKILL)
        time.sleep(LOOK_S)
        status, has_children = _reap(command, status)
    return status, has_children


def _stopped() -> list[int]:
    """All descendants, each stopped before its children are listed: it can start none that would be missed.

    A list that was made before they stop would be outdated: processes fork faster than /proc is read.
    """
    children_of = _children if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else _children_by_parent()
    descendants, waiting = [], [os.getpid()]
    while waiting:
        children = children_of(waiting.pop())
        for pid in children:
            _signal(pid, signal.SIGSTOP)
        descendants += children
        waiting += children
    return descendants


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.EPERM):
            raise


def _children(pid: int) -> list[int]:
    """The children of a process (proc_pid_task(5): complete where it is stopped)."""
    pids = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                pids += [int(word) for word in file.read().split()]
    except OSError:
        # It has ended: its children are found beneath this program in the next round.
        pass
    return pids


def _children_by_parent() -> Callable[[int], list[int]]:
    """The same where the kernel lists no children (without CONFIG_PROC_CHILDREN, in gVisor): of all processes."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The name stands in parentheses and may hold some itself.
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            children.setdefault(parent, []).append(int(name))
    return lambda pid: children.get(pid, [])


if __name__ == "__main__":
    sys.exit(main())
