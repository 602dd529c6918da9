"""The last resort: once the way out has begun, nothing holds the process."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time

import pytest

from tests.support.pty_program import ROOT

LIMIT_S = 3.0
"""The grace of 1.2 s, and room for a machine that is busy otherwise; where the start takes longer, as long as that."""
HANGING_THREAD = "threading.Thread(target=threading.Event().wait).start()"
DEADLOCK = """
    libc = ctypes.CDLL(None)
    mutex = ctypes.create_string_buffer(64)
    print("ready", flush=True)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)  # for ever, and no signal interrupts it
"""


def _guarded(body: str) -> subprocess.Popen[str]:
    """A program with a guard. It prints something once it is ready."""
    head = """
        import ctypes, sys, threading
        from gputop.tui.terminal.guard import TerminalGuard
        guard = TerminalGuard()
        guard.watch()
    """
    command = [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(body)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
    )


def _ended(body: str, number: int | None = None) -> tuple[bool, int]:
    """Whether it ended in time after its first word, and a signal if there is one; and the exit status."""
    started = time.monotonic()
    with _guarded(body) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), process.stderr and process.stderr.read()
            begun = time.monotonic()
            if number is not None:
                process.send_signal(number)
            status = process.wait(timeout=60.0)
            return time.monotonic() - begun < max(LIMIT_S, begun - started), status
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_program_whose_main_thread_hangs_for_good(number: int) -> None:
    assert _ended(DEADLOCK, number) == (True, 128 + number)


def test_a_thread_that_never_ends_does_not_hold_the_end() -> None:
    assert _ended(
        f"{HANGING_THREAD}\nguard.finish()\nprint('ready', flush=True)\nguard.end(5)"
    ) == (True, 5)


def test_it_does_not_hold_a_program_either_that_ends_after_a_crash() -> None:
    assert _ended(f"{HANGING_THREAD}\nguard.finish()\nprint('ready', flush=True)\nsys.exit(1)") == (
        True,
        1,
    )


def test_a_signal_after_the_loop_has_ended_lets_the_normal_way_out_be_gone_to_its_end() -> None:
    body = """
        import asyncio, time
        loop = asyncio.new_event_loop()
        loop.close()
        guard.leave_by(lambda status: loop.call_soon_threadsafe(print, status))
        print("ready", flush=True)
        while not guard.is_leaving:
            time.sleep(0.01)
        time.sleep(0.2)
        print("closed what was open", flush=True)
        guard.finish()
        guard.end(0)
    """
    process = _guarded(body)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60.0)[0] == "closed what was open\n"
    assert process.returncode == 128 + signal.SIGTERM


def test_the_second_signal_does_not_change_how_the_first_ends_it() -> None:
    process = _guarded(DEADLOCK)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    time.sleep(0.2)  # the first signal's way out is under way
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=60.0) == 128 + signal.SIGTERM
    process.communicate()
