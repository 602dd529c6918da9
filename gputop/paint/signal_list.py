"""The signals that can be sent, the confirmation, and the outcome. Pure rows."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from msgspec import Struct

from gputop.model.inspection import Identity, SignalOutcome
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row
from gputop.paint.text import fit

_MEANINGS = {
    "SIGTERM": "end, after cleaning up: what most programs expect",
    "SIGINT": "interrupt, as ctrl+c does: Python raises KeyboardInterrupt",
    "SIGHUP": "the terminal is gone: end, or read the configuration again",
    "SIGKILL": "end at once; nothing is saved, children may be left behind",
    "SIGSTOP": "stop until SIGCONT; GPU memory stays held",
    "SIGCONT": "go on after SIGSTOP",
    "SIGQUIT": "end and dump core",
    "SIGUSR1": "whatever the program makes of it (Slurm: often save a checkpoint)",
    "SIGUSR2": "whatever the program makes of it",
    "SIGABRT": "abort and dump core",
}
"""The common ones, in this order, with their default action (signal(7))."""
MOST_NAMED = 8
"""Processes named one by one."""


class Addressee(Struct, frozen=True):
    """A process that a signal is meant for, and how people know it."""

    identity: Identity
    user: str | None
    command: str | None


class SignalChoice(Struct, frozen=True):
    """One signal of the list."""

    number: int
    name: str
    meaning: str


def signal_choices() -> tuple[SignalChoice, ...]:
    """The signals of this system: the usual ones first, SIGTERM at the top, then the others by number."""
    named = {s.name: int(s) for s in signal.Signals if "RT" not in s.name}
    usual = [SignalChoice(named[name], name, meaning) for name, meaning in _MEANINGS.items() if name in named]
    others = sorted((number, name) for name, number in named.items() if name not in _MEANINGS)
    return (*usual, *(SignalChoice(number, name, "") for number, name in others))


def addressee_rows(who: Sequence[Addressee], glyphs: Glyphs, width: int) -> list[Row]:
    """Each process by pid, user and command; one row more counts the rest."""
    rows = []
    for one in who[:MOST_NAMED]:
        line = (
            Line().add(f"  {one.identity.pid:>7}  ", "value").add(fit(one.user or glyphs.dash, 10, glyphs.more), "text")
        )
        line.add("  ").add(fit(one.command or "(not visible)", max(1, width - line.width - 3), glyphs.more), "text")
        rows.append(line.row(width))
    if len(who) > MOST_NAMED:
        rows.append(Line().add(f"           and {len(who) - MOST_NAMED} more", "dim").row(width))
    return rows


def question(choice: SignalChoice, who: Sequence[Addressee]) -> str:
    """The confirmation asked before a signal is sent; names the process, or how many there are."""
    whom = f"process {who[0].identity.pid}" if len(who) == 1 else f"these {len(who)} processes"
    return f"Send {choice.name} to {whom}?"


def signal_rows(
    who: Sequence[Addressee], choices: Sequence[SignalChoice], cursor: int, glyphs: Glyphs, width: int, *, asked: bool
) -> list[Row]:
    """The processes, then the list with its cursor; once chosen, the question stands below the processes."""
    title = "signal to one process" if len(who) == 1 else f"signal to {len(who)} processes"
    rows = [Line().add(f" {title}", "title").row(width), *addressee_rows(who, glyphs, width), Line().row(width)]
    if asked:
        rows.append(Line().add(f"  {question(choices[cursor], who)}", "level.yellow").row(width))
        rows.append(Line().add(f"  {choices[cursor].meaning}", "text").row(width))
        rows.append(Line().row(width))
        keys = Line().add("  y", "key").add(" send it").add("     n", "key").add(" or ").add("esc", "key")
        rows.append(keys.add(" leave it").row(width))
        return rows
    for position, choice in enumerate(choices):
        line = Line().add(f"  {choice.number:>2}  ", "dim").add(f"{choice.name:<10}", "value")
        line.add(fit(choice.meaning, max(1, width - line.width - 1), glyphs.more), "text")
        rows.append(line.row(width, "select" if position == cursor else None))
    return rows


def outcome_rows(outcomes: Sequence[SignalOutcome], name: str, glyphs: Glyphs, width: int) -> list[Row]:
    """The outcome of the signal, process by process."""
    rows = [Line().add(f" {name}", "title").row(width)]
    for outcome in outcomes:
        line = Line().add(f"  {outcome.identity.pid:>7}  ", "value")
        if outcome.sent:
            line.add("sent", "level.green")
        else:
            line.add("not sent: ", "level.yellow")
            line.add(fit(outcome.reason, max(1, width - line.width - 1), glyphs.more), "text")
        rows.append(line.row(width))
    return rows


def outcome_words(outcomes: Sequence[SignalOutcome], name: str) -> str:
    """The same in one line, for the message on the main screen."""
    sent = [outcome for outcome in outcomes if outcome.sent]
    failed = [outcome for outcome in outcomes if not outcome.sent]
    if not failed:
        whom = f"process {sent[0].identity.pid}" if len(sent) == 1 else f"{len(sent)} processes"
        return f"{name} sent to {whom}" + (f": {sent[0].note}" if sent[0].note else "")
    first = f"{name} not sent to {failed[0].identity.pid}: {failed[0].reason}"
    return first if len(outcomes) == 1 else f"{first} ({len(sent)} of {len(outcomes)} sent)"
