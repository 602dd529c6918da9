"""The programs that are compared: how each one starts, and where a peer comes from."""

from __future__ import annotations

import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

PEERS = {"nvitop": "nvitop==1.7.2", "gpustat": "gpustat==1.1.1"}


@dataclass(frozen=True, slots=True)
class Program:
    """``watch`` runs until it is told to end and takes an interval; ``once`` prints and ends.

    ``watches`` is false where watching cannot be measured on a terminal that answers nothing.
    """

    name: str
    executable: tuple[str, ...]
    once_options: tuple[str, ...]
    watches: bool = True

    def watch(self, interval_s: float) -> list[str]:
        return [*self.executable, "--interval", f"{interval_s:g}"]

    def once(self) -> list[str]:
        return [*self.executable, *self.once_options]


def gputop(python: str) -> Program:
    """This checkout's gputop, run by an interpreter. Its console script skips only the ``-m`` search."""
    return Program("gputop", (python, "-m", "gputop"), ("once", "--json"))


def peer(name: str, path: str | None, directory: Path) -> Program:
    """A peer at a given path, or freshly installed into a throw-away environment. Raises CalledProcessError."""
    executable = path or _install(name, directory)
    if name == "nvitop":
        return Program(name, (executable,), ("--once",))
    # gpustat --interval first asks the terminal for its capabilities and waits for the answers.
    return Program(name, (executable,), (), watches=False)


def _install(name: str, directory: Path) -> str:
    home = directory / f"venv-{name}"
    venv.create(home, with_pip=True)
    print(f"installing {PEERS[name]} …", file=sys.stderr)
    subprocess.run([str(home / "bin/pip"), "install", "-q", PEERS[name]], check=True)
    return str(home / "bin" / name)
