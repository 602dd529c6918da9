"""The programs that are compared: how each one starts, and where it comes from."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.bench.environments import CHECKOUT, CannotInstall, clean_environment, install

PEERS = ("nvitop", "gpustat", "nvtop")
PACKAGES = {"nvitop": "nvitop==1.7.2", "gpustat": "gpustat==1.1.1"}
CTRL_C = b"\x03"
UNATTENDED = {
    "record": ("record", "-o", "{folder}/bench.gputop.jsonl.gz"),
    "export": ("export", "--listen", "127.0.0.1:{port}"),
}
"""Commands that watch without a screen, with what stands in their place each time."""


@dataclass(frozen=True, slots=True)
class Program:
    """``watch`` runs until it is told to end and takes an interval; ``once`` prints and ends."""

    name: str
    executable: tuple[str, ...]
    watch_options: tuple[str, ...]
    """The last one is followed by the interval."""
    once_options: tuple[str, ...]
    interval_unit_s: float = 1.0
    keys: bool = True
    """Whether it answers to the arrow keys."""
    leave: bytes = b"q"
    """The key that ends it."""
    unattended: tuple[str, ...] = ()
    """Its commands that watch without a screen, of UNATTENDED."""
    source: Path | None = None
    """The source tree that it runs from; None when it is installed."""

    def watch(self, interval_s: float) -> list[str]:
        return [*self.executable, *self.watch_options, f"{interval_s / self.interval_unit_s:g}"]

    def once(self) -> list[str]:
        return [*self.executable, *self.once_options]

    def without_screen(self, command: str, interval_s: float, folder: Path, port: int) -> list[str]:
        words = [word.format(folder=folder, port=port) for word in UNATTENDED[command]]
        return [*self.executable, *words, *self.watch_options, f"{interval_s / self.interval_unit_s:g}"]

    def environment(self) -> dict[str, str]:
        """What its Python must know besides ``clean_environment``."""
        return {} if self.source is None else {"PYTHONPATH": str(self.source)}

    def version(self) -> str | None:
        """The last word of ``--version``; None where it tells none or cannot be run."""
        environment = {**clean_environment(), **self.environment()}
        command = [*self.executable, "--version"]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        except OSError:
            return None
        words = done.stdout.split()
        return words[-1] if words and done.returncode == 0 else None


def gputop(python: str | None, directory: Path) -> Program:
    """This checkout's gputop: installed as a user gets it, or run from the source tree by a given interpreter.

    Raises CannotInstall.
    """
    options = ("--interval",), ("once", "--json")
    if python is not None:
        program = (python, "-m", "gputop")
        return Program("gputop", program, *options, unattended=tuple(UNATTENDED), source=CHECKOUT)
    installed = str(install(str(CHECKOUT), directory / "venv-gputop") / "gputop")
    return Program("gputop", (installed,), *options, unattended=tuple(UNATTENDED))


def python_of(program: Program) -> str:
    """The interpreter that runs gputop."""
    if program.source is not None:
        return program.executable[0]
    return str(Path(program.executable[0]).parent / "python")


def peer(name: str, path: str | None, directory: Path) -> Program:
    """A peer at a given path, from PATH (nvtop) or freshly installed. Raises CannotInstall."""
    executable = (path or _found(name, directory),)
    if name == "nvitop":
        return Program(name, executable, ("--interval",), ("--once",))
    if name == "nvtop":
        # It counts its interval in tenths of a second.
        return Program(name, executable, ("-d",), ("--snapshot",), interval_unit_s=0.1)
    everything = "--show-all"
    return Program(name, executable, (everything, "--interval"), (everything,), keys=False, leave=CTRL_C)


def _found(name: str, directory: Path) -> str:
    if name in PACKAGES:
        return str(install(PACKAGES[name], directory / f"venv-{name}") / name)
    found = shutil.which(name)
    if found is None:
        raise CannotInstall("it is not on PATH, and the package index does not have it")
    return found


def peers(wanted: dict[str, str | None], directory: Path) -> list[Program]:
    """The peers that there are, by name and path; the others are named on stderr and left out."""
    found = []
    for name, path in wanted.items():
        try:
            found.append(peer(name, path, directory))
        except CannotInstall as reason:
            print(f"without {name}: {reason}", file=sys.stderr)
    return found
