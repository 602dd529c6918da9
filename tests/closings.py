"""Terminals that are closed under a running gputop: how each kind of closing is done, when, and what is left."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.nvml.stand_in import Scenario
from tests.support.pty_program import ROOT, SCREEN_TAKEN, PtyProgram, in_time_s

PATIENCE_S = 10.0
"""How long a program that is late is waited for once more, to tell one that is late from one that stays."""
HUNG_UP = 128 + signal.SIGHUP
KINDS = ("pty", "sighup", "server")
"""A pseudo-terminal closed; a SIGHUP alone; a tmux server ended, whose shell is between it and the terminal."""


@dataclass(frozen=True)
class Phase:
    """What gputop is doing when its terminal goes: how it is started, what is seen then, and what is done after."""

    name: str
    arguments: Sequence[str]
    seen: str = "H100"
    keys: str = ""
    then_seen: str = ""
    signals: Sequence[int] = ()
    hangs: bool = False


PHASES = (
    Phase("loading", ("demo", "small_kernels"), seen="gputop"),
    Phase("live", ()),
    Phase("demo", ("demo", "small_kernels")),
    Phase("paused", (), keys="p", then_seen="PAUSED"),
    Phase("replay", ("replay", "{recording}", "--loop")),
    Phase("details", (), keys="D", then_seen="esc back"),
    Phase("palette", (), keys="\x10", then_seen="earch"),
    Phase("hanging driver", (), hangs=True, then_seen="STALE"),
    Phase("stopped", (), signals=(signal.SIGSTOP,)),
    Phase("suspended", (), keys="\x1a"),
    Phase("continued", (), signals=(signal.SIGSTOP, signal.SIGCONT)),
)


class Closed(PtyProgram):
    """A program whose terminal is about to be closed under it."""

    def __init__(self, kind: str, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        self._kind = kind
        super().__init__(*arguments, env=env)

    def read_until(self, text: str, timeout_s: float = 60.0) -> None:
        """Wait until a text was written, now or before."""
        if text.encode() not in self.written:
            super().read_until(text, timeout_s)

    def has_taken_the_screen(self) -> None:
        self.read_until(SCREEN_TAKEN)

    def close(self) -> None:
        if self._kind == "sighup":
            self.signal(signal.SIGHUP)
            # What a hang-up brings along; a program that is stopped sees the other only then.
            self.signal(signal.SIGCONT)
        else:
            os.close(self.terminal)
            self.terminal = os.open(os.devnull, os.O_RDWR)

    def ended(self) -> int | None:
        """The exit status, once there is one."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.status = os.waitstatus_to_exitcode(status)
        return self.status


class TmuxClosed:
    """The same in a pane of a tmux server of its own, under a shell that outlives it and notes its exit status."""

    SCRIPT = """
        exec 3<&0
        on_hang_up=$1 noted=$2; shift 2
        "$@" <&3 3<&- &
        trap "$on_hang_up" HUP
        echo $! >"$noted.part" && mv "$noted.part" "$noted"
        wait $!; status=$?
        while kill -0 $! 2>/dev/null; do wait $!; status=$?; done
        echo $status >"$noted.status"
    """
    # A shell passes a hang-up on to its jobs, and wakes those that are stopped. Where that is left out, the program
    # gets no signal at all: the kernel tells the first process of the session alone.
    PASS_ON = "kill -HUP $!; kill -CONT $!"

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str], directory: Path, *, passed_on: bool) -> None:
        self._socket, self._noted = str(directory / "tmux"), directory / "pid"
        command = [sys.executable, "-m", "gputop", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **env}
        for name in ("TMUX", "NO_COLOR"):
            environment.pop(name, None)
        size = ("-x", "160", "-y", "48")
        shell = ["sh", "-c", self.SCRIPT, "sh", self.PASS_ON if passed_on else ":", str(self._noted), *command]
        self._tmux("-f", "/dev/null", "new-session", "-d", "-s", "first", *size, *shell, env=environment)
        self._until(self._noted.exists, "the program did not start")
        self.pid = int(self._noted.read_text())

    def __enter__(self) -> TmuxClosed:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._tmux("kill-server", check=False)

    def _tmux(self, *words: str, env: Mapping[str, str] | None = None, check: bool = True) -> str:
        command = ["tmux", "-S", self._socket, *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=check).stdout

    def _until(self, true: Callable[[], bool], complaint: str, timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not true():
            assert time.monotonic() < deadline, complaint
            time.sleep(0.05)

    def read_until(self, text: str, timeout_s: float = 60.0) -> None:
        pane = ("capture-pane", "-p", "-t", "first:")
        self._until(lambda: text in self._tmux(*pane), f"{text!r} was not shown", timeout_s)

    def has_taken_the_screen(self) -> None:
        mouse = ("display-message", "-p", "-t", "first:", "#{mouse_all_flag}")
        self._until(lambda: self._tmux(*mouse).strip() == "1", "the screen was not taken")

    def press(self, keys: str) -> None:
        self._tmux("send-keys", "-t", "first:", "-l", keys)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait_for_state(self, state: str, timeout_s: float = 60.0) -> None:
        stat = Path(f"/proc/{self.pid}/stat")
        self._until(lambda: stat.read_text().rpartition(")")[2].split()[0] == state, f"never {state}", timeout_s)

    def close(self) -> None:
        self._tmux("kill-server")

    def ended(self) -> int | None:
        status = self._noted.with_suffix(".status")
        text = status.read_text() if status.exists() else ""
        return int(text) if text.endswith("\n") else None


@dataclass(frozen=True)
class Surroundings:
    """The stand-in driver and a folder for everything that a closing needs."""

    directory: Path
    library: Path

    def scenario(self, name: str) -> Scenario:
        """A node of one GPU, in a folder of its own."""
        place = self.directory / name
        (place / "home").mkdir(parents=True)
        scenario = Scenario(place, self.library, 1)
        scenario.write()
        return scenario


@dataclass(frozen=True)
class Closing:
    """What came of one closing. ``took_s`` None: the program was still there long after."""

    kind: str
    phase: str
    took_s: float | None
    status: int | None
    most_s: float
    """How long it may outlive its terminal."""

    @property
    def is_right(self) -> bool:
        """Whether it ended in time and said why. Until it watches for signals the kernel ends it, which shells also
        show as 129."""
        by_kernel = self.phase == "loading" and self.status == -signal.SIGHUP
        return self.took_s is not None and self.took_s <= self.most_s and (self.status == HUNG_UP or by_kernel)


def close_once(kind: str, phase: Phase, name: str, around: Surroundings, delay_s: float = 0.0) -> Closing:
    """Start gputop, bring it into a phase, close its terminal and see when it is gone."""
    scenario = around.scenario(name)
    place = around.directory / name
    env = {**scenario.environment(), "HOME": str(place / "home")}
    recording = ROOT / "tests" / "vectors" / "dataloader_cpu.jsonl"
    words = [word.format(recording=recording) for word in phase.arguments]
    stopped = phase.name in ("stopped", "suspended")
    started = time.monotonic()
    with (
        Closed(kind, words, env) if kind in ("pty", "sighup") else TmuxClosed(words, env, place, passed_on=stopped)
    ) as program:
        program.read_until(phase.seen)
        if phase.name != "loading":
            program.has_taken_the_screen()
        most_s = in_time_s(time.monotonic() - started)
        if phase.hangs:
            scenario.hang("*", 30.0)
            scenario.write()
        if phase.keys:
            program.press(phase.keys)
        if phase.then_seen:
            program.read_until(phase.then_seen)
        for number in phase.signals:
            program.signal(number)
        if stopped:
            program.wait_for_state("T")
        time.sleep(delay_s)
        begun = time.monotonic()
        program.close()
        while (status := program.ended()) is None and time.monotonic() - begun < most_s + PATIENCE_S:
            time.sleep(0.01)
        took = time.monotonic() - begun
    shutil.rmtree(place, ignore_errors=True)
    return Closing(kind, phase.name, None if status is None else took, status, most_s)


def _numbered(kind: str, around: Surroundings, number: int) -> Closing:
    """The closings of one kind go through all phases in turn, and come at different moments within each."""
    phase = PHASES[number % len(PHASES)]
    return close_once(kind, phase, f"{kind}-{number}", around, delay_s=number // len(PHASES) % 10 * 0.05)


def close_many(kind: str, count: int, around: Surroundings, at_once: int = 2) -> list[Closing]:
    """A number of closings of one kind."""
    # Not threads: while one of them starts a program, that would hold the terminal open which another closes.
    with ProcessPoolExecutor(at_once, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(partial(_numbered, kind, around), range(count)))


@contextmanager
def surroundings(library: Path) -> Iterator[Surroundings]:
    """Built for as long as it is needed, under a short path: a socket's name may have 108 characters.

    ``library`` is the folder of the stand-in.
    """
    with tempfile.TemporaryDirectory(prefix="closings-", dir="/tmp") as directory:
        yield Surroundings(Path(directory), library)
