"""``gputop loader MODULE:FUNCTION``: the function is called, and its data measured, in an interpreter of its own.

Whatever it does there (hang, end the process, close its files, leave threads and forks behind) costs the answer and not
gputop: the parent waits as long as the budget says, and then ends the child's whole session.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gputop.features.loader_bench.bench import LEAST_ROW_S, MOST_ROW_S, BenchRequest, dataloader_bench
from gputop.features.loader_bench.bench_report import LoaderReport
from gputop.model.quantity import error_words
from gputop.model.source import UsageError
from gputop.output.messages import show_progress
from gputop.system.children import NOTHING, Child, TooLate, end, how_it_ended, start, the_users, users_python

LATE_S = MOST_ROW_S + LEAST_ROW_S
"""How long after the budget the answer may come: the last setting is measured to its end."""
LOOK_S = 0.25
END_S = 2.0
"""How long a child that has answered may take to end."""
MOST_WORDS = 300
_BAR = 24


class _ChildMessage(Struct, frozen=True):
    """What the child says: that the function has returned, the report, or what is wrong."""

    kind: Literal["made", "report", "wrong"]
    words: str = ""
    report: LoaderReport | None = None


def measured(function: str, asked: BenchRequest) -> LoaderReport:
    """The report on what the function makes. Raises UsageError for a function that gives nothing to measure, with the
    reason."""
    ours, theirs = Pipe(duplex=False)
    child = start(
        users_python(__name__, str(theirs.fileno()), function, msgspec.json.encode(asked).decode()),
        the_users(),
        # What the function prints is for people, and stdout may be JSON.
        stdout=2 if sys.stderr is not None else NOTHING,
        stderr=2 if sys.stderr is not None else NOTHING,
        pass_fds=(theirs.fileno(),),
    )
    theirs.close()
    try:
        return _followed(ours, child, function, asked.budget_s)
    finally:
        # With the threads and forks that the function has left behind.
        end(child)
        ours.close()


def _followed(ours: Connection, child: Child, function: str, budget_s: float) -> LoaderReport:
    begun = time.monotonic()
    until, is_made = begun + budget_s, False
    while time.monotonic() < until:
        # Not the pipe alone: what the function has forked may hold it open.
        has_ended = child.poll() is not None
        try:
            if not ours.poll(0.0 if has_ended else LOOK_S):
                if has_ended:
                    raise EOFError
                continue
            message = msgspec.msgpack.decode(ours.recv_bytes(), type=_ChildMessage)
        except (EOFError, OSError, msgspec.MsgspecError, RecursionError):
            raise UsageError(f"{function}: {_how_it_ended(child)}") from None
        if message.kind == "made":
            is_made, until = True, begun + budget_s + LATE_S
        elif message.kind == "wrong":
            raise UsageError(message.words)
        elif message.report is not None:
            return message.report
    if is_made:
        raise UsageError(f"{function}: no answer {LATE_S:.0f} s after the budget of {budget_s:g} s")
    raise UsageError(
        f"{function}() has not returned within the budget of {budget_s:g} s: make less in it, or give more "
        "with --budget"
    )


def _how_it_ended(child: Child) -> str:
    try:
        status = child.wait(END_S)
    except TooLate:
        return "the process that runs it has closed its files"
    return f"the process that runs it {how_it_ended(status)}"


def main() -> None:
    """The child: call the function, measure what it makes, say the result, and end with all that it has left."""
    theirs = Connection(int(sys.argv[1]), readable=False)

    def tell(message: _ChildMessage) -> None:
        theirs.send_bytes(msgspec.msgpack.encode(message))

    function, asked = sys.argv[2], msgspec.json.decode(sys.argv[3], type=BenchRequest)
    begun = time.monotonic()
    try:
        made = _made(function)
        tell(_ChildMessage("made"))
        left_s = max(1.0, asked.budget_s - (time.monotonic() - begun))
        report = dataloader_bench(made, replace(asked, budget_s=left_s), _draw)
        tell(_ChildMessage("report", report=report))
    except UsageError as error:
        tell(_ChildMessage("wrong", str(error)))
    except BaseException as error:  # noqa: BLE001 — somebody else's code: whatever it raises is the answer
        tell(_ChildMessage("wrong", f"{function}: {error_words(error)[:MOST_WORDS]}"))
    finally:
        with suppress(Exception):
            sys.stdout.flush()
        # Not as Python ends: a thread that the function has left would hold it up.
        os._exit(0)


def _draw(part: float, doing: str) -> None:
    filled = round(_BAR * part)
    show_progress(f"[{'#' * filled}{'.' * (_BAR - filled)}] {doing}")


def _made(text: str) -> Any:
    """What the function makes. Raises UsageError."""
    made = imported(text)
    try:
        return made()
    except BaseException as error:
        raise UsageError(f"{text}() raised {error_words(error)[:MOST_WORDS]}") from error


def imported(text: str) -> Callable[[], Any]:
    """The function that MODULE:FUNCTION names, imported from here or from the path. Raises UsageError."""
    module, _, name = checked_name(text).partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        attribute = getattr(importlib.import_module(module), name, None)
    except BaseException as error:
        raise UsageError(f"{module} cannot be imported: {error_words(error)[:MOST_WORDS]}") from error
    if not callable(attribute):
        raise UsageError(f"{module} has no function {name}")
    made: Callable[[], Any] = attribute
    return made


def checked_name(text: str) -> str:
    """The name as it is. Raises UsageError for what cannot name a function of a module."""
    module, _, name = text.partition(":")
    if not module or not name.isidentifier():
        raise UsageError(f"{text!r} must be MODULE:FUNCTION, as in train:make_dataset")
    return text
