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
from gputop.model.text_table import table_rows

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

_CORE = """
    demo        Watch     commands.demo        a simulated node, on any machine
    once        Watch     commands.once        one measured snapshot, as a table or as data
    compare     Evidence  commands.compare     what a change made better or worse
    diagnose    Evidence  commands.diagnose    verdicts in words, live or on a recording
    dump        Evidence  commands.dump        a recording as data
    mcp         Evidence  mcp.mcp_command      answer coding assistants (Model Context Protocol), read-only
    record      Evidence  commands.record      record without a screen
    replay      Evidence  commands.replay      the screen on a recording
    report      Evidence  commands.report      where the GPU time of a recording went
    screenshot  Evidence  commands.screenshot  a picture of the screen, without a terminal
    mark        A job     commands.mark        a mark for running recorders and screens
    pick        A job     commands.pick        the least used GPUs, for CUDA_VISIBLE_DEVICES
    run         A job     commands.run         run a job, watch its GPUs, report at its end
    completion  Set-up    commands.completion  completion for your shell, to source or install
    config      Set-up    commands.config      the settings in force, and where each comes from
    doctor      Set-up    commands.doctor      what can be measured here, why not, and how to fix it
    help        Set-up    commands.help        what a command, a key, a number or a verdict means
"""
"""Name, purpose, the module below ``gputop``, what it is for."""
_ALL = {name: Command(purpose, words, f"gputop.{module}") for name, purpose, module, words in table_rows(_CORE)}
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


# What ``gputop help TOPIC`` explains: each topic, and the function that makes its page. Standard library only.

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
