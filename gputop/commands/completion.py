"""Completion for the user's shell: the scripts are shipped, made of the same parser as the command line itself."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gputop.commands.needs import Needs
from gputop.config import Settings

NEEDS = Needs(configuration=False)
SHELLS = ("bash", "zsh", "fish", "tcsh")
SCRIPTS = Path(__file__).with_name("completions")
"""Holds a script for each shell, under the shell's name."""


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("shell", choices=SHELLS, help="bash, zsh, fish or tcsh")


def run(args: argparse.Namespace, settings: Settings) -> int:
    sys.stdout.write((SCRIPTS / args.shell).read_text(encoding="utf-8"))
    return 0
