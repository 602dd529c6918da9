"""The programs that are compared: how each one starts, and the throw-away environments that they come from."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from gputop.diagnosis.window.window import WINDOW_S
from gputop.model.source import FAST_FOR_S

CHECKOUT = Path(__file__).parent.parent.parent
PEER = "nvitop==1.7.2"
SETTLES_S = FAST_FOR_S + WINDOW_S
"""After a start readings come more often, and are weighed against them while the window holds some."""


class CannotInstall(Exception):
    """The program cannot be installed here. The text is the installer's last words."""


@dataclass(frozen=True, slots=True)
class Program:
    """Without options it watches until ``q``; ``once_options`` let it print and end."""

    name: str
    executable: tuple[str, ...]
    once_options: tuple[str, ...]
    can_record: bool = False
    settles_s: float = 0.0
    """Seconds after the start in which it measures more often than it does at rest."""
    source: Path | None = None
    """The source tree that it runs from; None when it is installed."""
    has_demo: bool = False
    """Whether ``demo`` shows a simulated node."""

    def demo(self) -> list[str]:
        return [*self.executable, "demo"]

    def watch(self, interval_s: float) -> list[str]:
        return [*self.executable, "--interval", f"{interval_s:g}"]

    def once(self) -> list[str]:
        return [*self.executable, *self.once_options]

    def environment(self) -> dict[str, str]:
        """What its Python must know besides ``_clean_environment``."""
        return {} if self.source is None else {"PYTHONPATH": str(self.source)}


def gputop(python: str | None, directory: Path) -> Program:
    """This checkout's gputop: installed as a user gets it, or run from the source tree by a given interpreter.

    Raises CannotInstall.
    """
    once = ("once", "--json")
    if python is not None:
        command = (python, "-m", "gputop")
        return Program("gputop", command, once, True, SETTLES_S, CHECKOUT, has_demo=True)
    return Program(
        "gputop",
        (str(_install(str(CHECKOUT), directory / "venv-gputop") / "gputop"),),
        once,
        True,
        SETTLES_S,
        has_demo=True,
    )


def nvitop(directory: Path) -> Program:
    """nvitop, freshly installed. Raises CannotInstall."""
    return Program(
        "nvitop", (str(_install(PEER, directory / "venv-nvitop") / "nvitop"),), ("--once",)
    )


def _install(requirement: str, home: Path) -> Path:
    """Install into a new environment, compiled to bytecode; its folder of programs. Raises CannotInstall."""
    print(f"installing {requirement} …", file=sys.stderr)
    venv.create(home, with_pip=True)
    command = [str(home / "bin/python"), "-m", "pip", "install", "-q", "--compile", requirement]
    done = subprocess.run(command, env=_clean_environment(), capture_output=True, text=True)
    if done.returncode:
        raise CannotInstall((done.stderr.strip().splitlines() or ["pip said nothing"])[-1])
    return home / "bin"


def _clean_environment() -> dict[str, str]:
    """The environment without what steers Python, so that only an environment's own packages are found.

    PYTHONPATH would bring the source tree before an installed package, PYTHONDONTWRITEBYTECODE makes starts slow.
    """
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
