"""The commands by purpose, with their modules. Standard library only.

A command is a file with ``arguments(parser)``, ``run(args, settings)`` and, if they are not the usual ones, ``NEEDS``,
and a row in this table. The help lists the commands from the table, so that it imports none of them.

A command may have parts, named by a second word, such as ``fleet demo``: each is such a file and such a row.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple

from gputop.model.feature_table import FEATURE_COMMANDS, Command, resolve

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
LIVE_MODULE = "command_line.screen"

_CORE = {
    "demo": Command("Watch", "a simulated node, on any machine", "commands.demo"),
    "once": Command("Watch", "one measured snapshot, as a table or as data", "commands.once"),
    "compare": Command("Evidence", "what a change made better or worse", "commands.compare"),
    "diagnose": Command(
        "Evidence", "verdicts in words, live or on a recording", "commands.diagnose"
    ),
    "dump": Command("Evidence", "a recording as data", "commands.dump"),
    "mcp": Command(
        "Evidence",
        "answer coding assistants (Model Context Protocol), read-only",
        "mcp.mcp_command",
    ),
    "record": Command("Evidence", "record without a screen", "commands.record"),
    "replay": Command("Evidence", "the screen on a recording", "commands.replay"),
    "report": Command("Evidence", "where the GPU time of a recording went", "commands.report"),
    "screenshot": Command(
        "Evidence", "a picture of the screen, without a terminal", "commands.screenshot"
    ),
    "mark": Command("A job", "a mark for running recorders and screens", "commands.mark"),
    "pick": Command("A job", "the least used GPUs, for CUDA_VISIBLE_DEVICES", "commands.pick"),
    "run": Command("A job", "run a job, watch its GPUs, report at its end", "commands.run"),
    "completion": Command(
        "Set-up", "completion for your shell, to source or install", "command_line.completion"
    ),
    "config": Command(
        "Set-up", "the settings in force, and where each comes from", "commands.config"
    ),
    "doctor": Command(
        "Set-up", "what can be measured here, why not, and how to fix it", "commands.doctor"
    ),
    "help": Command(
        "Set-up", "what a command, a key, a number or a verdict means", "command_line.help"
    ),
}
COMMANDS_AND_PARTS = {
    name: row
    for purpose in PURPOSES
    for name, row in sorted({**_CORE, **FEATURE_COMMANDS}.items())
    if row.purpose == purpose
}
"""Name → command, by purpose and then by name; a part by both words."""
COMMANDS = {name: row for name, row in COMMANDS_AND_PARTS.items() if " " not in name}


def parts(name: str) -> dict[str, str]:
    """Return a command's parts by their second word, with summaries."""
    rows = COMMANDS_AND_PARTS.items()
    return {
        words.partition(" ")[2]: row.summary for words, row in rows if words.startswith(f"{name} ")
    }


def module_of(name: str) -> ModuleType:
    """Return the module of a command, a part or LIVE."""
    return import_module(
        f"gputop.{LIVE_MODULE if name == LIVE else COMMANDS_AND_PARTS[name].module}"
    )


TOPICS = {
    "options": "command_line.reference:options_page",
    "settings": "command_line.reference:settings_page",
    "keys": "output.reference_pages:keys_page",
    "filters": "output.reference_pages:filters_page",
    "metrics": "output.reference_pages:metrics_page",
    "sources": "output.reference_pages:sources_page",
    "verdicts": "output.verdicts_page:verdicts_page",
}
"""Topic → module and function that make its page."""


def page_of(topic: str) -> Document:
    """Return the page of a topic of TOPICS."""
    document: Document = resolve(TOPICS[topic])()
    return document
