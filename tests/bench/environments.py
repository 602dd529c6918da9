"""Throw-away Python environments: a program as its user gets it, from the package index or from this checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent.parent


class CannotInstall(Exception):
    """The program cannot be installed here. The text is the installer's last words."""


def clean_environment() -> dict[str, str]:
    """The environment without what steers Python, so that only an environment's own packages are found.

    PYTHONPATH would bring the source tree before an installed package, PYTHONDONTWRITEBYTECODE makes starts slow.
    """
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}


def install(requirement: str, home: Path, *more: str) -> Path:
    """Install into a new environment, compiled to bytecode; its folder of programs. Raises CannotInstall.

    ``more`` are requirements that narrow what it needs itself.
    """
    print(f"installing {requirement} …", file=sys.stderr)
    venv.create(home, with_pip=True)
    command = [str(home / "bin/python"), "-m", "pip", "install", "-q", "--compile", requirement, *more]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotInstall((done.stderr.strip().splitlines() or ["pip said nothing"])[-1])
    return home / "bin"
