"""``gputop loader MODULE:FUNCTION``: the function is called, and its data measured, in an interpreter of its own.

Whatever it does there (hang, end the process, close its files, leave threads and forks behind) costs the answer and not
gputop: the parent waits as long as the budget says, and then ends the child's whole session.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

import gputop
from gputop.features.loader_bench.bench import LEAST_ROW_S, MOST_ROW_S, Progress, dataloader_bench
from gputop.features.loader_bench.bench_report import LoaderReport
from gputop.model.quantity import clean_text
from gputop.model.source import UsageError
from gputop.sources.own_process import dying_with_parent

LATE_S = MOST_ROW_S + LEAST_ROW_S
"""How long after the budget the answer may come: the last setting is measured to its end."""
LOOK_S = 0.25
END_S = 2.0
"""How long a child that has answered may take to end."""
MOST_WORDS = 300


class Asked(Struct, frozen=True):
    """What the child is to do: as the arguments of ``dataloader_bench``."""

    function: str
    batch_size: int | None
    workers: str | list[int]
    step_ms: float | None
    budget_s: float
    epochs: int | None


class _Told(Struct, frozen=True):
    """What the child says: that the function has returned, how far it is, the report, or what is wrong."""

    kind: Literal["made", "progress", "report", "wrong"]
    words: str = ""
    part: float = 0.0
    report: LoaderReport | None = None


def measured(asked: Asked, progress: Progress | None = None) -> LoaderReport:
    """The report on what the function makes. Raises UsageError for a function that gives nothing to measure, with the
    reason."""
    ours, theirs = Pipe(duplex=False)
    child = subprocess.Popen(
        dying_with_parent(sys.executable, ["-c", _program(theirs.fileno()), msgspec.json.encode(asked).decode()]),
        stdin=subprocess.DEVNULL,
        # What the function prints is for people, and stdout may be JSON.
        stdout=2 if sys.stderr is not None else subprocess.DEVNULL,
        pass_fds=(theirs.fileno(),),
        start_new_session=True,
    )
    theirs.close()
    try:
        return _followed(ours, child, asked, progress)
    finally:
        _end(child)
        ours.close()


def _program(descriptor: int) -> str:
    """As ``python -c``: never with the folder that gputop was started in before gputop itself; the function's module is
    looked for there later."""
    own = str(Path(gputop.__file__).parent.parent)
    return (
        f"import sys; sys.path[:] = [*filter(None, sys.path), {own!r}]; "
        f"from {__name__} import answer; answer({descriptor}, sys.argv[1])"
    )


def _followed(
    ours: Connection, child: subprocess.Popen[bytes], asked: Asked, progress: Progress | None
) -> LoaderReport:
    begun = time.monotonic()
    until, is_made = begun + asked.budget_s, False
    while time.monotonic() < until:
        # Not the pipe alone: what the function has forked may hold it open.
        has_ended = child.poll() is not None
        try:
            if not ours.poll(0.0 if has_ended else LOOK_S):
                if has_ended:
                    raise EOFError
                continue
            told = msgspec.msgpack.decode(ours.recv_bytes(), type=_Told)
        except (EOFError, OSError, msgspec.MsgspecError, RecursionError):
            raise UsageError(f"{asked.function}: {_how_it_ended(child)}") from None
        if told.kind == "made":
            is_made, until = True, begun + asked.budget_s + LATE_S
        elif told.kind == "progress" and progress is not None:
            progress(told.part, told.words)
        elif told.kind == "wrong":
            raise UsageError(told.words)
        elif told.report is not None:
            return told.report
    if is_made:
        raise UsageError(f"{asked.function}: no answer {LATE_S:.0f} s after the budget of {asked.budget_s:g} s")
    raise UsageError(
        f"{asked.function}() has not returned within the budget of {asked.budget_s:g} s: make less in it, or give more "
        "with --budget"
    )


def _how_it_ended(child: subprocess.Popen[bytes]) -> str:
    try:
        status = child.wait(END_S)
    except subprocess.TimeoutExpired:
        return "the process that runs it has closed its files"
    if status >= 0:
        return f"the process that runs it has ended with exit code {status}"
    with suppress(ValueError):
        return f"the process that runs it was ended by {signal.Signals(-status).name}"
    return f"the process that runs it was ended by signal {-status}"


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child's session: also the threads and forks that the function has left behind."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def answer(descriptor: int, words: str) -> None:
    """The child: call the function, measure what it makes, say the result, and end with all that it has left."""
    theirs = Connection(descriptor, readable=False)

    def tell(told: _Told) -> None:
        theirs.send_bytes(msgspec.msgpack.encode(told))

    asked = msgspec.json.decode(words, type=Asked)
    begun = time.monotonic()
    try:
        made = _made(asked.function)
        tell(_Told("made"))
        report = dataloader_bench(
            made,
            batch_size=asked.batch_size,
            workers=asked.workers,
            step_ms=asked.step_ms,
            budget_s=max(1.0, asked.budget_s - (time.monotonic() - begun)),
            progress=lambda part, what: tell(_Told("progress", what, part)),
            epochs=asked.epochs,
        )
        tell(_Told("report", report=report))
    except UsageError as error:
        tell(_Told("wrong", str(error)))
    except BaseException as error:  # noqa: BLE001 — somebody else's code: whatever it raises is the answer
        tell(_Told("wrong", f"{asked.function}: {_words(error)}"))
    finally:
        with suppress(Exception):
            sys.stdout.flush()
        # Not as Python ends: a thread that the function has left would hold it up.
        os._exit(0)


def _made(text: str) -> Any:
    """What the function makes. Raises UsageError."""
    made = function(text)
    try:
        return made()
    except BaseException as error:
        raise UsageError(f"{text}() raised {_words(error)}") from error


def function(text: str) -> Callable[[], Any]:
    """The function that MODULE:FUNCTION names, imported from here or from the path. Raises UsageError."""
    module, _, name = checked_name(text).partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name, None)
    except BaseException as error:
        raise UsageError(f"{module} cannot be imported: {_words(error)}") from error
    if not callable(found):
        raise UsageError(f"{module} has no function {name}")
    made: Callable[[], Any] = found
    return made


def checked_name(text: str) -> str:
    """The name as it is. Raises UsageError for what cannot name a function of a module."""
    module, _, name = text.partition(":")
    if not module or not name.isidentifier():
        raise UsageError(f"{text!r} must be MODULE:FUNCTION, as in train:make_dataset")
    return text


def _words(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    said = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return clean_text(said)[:MOST_WORDS]
