"""The commands by purpose, in one screenful: what ``gputop --help`` and ``gputop help`` print."""

from __future__ import annotations

from gputop.commands.registry import commands, groups
from gputop.commands.topics import TOPICS
from gputop.model.text import wrapped

WIDTH = 80


def overview() -> str:
    """What ``gputop --help`` prints: at most 48 lines of 80 columns."""
    width = max(map(len, commands())) + 4
    lines = ["usage: gputop [OPTIONS] [COMMAND] …", ""]
    lines += wrapped("top for GPUs: utilisation against real SM activity, and why the rest is not work.", WIDTH)
    lines += ["Without a command: the live screen, where ? explains every key and number.", ""]
    for purpose, summaries in groups().items():
        lines.append(purpose)
        lines += [f"  {name:<{width}}{summary}" for name, summary in summaries.items()]
        lines.append("")
    lines.append("`gputop COMMAND --help` lists a command's options, `gputop help TOPIC` explains:")
    lines += wrapped(", ".join(TOPICS), WIDTH, "  ", "  ")
    return "\n".join(lines) + "\n"
