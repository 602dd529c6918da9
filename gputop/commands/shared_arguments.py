"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import os

from gputop.commands.argument_parser import ListAction


def filterable(command: argparse.ArgumentParser) -> None:
    """Which processes are shown."""
    add, absent = command.add_argument, argparse.SUPPRESS
    text = 'show these processes only: "gpu:3 user:ml mem>10G verdict:starved name~train !state:D"'
    add("--filter", metavar="TERMS", default=absent, help=text)
    me = str(os.getuid())
    text = "show the processes of these users only, separated by commas; without a name: yours"
    add("-u", "--user", action=ListAction, nargs="?", const=me, default=absent, metavar="NAMES", help=text)
    text = "show the processes with these ids only, separated by commas"
    add("-p", "--pid", action=ListAction, default=absent, metavar="PIDS", help=text)


def alertable(command: argparse.ArgumentParser) -> None:
    """Whether the screen fires alerts; it shows them in any case."""
    text = "fire the alerts of the configuration file, which the screen otherwise only shows"
    command.add_argument("--alerts", action="store_true", default=argparse.SUPPRESS, help=text)


def selectable(command: argparse.ArgumentParser) -> None:
    """``-o``, the short name of ``--gpus`` where no output file has that letter."""
    text, absent = "the same as --gpus", argparse.SUPPRESS
    command.add_argument("-o", "--only", action=ListAction, dest="gpus", default=absent, metavar="LIST", help=text)


def waiting(command: argparse.ArgumentParser) -> None:
    """How long a command that reads once waits for a driver that answers slowly."""
    text = "how long to wait for a slow driver (default 10s)"
    command.add_argument("--wait", default=argparse.SUPPRESS, metavar="TIME", help=text)


def printable(command: argparse.ArgumentParser) -> None:
    """``-1``: the screen's first snapshot as text. Absent, it leaves no trace, so that it may stand before `demo`."""
    text, absent = "print one snapshot and end, as `gputop once` does", argparse.SUPPRESS
    command.add_argument("-1", "--once", action="store_true", default=absent, help=text)
