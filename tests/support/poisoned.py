"""A machine on which everything that can be named is named by an enemy, and whole programs that run on it."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.nvml.stand_in import Process, Scenario
from tests.support.hostile import ATTACKS, FACT, MARK, SECRET
from tests.support.pty_program import ROOT, SCREEN_TAKEN, PtyProgram

S = "Zq7xW9vK2mPl"
"""A secret that nothing but its place gives away."""
SECRETS = (
    "--api-key", S, f"--password=p {S} q", f"HF_TOKEN={S}", f"https://me:{S}@host/x?token={S}", "--max-tokens", "512",
    f"Authorization: Bearer {S}", "--header", f"Basic {S}", SECRET, f"wandb_v1_{S}{S}", "--tokenizer", "bert",
)  # fmt: skip
_WORDS, _PROGRAMS = (
    [os.fsencode(f"{mark}{i}{attack}".replace("\ud800", "")) for i, attack in enumerate(ATTACKS)]
    for mark in (MARK, FACT)
)
"""Arguments, which redaction takes out, and names of programs, which it leaves."""
_AUDIT = """
import os, sys
log = os.open(os.environ["SOCKET_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
def note(event, arguments):
    if event.startswith("socket.") and event not in ("socket.__new__", "socket.gethostname"):
        told = arguments if event == "socket.getaddrinfo" else arguments[1:]
        os.write(log, (event + " " + repr(told) + "\\n").encode())
sys.addaudithook(note)
"""
"""Python's own audit events: every connect, sendto, bind and look-up of a name, whichever module asks for it."""
COLUMNS, ROWS = 240, 40


def holds_a_secret(data: bytes) -> bool:
    return S.encode() in data or SECRET[:12].encode() in data


class PoisonedMachine:
    """A GPU used by processes with hostile names and secrets; folders of its own for all that a program may write."""

    def __init__(self, root: Path, scenario: Scenario, *, processes: bool = True) -> None:
        self.root, self._log = root / "place", root / "sockets.log"
        for name in ("home", "tmp", "run", "config", "state", "cache", "data", "work", "audit"):
            (self.root / name).mkdir(parents=True, mode=0o700)
        (self.root / "audit" / "sitecustomize.py").write_text(_AUDIT)
        self.work = self.root / "work"
        script = root / "train.py"
        script.write_text(
            "import threading, time; threading.Timer(900, print).start(); time.sleep(900)"
        )
        with_secrets = {**os.environ, "MY_TOKEN": S}
        self.processes = [
            subprocess.Popen([sys.executable, str(script), *SECRETS], env=with_secrets)
        ]
        if processes:
            self.processes += [
                subprocess.Popen([sys.executable, str(script), word, "--token", SECRET])
                for word in _WORDS
            ]
            names = (*_PROGRAMS, SECRET, f"trainer --token {S}")
            self.processes += [
                subprocess.Popen([name, "900"], executable="/bin/sleep") for name in names
            ]
        scenario.gpus[0].processes += [Process(process.pid, 1 << 30) for process in self.processes]
        scenario.write()
        xdg = {
            f"XDG_{name.upper()}_HOME": str(self.root / name)
            for name in ("config", "state", "cache", "data")
        }
        self.environment = {
            **scenario.environment(), **xdg, "PYTHONPATH": f"{self.root / 'audit'}:{ROOT}",
            "HOME": str(self.root / "home"), "TMPDIR": str(self.root / "tmp"), "SOCKET_LOG": str(self._log),
            "XDG_RUNTIME_DIR": str(self.root / "run"), "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        self._before = {*self._paths()}
        self.seen = b""
        """All that was printed and shown."""

    def run(self, *words: str | bytes) -> str:
        """A command's output and messages. It must end with 0 or 1."""
        done = subprocess.run(
            [sys.executable, "-m", "gputop", *words], env=self.environment, cwd=self.work, capture_output=True,
            stdin=subprocess.DEVNULL, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stderr
        self.seen += done.stdout + done.stderr
        return (done.stdout + done.stderr).decode()

    def screen(self, *words: str, keys: tuple[tuple[str, str], ...], **environment: str) -> bytes:
        """What a screen writes to its terminal; each key is pressed, and what shows, or is written, then waited for."""
        before = os.getcwd()
        os.chdir(self.work)
        try:
            with PtyProgram(
                *words, columns=COLUMNS, rows=ROWS, env={**self.environment, **environment}
            ) as program:
                program.read_until(SCREEN_TAKEN)
                for key, shown in (("", "GPU-MEM"), *keys):
                    program.press(key)
                    if shown.startswith("."):
                        self._until_written(program, shown)
                    else:
                        program.read_screen_until(
                            lambda rows, shown=shown: shown in "\n".join(rows), COLUMNS, ROWS
                        )
                    self.seen += "\n".join(program.screen(COLUMNS, ROWS)).encode()
                program.press("\x03")
                program.end()
                assert program.status == 0
                return program.written
        finally:
            os.chdir(before)

    def _until_written(self, program: PtyProgram, suffix: str) -> None:
        """Messages stand for some seconds only; a file stays."""
        deadline = time.monotonic() + 90.0
        while not any(
            path.suffix == suffix and path.stat().st_size for path in self.work.iterdir()
        ):
            assert time.monotonic() < deadline, suffix
            program.read_for(0.1)

    def sockets(self) -> list[str]:
        """Every use of a socket but the marks', also to those who listen on this machine: they have no network."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        marks = (f" ('{self.root / 'run'}", f"/gputop-{os.getuid()}/")
        return [line for line in lines if not any(place in line for place in marks)]

    def files(self) -> dict[str, bytes]:
        """What was asked for: the files of the working directory."""
        found = {}
        for path in self.work.rglob("*"):
            data = path.read_bytes()
            found[path.name] = gzip.decompress(data) if path.suffix == ".gz" else data
        return found

    def written(self) -> dict[str, int]:
        """Every path that is new, with its mode."""
        return {name: mode for name, mode in self._paths().items() if name not in self._before}

    def _paths(self) -> dict[str, int]:
        return {
            str(path.relative_to(self.root)): path.lstat().st_mode & 0o777
            for path in self.root.rglob("*")
        }

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
