"""The commands by purpose, each with what it is for: the one place that lists them. Standard library only.

A command's file in this folder is named after it (``loader-bench``: ``loader_bench.py``) and holds the rest: ``NEEDS``,
``arguments(parser)`` and ``run(args, settings)``.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

GROUPS: dict[str, dict[str, str]] = {
    "Watch": {
        "demo": "a simulated node, on any machine",
        "once": "one measured snapshot, as a table or as data",
        "serve": "the screen in a browser: read-only, on this machine's loopback",
    },
    "Evidence": {
        "diagnose": "verdicts in words, live or on a recording",
        "record": "record without a screen",
        "replay": "the screen on a recording",
        "report": "where the GPU time of a recording went",
        "compare": "what a change made better or worse",
        "dump": "a recording as data",
        "screenshot": "a picture of the screen, without a terminal",
    },
    "A job": {
        "run": "run a job, watch its GPUs, report at its end",
        "mark": "a mark for running recorders and screens",
    },
    "Set-up": {
        "doctor": "what can be measured here, why not, and how to fix it",
        "config": "the settings in force, or the file that they come from",
        "completion": "completion for your shell, to be sourced or installed",
        "help": "what a command, a key, a number or a verdict means",
    },
}
"""Purpose → the commands that serve it, in the order of the help."""

COMMANDS = {name: summary for commands in GROUPS.values() for name, summary in commands.items()}
LIVE = "live"
"""The file of what runs without a command."""


def module_of(name: str) -> ModuleType:
    """A command's file, imported."""
    return import_module(f"gputop.commands.{name.replace('-', '_')}")
