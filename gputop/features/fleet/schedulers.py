"""One remedy, run: Slurm and Kubernetes are asked what they say now, by their own commands, and then told.

What is set aside already, or requeued, is left as it is: no reason is overwritten.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from typing import Literal, NamedTuple

import msgspec

from gputop.features.fleet.remedies import Remedy
from gputop.model.quantity import clean_text, count, terminal_safe
from gputop.model.source import UsageError

LONGEST_S = 30.0
_STATE, _REASON = re.compile(r"\bState=(\S+)"), re.compile(r"\bReason=(.*)")
_FLAGS = re.compile(r"[+*~#!%$@^-]+")
"""What stands between and behind the words of a Slurm node's state."""


class Outcome(NamedTuple):
    """What became of a remedy, and why. What is ``settled`` needs none any more; what ``failed`` is tried again."""

    kind: Literal["done", "settled", "left", "failed"]
    why: str = ""


def apply(remedy: Remedy, now: float) -> Outcome:
    """Run one remedy, where the scheduler's present state allows it. ``now`` is Unix time. Raises UsageError where the
    scheduler's commands are not there."""
    try:
        if remedy.what == "set-aside":
            return _slurm_node(remedy) if remedy.command[0] == "scontrol" else _kubernetes_node(remedy)
        if remedy.what == "requeue":
            return _requeue(remedy)
        return _kubernetes_owner(remedy, now) if remedy.command[0] == "kubectl" else _slurm_owner(remedy)
    except _Failed as error:
        return Outcome("failed", terminal_safe(clean_text(str(error)))[:160])


class _Failed(Exception):
    """A command that did not do it."""


def _slurm_node(remedy: Remedy) -> Outcome:
    answer = _run("scontrol", "--oneliner", "show", "node", remedy.about)
    state, reason = _STATE.search(answer), _REASON.search(answer)
    if state is None:
        raise _Failed(f"scontrol says no state of {remedy.about}")
    words = _FLAGS.split(state[1])
    why = f"{remedy.about} is {state[1]}" + (f": {terminal_safe(clean_text(reason[1]))[:120]}" if reason else "")
    if any(word.startswith(("DRAIN", "FAIL")) for word in words):
        return Outcome("settled", why)
    if reason is not None or "DOWN" in words:
        # A drain would put our reason in place of theirs; once the node is back it is time enough.
        return Outcome("left", why)
    _run(*remedy.command)
    return Outcome("done")


def _kubernetes_node(remedy: Remedy) -> Outcome:
    if _is_cordoned(remedy.about):
        return Outcome("settled", f"{remedy.about} is cordoned")
    _run(*remedy.command)
    # kubectl ends with 0 where the API refused to cordon.
    return Outcome("done") if _is_cordoned(remedy.about) else Outcome("failed", "the API did not take it")


def _is_cordoned(node: str) -> bool:
    return _run("kubectl", "get", "node", node, "--output", "jsonpath={.spec.unschedulable}").strip() == "true"


def _job(job_id: str) -> tuple[str, int, float]:
    """(state, nodes, Unix time of its start) of a Slurm job."""
    answer = _run("squeue", "--noheader", "--states=all", "--jobs", job_id, "--format=%T|%D|%S", SLURM_TIME_FORMAT="%s")
    parts = answer.strip().split("|")
    try:
        return parts[0], int(parts[1]), float(parts[2])
    except (IndexError, ValueError):
        return parts[0] or "not there", 0, 0.0


def _requeue(remedy: Remedy) -> Outcome:
    assert remedy.last_step_t is not None, "a job that hangs was heard of"
    state, nodes, started = _job(remedy.command[-1])
    if state != "RUNNING":
        return Outcome("left", f"{remedy.about} is {terminal_safe(clean_text(state))[:40]}")
    if nodes != len(remedy.hosts):
        return Outcome("left", f"{remedy.about} has {count(nodes, 'node')}, and steps are known of {len(remedy.hosts)}")
    if started >= remedy.last_step_t:
        return Outcome("left", f"{remedy.about} began anew after the last of these steps")
    _run(*remedy.command)
    return Outcome("done")


def _slurm_owner(remedy: Remedy) -> Outcome:
    assert remedy.owner is not None, "somebody is told"
    state, _, _ = _job(remedy.owner.job_id)
    if state != "RUNNING":
        return Outcome("left", f"{remedy.about} is {terminal_safe(clean_text(state))[:40]}")
    _run(*remedy.command)
    return Outcome("done")


def _kubernetes_owner(remedy: Remedy, now: float) -> Outcome:
    assert remedy.owner is not None, "somebody is told"
    pod = remedy.owner.pod
    # `kubectl describe pod` shows the events of this pod, and not those of an earlier one of its name.
    uid = _run(
        "kubectl", "get", "pod", pod, "--namespace", remedy.owner.namespace, "--output", "jsonpath={.metadata.uid}"
    )
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "gputop-", "namespace": remedy.owner.namespace},
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "namespace": remedy.owner.namespace, "name": pod, "uid": uid.strip(),
        },
        "type": "Warning",
        "reason": "GpuIdle",
        "message": remedy.text,
        "source": {"component": "gputop"},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }  # fmt: skip
    _run(*remedy.command, stdin=msgspec.json.encode(event).decode())
    return Outcome("done")


def _run(*command: str, stdin: str = "", **environment: str) -> str:
    """What a command prints. Raises _Failed with its words, UsageError where it is not there."""
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, errors="replace", timeout=LONGEST_S, check=False,
            env={**os.environ, **environment},
        )  # fmt: skip
    except FileNotFoundError:
        raise UsageError(f"no {command[0]} on this machine: run this where the scheduler's commands are") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _Failed(f"{command[0]}: {type(error).__name__}") from None
    if done.returncode != 0:
        raise _Failed((done.stderr or done.stdout).strip() or f"{command[0]}: exit {done.returncode}")
    return done.stdout
