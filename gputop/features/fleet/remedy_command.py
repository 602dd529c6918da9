"""Set nodes aside whose GPUs fail: drained or cordoned, and only when told to.

Exit 0: nothing to do, 1: there is, done or not, 3: no fleet answers.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO, Literal, NamedTuple

import msgspec
from msgspec import Struct

from gputop.commands.shared_options import stdout_is_text
from gputop.config import Settings
from gputop.features.fleet.fleet_command import asked_fleet, prometheus_options
from gputop.features.fleet.fleet_frame import FleetFrame, Gpu, GpuGroup, fleet_frame
from gputop.features.fleet.fleet_reading import FleetError, Grounds
from gputop.features.fleet.judge import ABSENT
from gputop.features.fleet.prometheus import PrometheusFleet
from gputop.model.quantity import HOUR_S, clean_text, count, terminal_safe
from gputop.model.source import SourceError, UsageError
from gputop.system.children import TooLate, finished, the_users

# What may be done, as commands: set a node aside whose GPU fails. Pure: what, not whether.
#
# A node is set aside only for what no job can be blamed for, a GPU that is lost and memory errors that could not be
# corrected. A verdict is never a reason to act.

By = Literal["slurm", "kubernetes"]
LONGEST_REASON = 120
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)
_EVERY_NODE = ("all", "default")
"""What Slurm takes for every node, or for those to come, in any case of letters."""


class Remedy(Struct, frozen=True):
    """One command about one node. ``keys`` are what it answers: each loss of a GPU once, each rise of a count once."""

    node: str
    keys: tuple[str, ...]
    command: tuple[str, ...]
    text: str


def remedies(frame: FleetFrame, on: Grounds, by: By) -> tuple[list[Remedy], list[str]]:
    """The commands, by node, and lines on what cannot be acted on."""
    in_sight = {group.name for group in frame.hosts}
    reasons: dict[str, list[tuple[str, str]]] = {}
    odd: list[str] = []
    for group in frame.hosts:
        lost = [gpu for gpu in group.gpus if gpu.state == "lost"]
        sure = [gpu for gpu in lost if _is_surely_lost(gpu, group)]
        for gpu in sure:
            key = f"lost {gpu.read.uuid or f'{group.name} {gpu.read.gpu}'}"
            reasons.setdefault(group.name, []).append((f"GPU {gpu.read.gpu} lost", key))
        if len(sure) < len(lost):
            # The line is for people alone; what it is about may come back by itself.
            odd.append(f"{group.name}: no value of {count(len(lost) - len(sure), 'GPU')}, and maybe no fault of theirs")
    for (host, number), (uuid, errors) in on.risen.items():
        text = f"GPU {number} counts {errors} uncorrected memory errors"
        reasons.setdefault(host, []).append((text, f"ecc {uuid or f'{host} {number}'} {errors}"))
    found_remedies = []
    for host, rows in sorted(reasons.items()):
        if host not in in_sight or _NODE.fullmatch(host) is None or host.lower() in _EVERY_NODE:
            odd.append(f"no scheduler has one node of the name {host}")
            continue
        reason = "gputop: " + ", ".join(text for text, _ in rows)
        keys = tuple(key for _, key in rows)
        # Without what the scheduler's own syntax means something by.
        plain = re.sub(r"[^A-Za-z0-9 :,./+-]", "_", reason)[:LONGEST_REASON]
        drain = ("scontrol", "update", f"NodeName={host}", "State=DRAIN", f"Reason={plain}")
        command = drain if by == "slurm" else ("kubectl", "cordon", host)
        found_remedies.append(Remedy(host, keys, command, reason))
    return found_remedies, odd


def _is_surely_lost(gpu: Gpu, group: GpuGroup) -> bool:
    """Whether a GPU gave no value for five minutes, and it is not its exporter that gives none.

    gputop's exporter says itself that it cannot read a GPU. Of others a host without any GPU is one whose exporter was
    set up anew, or without a metric, as likely as one that lost them all.
    """
    if gpu.read.util_pct is not None:
        return False
    return gpu.read.names == "gputop" or any(other.state not in ABSENT for other in group.gpus)


def due(proposed: Sequence[Remedy], done: Mapping[str, float]) -> list[Remedy]:
    """Those that answer something new: a node is set aside once for each rise, even if it was taken back in between."""
    return [remedy for remedy in proposed if any(key not in done for key in remedy.keys)]


def forget(done: MutableMapping[str, float], frame: FleetFrame, on: Grounds) -> None:
    """Forget what is over, so that it is answered when it comes again: GPUs that are back, and counts that started over
    with their driver."""
    back = {gpu.read.uuid or f"{gpu.read.host} {gpu.read.gpu}" for gpu in frame.present}
    for key in list(done):
        kind, _, rest = key.partition(" ")
        uuid, _, errors = rest.rpartition(" ")
        if (kind == "lost" and rest in back) or (
            kind == "ecc" and errors.isdecimal() and on.counts.get(uuid, int(errors)) < int(errors)
        ):
            del done[key]


# What was done, by key with its Unix time, in a file that one run at a time may hold.

REMEMBERED_S = 90 * 86400.0
MOST_BYTES = 4 * 2**20


class Acts:
    """Keys of what was done, with the Unix times. ``keep`` writes them; what was kept outlives a killed run."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file
        data = file.read(MOST_BYTES + 1)
        try:
            self.done = msgspec.json.decode(data, type=dict[str, float]) if data.strip() else {}
        except (msgspec.DecodeError, RecursionError):
            raise UsageError(f"--act: {path} is not a file of `gputop fleet remedy`: name another one") from None

    def keep(self, now: float) -> None:
        """Write what is remembered. Raises UsageError where that cannot be."""
        self.done = {key: at for key, at in self.done.items() if now - at < REMEMBERED_S}
        data = msgspec.json.encode(self.done)
        try:
            size = os.fstat(self._file.fileno()).st_size
            # Blanks over the rest of a longer text: whenever the run is killed, what is there can be read.
            os.pwrite(self._file.fileno(), data.ljust(size), 0)
            os.fsync(self._file.fileno())
            os.ftruncate(self._file.fileno(), len(data))
        except OSError as error:
            raise UsageError(f"--act: cannot write {self._path}: {error.strerror}; nothing more is done") from None


@contextmanager
def acts_in(path: Path) -> Iterator[Acts]:
    """The acts of a file, made where it is not there. Raises UsageError where another run holds it, and where it is
    none of ours."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise UsageError(f"--act: cannot write {path}: {error.strerror}") from None
    if not S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UsageError(f"--act: {path} is not a regular file")
    with os.fdopen(descriptor, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"another run acts with {path}: one at a time") from None
        yield Acts(path, file)


# One remedy, run: Slurm and Kubernetes are asked what they say now, by their own commands, and then told. What is set
# aside already is left as it is: no reason is overwritten.

LONGEST_S = 30.0
_NAME = re.compile(r"^NodeName=(\S+)", re.MULTILINE)
_STATE, _REASON = re.compile(r"\bState=(\S+)"), re.compile(r"\bReason=(.*)")
_FLAGS = re.compile(r"[+*~#!%$@^-]+")
"""What stands between and behind the words of a Slurm node's state."""


class Outcome(NamedTuple):
    """What became of a remedy, and why. What is ``settled`` needs none any more; what ``failed`` is tried again."""

    kind: Literal["done", "settled", "left", "failed"]
    why: str = ""


class _Failed(Exception):
    """A command that did not do it."""


def apply(remedy: Remedy) -> Outcome:
    """Run one remedy, where the scheduler's present state allows it. Raises UsageError where the scheduler's commands
    are not there."""
    try:
        return _slurm_node(remedy) if remedy.command[0] == "scontrol" else _kubernetes_node(remedy)
    except _Failed as error:
        return Outcome("failed", terminal_safe(clean_text(str(error)))[:160])


def _slurm_node(remedy: Remedy) -> Outcome:
    answer = _run("scontrol", "--oneliner", "show", "node", remedy.node)
    if _NAME.findall(answer) != [remedy.node]:
        return Outcome("left", f"{remedy.node} is not the name of one node there")
    state, reason = _STATE.search(answer), _REASON.search(answer)
    if state is None:
        raise _Failed(f"scontrol says no state of {remedy.node}")
    words = _FLAGS.split(state[1])
    why = f"{remedy.node} is {state[1]}" + (f": {terminal_safe(clean_text(reason[1]))[:120]}" if reason else "")
    if any(word.startswith(("DRAIN", "FAIL")) for word in words):
        return Outcome("settled", why)
    if reason is not None or "DOWN" in words:
        # A drain would put our reason in place of theirs; once the node is back it is time enough.
        return Outcome("left", why)
    _run(*remedy.command)
    return Outcome("done")


def _kubernetes_node(remedy: Remedy) -> Outcome:
    asked = ("kubectl", "get", "node", remedy.node, "--output", "jsonpath={.spec.unschedulable}")
    if _run(*asked).strip() == "true":
        return Outcome("settled", f"{remedy.node} is cordoned")
    _run(*remedy.command)
    # kubectl ends with 0 where the API refused to cordon.
    return Outcome("done") if _run(*asked).strip() == "true" else Outcome("failed", "the API did not take it")


def _run(*command: str) -> str:
    """What a command prints. Raises _Failed with its words, UsageError where it is not there."""
    try:
        done = finished(command, the_users(), LONGEST_S)
    except FileNotFoundError:
        raise UsageError(f"no {command[0]} on this machine: run this where the scheduler's commands are") from None
    except (OSError, TooLate) as error:
        raise _Failed(f"{command[0]}: {type(error).__name__}") from None
    if done.status != 0:
        raise _Failed((done.err or done.out).strip() or f"{command[0]}: exit {done.status}")
    return done.out


# The command.

FOUND = 1
MOST = 2
"""Nodes an hour, unless told: a fleet that seems to fail as a whole is looked at by people first."""
DID = "did set-aside "
"""Before a node and a moment: one act, beside what it answered."""


def arguments(command: argparse.ArgumentParser) -> None:
    prometheus_options(command)
    add = command.add_argument
    add("--by", choices=("slurm", "kubernetes"), required=True, help="by scontrol, or by kubectl")
    text = "do it, by scontrol or kubectl, and keep in FILE what was done; without it the commands are printed only"
    add("--act", metavar="FILE", help=text)
    text = f"nodes to act on within an hour, the rest later (default {MOST})"
    add("--most", type=int, default=MOST, metavar="N", help=text)


def run(args: argparse.Namespace, settings: Settings) -> int:
    if args.most < 1:
        raise UsageError(f"--most must be 1 or more, not {args.most}")
    if settings.redact:
        raise UsageError("a scheduler needs the names of nodes, and redact hides them: use one of them")
    stdout_is_text(settings)
    if args.act is None:
        return _print_proposed(*remedies(*_read_fleet(args, settings), args.by), args.most)
    with acts_in(Path(args.act)) as acts:
        # Before anything is done: what cannot be remembered would be done again.
        acts.keep(time.time())
        frame, on = _read_fleet(args, settings)
        forget(acts.done, frame, on)
        proposed, odd = remedies(frame, on, args.by)
        new = due(proposed, acts.done)
        later = []
        for remedy in new:
            now = time.time()
            if sum(key.startswith(DID) and now - at < HOUR_S for key, at in acts.done.items()) >= args.most:
                later.append(remedy)
                continue
            outcome = apply(remedy)
            _tell(
                {"done": f"done: {_words(remedy)}", "failed": f"failed ({outcome.why}): {_words(remedy)}"}.get(
                    outcome.kind, f"left alone: {outcome.why}"
                )
            )
            if outcome.kind in ("done", "settled"):
                acts.done.update(dict.fromkeys(remedy.keys, now))
            if outcome.kind == "done":
                acts.done[f"{DID}{remedy.node} {now:.3f}"] = now
            acts.keep(now)
        acts.keep(time.time())
        _rest(later, odd)
        return FOUND if new or odd else 0


def _read_fleet(args: argparse.Namespace, settings: Settings) -> tuple[FleetFrame, Grounds]:
    """The fleet now. Raises SourceError where the answer is not whole: what is not known is no reason to act."""
    fleet = asked_fleet(args, settings, most_gpus=None)
    if not isinstance(fleet, PrometheusFleet):
        fleet.close()
        raise UsageError("remedies rest on what a Prometheus remembers: hosts without one are only shown")
    try:
        fleet.settle()
        read = fleet.ask()
        if read.problems:
            raise SourceError(f"not acting on an answer that is not whole: {read.problems[0]}")
        if fleet.clusters:
            raise UsageError(f"several clusters answer, told apart by {fleet.clusters}: name one by --select")
        return fleet_frame(read), fleet.grounds()
    except FleetError as error:
        raise SourceError(str(error)) from None
    finally:
        fleet.close()


def _print_proposed(proposed: list[Remedy], odd: list[str], most: int) -> int:
    for remedy in proposed[:most]:
        _tell(f"would run: {_words(remedy)}")
    _rest(proposed[most:], odd)
    if proposed:
        _tell("nothing was done; --act FILE does it")
    elif not odd:
        _tell("nothing to do: no GPU is lost, and no count of uncorrected memory errors rose")
    return FOUND if proposed or odd else 0


def _rest(later: list[Remedy], odd: list[str]) -> None:
    if later:
        _tell(f"and {len(later)} more, {later[0].node} first: --most")
    for line in odd:
        _tell(f"left alone: {terminal_safe(clean_text(line))}")


def _tell(line: str) -> None:
    """At once: what comes next may take long."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _words(remedy: Remedy) -> str:
    command = " ".join(f"'{word}'" if " " in word else word for word in remedy.command)
    return command if not remedy.text or remedy.text in remedy.command else f"{command} ({remedy.text})"
