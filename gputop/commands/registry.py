"""The commands by purpose, with their modules. Standard library only.

A command is a file with ``arguments(parser)``, ``run(args, settings)`` and, if they are not the usual ones, ``NEEDS``,
and a row in this table. The help lists the commands from the table, so that it imports none of them.

A command may have parts, named by a second word, such as ``fleet demo``: each is such a file, and a row of its
command.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple

from gputop.model.feature_table import FEATURES, Command, resolve

if TYPE_CHECKING:
    from types import ModuleType

    from gputop.output.document import Document


class Needs(NamedTuple):
    """Requirements of a command, checked before it runs."""

    output: Literal["stdout", "terminal", "nothing"] = "stdout"
    """Where the result goes: ``stdout`` must be open; a ``terminal`` is asked for by the screen itself."""
    configuration: bool = True
    """Whether the configuration is read first. Without it the command works while the file is wrong."""


USUAL = Needs()
PURPOSES = ("Watch", "Evidence", "A job", "The fleet", "Set-up")
"""In the order of the help."""
LIVE = "live"
"""What runs without a command."""
LIVE_MODULE = "gputop.commands.screen"

_ALL = {
    "demo": Command("Watch", "a simulated node, on any machine", "gputop.commands.demo"),
    "once": Command("Watch", "one measured snapshot, as a table or as data", "gputop.commands.once"),
    "compare": Command("Evidence", "what a change made better or worse", "gputop.commands.compare"),
    "diagnose": Command("Evidence", "verdicts in words, live or on a recording", "gputop.commands.diagnose"),
    "dump": Command("Evidence", "a recording as data", "gputop.commands.dump"),
    "mcp": Command(
        "Evidence", "answer coding assistants (Model Context Protocol), read-only", "gputop.mcp.mcp_command"
    ),
    "record": Command("Evidence", "record without a screen", "gputop.commands.record"),
    "replay": Command("Evidence", "the screen on a recording", "gputop.commands.replay"),
    "report": Command("Evidence", "where the GPU time of a recording went", "gputop.commands.report"),
    "screenshot": Command("Evidence", "a picture of the screen, without a terminal", "gputop.commands.screenshot"),
    "mark": Command("A job", "a mark for running recorders and screens", "gputop.commands.mark"),
    "pick": Command("A job", "the least used GPUs, for CUDA_VISIBLE_DEVICES", "gputop.commands.pick"),
    "run": Command("A job", "run a job, watch its GPUs, report at its end", "gputop.commands.run"),
    "completion": Command("Set-up", "completion for your shell, to source or install", "gputop.commands.completion"),
    "config": Command("Set-up", "the settings in force, and where each comes from", "gputop.commands.config"),
    "doctor": Command("Set-up", "what can be measured here, why not, and how to fix it", "gputop.commands.doctor"),
    "help": Command("Set-up", "what a command, a key, a number or a verdict means", "gputop.commands.help"),
}
_ALL |= {name: row for feature in FEATURES.values() for name, row in feature.commands.items()}
COMMANDS = {name: _ALL[name] for purpose in PURPOSES for name in sorted(_ALL) if _ALL[name].purpose == purpose}
"""Name → command, by purpose and then by name."""


def parts(name: str) -> dict[str, str]:
    """Return a command's parts by their second word, with summaries."""
    return {word: part.summary for word, part in COMMANDS[name].parts.items()} if name in COMMANDS else {}


def commands() -> dict[str, str]:
    """Return every command with its summary."""
    return {name: command.summary for name, command in COMMANDS.items()}


def commands_and_parts() -> dict[str, str]:
    """Return every command and its parts by both words, with summaries."""
    summaries = {}
    for name, summary in commands().items():
        summaries[name] = summary
        summaries.update({f"{name} {part}": words for part, words in parts(name).items()})
    return summaries


def module_of(name: str) -> ModuleType:
    """Return the module of a command, a part or LIVE."""
    if name == LIVE:
        return import_module(LIVE_MODULE)
    command, _, part = name.partition(" ")
    row = COMMANDS[command]
    return import_module(row.parts[part].module if part else row.module)


TOPICS = {
    "options": "gputop.commands.help:options_page",
    "settings": "gputop.commands.help:settings_page",
    "keys": "gputop.output.reference_pages:keys_page",
    "filters": "gputop.output.reference_pages:filters_page",
    "metrics": "gputop.output.reference_pages:metrics_page",
    "sources": "gputop.output.reference_pages:sources_page",
    "verdicts": "gputop.output.reference_pages:verdicts_page",
    **{topic: page for feature in FEATURES.values() for topic, page in feature.topics.items()},
}
"""Topic → module and function that make its page."""


def page_of(topic: str) -> Document:
    """Return the page of a topic of TOPICS."""
    document: Document = resolve(TOPICS[topic])()
    return document
