"""One remedy, run: Slurm and Kubernetes are asked what they say now, by their own commands, and then told.

What is set aside already is left as it is: no reason is overwritten.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from gputop.features.fleet.remedies import Remedy
from gputop.model.quantity import clean_text, terminal_safe
from gputop.model.source import UsageError
from gputop.system.children import TooLate, finished, the_users

LONGEST_S = 30.0
_NAME = re.compile(r"^NodeName=(\S+)", re.MULTILINE)
_STATE, _REASON = re.compile(r"\bState=(\S+)"), re.compile(r"\bReason=(.*)")
_FLAGS = re.compile(r"[+*~#!%$@^-]+")
"""What stands between and behind the words of a Slurm node's state."""


class Outcome(NamedTuple):
    """What became of a remedy, and why. What is ``settled`` needs none any more; what ``failed`` is tried again."""

    kind: Literal["done", "settled", "left", "failed"]
    why: str = ""


def apply(remedy: Remedy) -> Outcome:
    """Run one remedy, where the scheduler's present state allows it. Raises UsageError where the scheduler's commands
    are not there."""
    try:
        return _slurm_node(remedy) if remedy.command[0] == "scontrol" else _kubernetes_node(remedy)
    except _Failed as error:
        return Outcome("failed", terminal_safe(clean_text(str(error)))[:160])


class _Failed(Exception):
    """A command that did not do it."""


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
    if _is_cordoned(remedy.node):
        return Outcome("settled", f"{remedy.node} is cordoned")
    _run(*remedy.command)
    # kubectl ends with 0 where the API refused to cordon.
    return Outcome("done") if _is_cordoned(remedy.node) else Outcome("failed", "the API did not take it")


def _is_cordoned(node: str) -> bool:
    return _run("kubectl", "get", "node", node, "--output", "jsonpath={.spec.unschedulable}").strip() == "true"


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
