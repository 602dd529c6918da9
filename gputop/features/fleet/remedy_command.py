"""Set nodes aside whose GPU is lost or counts memory errors that could not be corrected. Nothing is done unless told.

Exit 0: nothing to do, 1: there is, done or not, 3: no fleet answers.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gputop.commands.needs import Needs
from gputop.config import Settings
from gputop.features.fleet.fleet_command import asked_fleet, prometheus_options
from gputop.features.fleet.fleet_frame import fleet_frame
from gputop.features.fleet.fleet_reading import FleetError
from gputop.features.fleet.prometheus import PrometheusFleet
from gputop.features.fleet.remedies import Remedy, due, remedies
from gputop.model.quantity import clean_text, count, terminal_safe
from gputop.model.source import SourceError, UsageError

NEEDS = Needs()
FOUND = 1
MOST_NODES = 2
"""Nodes a run, unless told: a fleet that seems to fail as a whole is looked at by people first."""
LONGEST_S = 30.0
REMEMBERED_S = 90 * 86400.0
MOST_STATE = 4 * 2**20


def arguments(command: argparse.ArgumentParser) -> None:
    prometheus_options(command)
    add = command.add_argument
    add("--by", choices=("slurm", "kubernetes"), required=True, help="drain in Slurm, or cordon in Kubernetes")
    text = "do it, by scontrol or kubectl, and keep in FILE what was done; without it the commands are printed only"
    add("--act", metavar="FILE", help=text)
    text = f"nodes to act on in one run, the rest in the next (default {MOST_NODES})"
    add("--most", type=int, default=MOST_NODES, metavar="N", help=text)


def run(args: argparse.Namespace, settings: Settings) -> int:
    if args.most < 1:
        raise UsageError(f"--most must be 1 or more, not {args.most}")
    if settings.redact:
        raise UsageError("a scheduler needs the names of nodes, and redact hides them: use one of them")
    if args.act is None:
        return _told(*_wanted(args, settings), args.most)
    with _alone(Path(args.act)) as done:
        found, odd = _wanted(args, settings)
        new = due(found, done)
        for one in new[: args.most]:
            if _act(one):
                now = time.time()
                done.update(dict.fromkeys(one.keys, now))
        _rest(new[args.most :], odd)
        return FOUND if new or odd else 0


def _wanted(args: argparse.Namespace, settings: Settings) -> tuple[list[Remedy], list[str]]:
    """What is to be done. Raises SourceError where the answer is not whole: what is not known is no reason to act."""
    fleet = asked_fleet(args, settings)
    assert isinstance(fleet, PrometheusFleet), "nothing is redacted here"
    try:
        read = fleet.ask()
        if read.problems:
            raise SourceError(f"not acting on an answer that is not whole: {read.problems[0]}")
        return remedies(fleet_frame(read), fleet.memory_errors(), args.by)
    except FleetError as error:
        raise SourceError(str(error)) from None
    finally:
        fleet.close()


def _told(found: list[Remedy], odd: list[str], most: int) -> int:
    for one in found[:most]:
        sys.stdout.write(f"would run: {_shown(one)}\n")
    _rest(found[most:], odd)
    if found:
        sys.stdout.write("nothing was done; --act FILE does it\n")
    elif not odd:
        sys.stdout.write("nothing to do: no GPU is lost, and no count of uncorrected memory errors rose\n")
    return FOUND if found or odd else 0


def _rest(later: list[Remedy], odd: list[str]) -> None:
    if later:
        sys.stdout.write(f"and {count(len(later), 'node')} more, {later[0].host} first: --most\n")
    for host in odd:
        sys.stdout.write(f"no scheduler has a node of the name {terminal_safe(clean_text(host))}\n")


def _shown(one: Remedy) -> str:
    return " ".join(f"'{word}'" if " " in word else word for word in one.command)


def _act(one: Remedy) -> bool:
    """Run one command; whether it succeeded. One that failed is tried again in the next run."""
    try:
        done = subprocess.run(
            one.command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=LONGEST_S,
            check=False,
        )  # fmt: skip
        failed = "" if done.returncode == 0 else (done.stderr or done.stdout).strip() or f"exit {done.returncode}"
    except FileNotFoundError:
        raise UsageError(f"no {one.command[0]} on this machine: run this where the scheduler's commands are") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        failed = type(error).__name__
    words = f"failed ({terminal_safe(clean_text(failed))[:160]})" if failed else "done"
    sys.stdout.write(f"{words}: {_shown(one)}\n")
    return not failed


@contextmanager
def _alone(path: Path) -> Iterator[dict[str, float]]:
    """What was done before, by key with its Unix time; kept when the block ends. Raises UsageError where another run
    acts, or the file is none of ours."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"--act: cannot write {path}: {error.strerror}") from None
    with os.fdopen(descriptor, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"another run acts with {path}: one at a time") from None
        data = file.read(MOST_STATE + 1)
        try:
            done = msgspec.json.decode(data, type=dict[str, float]) if data.strip() else {}
        except (msgspec.DecodeError, RecursionError):
            raise UsageError(f"--act: {path} is not a file of `gputop fleet remedy`: name another one") from None
        try:
            yield done
        finally:
            now = time.time()
            kept = {key: at for key, at in done.items() if now - at < REMEMBERED_S}
            file.seek(0)
            file.write(msgspec.json.encode(kept))
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
