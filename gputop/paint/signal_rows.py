"""Signals that can be sent, the confirmation, and the outcome."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence

from msgspec import Struct

from gputop.model.inspection import (
    ProcessIdentity,
    SignalOutcome,
)
from gputop.paint.cells import fit
from gputop.paint.line import Line, Row, text_row

_MEANINGS: Mapping[str, str] = {
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
"""The signals that can be sent, with their default action (signal(7))."""
MOST_NAMED = 8
"""Processes named one by one."""


class Addressee(Struct, frozen=True):
    """A process that a signal is meant for."""

    identity: ProcessIdentity
    user: str | None
    command: str | None


class SignalChoice(Struct, frozen=True):
    """One signal of the list."""

    number: int
    name: str
    meaning: str


def signal_choices() -> tuple[SignalChoice, ...]:
    """Return the usual signals, SIGTERM first."""
    return tuple(
        SignalChoice(int(signal.Signals[name]), name, meaning)
        for name, meaning in _MEANINGS.items()
    )


def addressee_rows(addressees: Sequence[Addressee], width: int) -> list[Row]:
    """Return each process by pid, user and command.

    One row more counts the rest.
    """
    rows = []
    for addressee in addressees[:MOST_NAMED]:
        line = (
            Line()
            .add(f"  {addressee.identity.pid:>7}  ", "value")
            .add(fit(addressee.user or "–", 10), "text")
        )
        line.add("  ").add(
            fit(addressee.command or "(not visible)", max(1, width - line.width - 3)), "text"
        )
        rows.append(line.row(width))
    if len(addressees) > MOST_NAMED:
        rows.append(text_row(f"           and {len(addressees) - MOST_NAMED} more", width, "dim"))
    return rows


def question(choice: SignalChoice, addressees: Sequence[Addressee]) -> str:
    """Return the confirmation asked before a signal is sent.

    It names the process, or how many there are.
    """
    whom = (
        f"process {addressees[0].identity.pid}"
        if len(addressees) == 1
        else f"these {len(addressees)} processes"
    )
    return f"Send {choice.name} to {whom}?"


def signal_rows(
    addressees: Sequence[Addressee],
    choices: Sequence[SignalChoice],
    cursor: int,
    width: int,
    *,
    is_chosen: bool,
) -> list[Row]:
    """Return the processes and the list of signals.

    Once one is chosen, the question is below the processes.
    """
    title = (
        "signal to one process"
        if len(addressees) == 1
        else f"signal to {len(addressees)} processes"
    )
    rows = [
        text_row(f" {title}", width, "title"),
        *addressee_rows(addressees, width),
        Line().row(width),
    ]
    if is_chosen:
        rows.append(text_row(f"  {question(choices[cursor], addressees)}", width, "level.yellow"))
        rows.append(text_row(f"  {choices[cursor].meaning}", width))
        rows.append(Line().row(width))
        keys = (
            Line()
            .add("  y", "key")
            .add(" send it")
            .add("     n", "key")
            .add(" or ")
            .add("esc", "key")
        )
        rows.append(keys.add(" leave it").row(width))
        return rows
    for position, choice in enumerate(choices):
        line = Line().add(f"  {choice.number:>2}  ", "dim").add(f"{choice.name:<10}", "value")
        line.fill(choice.meaning, width)
        rows.append(line.row(width, "select" if position == cursor else None))
    return rows


def outcome_rows(outcomes: Sequence[SignalOutcome], name: str, width: int) -> list[Row]:
    """The outcome of the signal, process by process."""
    rows = [text_row(f" {name}", width, "title")]
    for outcome in outcomes:
        line = Line().add(f"  {outcome.identity.pid:>7}  ", "value")
        if outcome.sent:
            line.add("sent", "level.green")
        else:
            line.add("not sent: ", "level.yellow")
            line.fill(outcome.reason, width)
        rows.append(line.row(width))
    return rows


def outcome_words(outcomes: Sequence[SignalOutcome], name: str) -> str:
    """Return the outcome in one line for the main screen."""
    sent = [outcome for outcome in outcomes if outcome.sent]
    failed = [outcome for outcome in outcomes if not outcome.sent]
    if not failed:
        whom = f"process {sent[0].identity.pid}" if len(sent) == 1 else f"{len(sent)} processes"
        return f"{name} sent to {whom}" + (f": {sent[0].note}" if sent[0].note else "")
    first = f"{name} not sent to {failed[0].identity.pid}: {failed[0].reason}"
    return first if len(outcomes) == 1 else f"{first} ({len(sent)} of {len(outcomes)} sent)"
