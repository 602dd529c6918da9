"""Options that several commands share, and their evaluation."""

from __future__ import annotations

import os
import pwd
import re
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from gputop.config import Settings
from gputop.model.feature_table import ALERTS_OF_RUN, ALERTS_OF_SCREEN, resolve
from gputop.model.foreign_values import whole_number
from gputop.model.metrics import Unit
from gputop.model.quantity import count
from gputop.model.source import UsageError
from gputop.model.typed_number import typed_number
from gputop.output.messages import in_ascii, say
from gputop.system.safe_open import write_private

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from gputop.model.expression import Expression
    from gputop.model.redaction import Redactor
    from gputop.model.snapshot import Event, Snapshot
    from gputop.model.source import MarkedSource, Source
    from gputop.monitor import Frame
    from gputop.output.document import Document
    from gputop.recording.decode import RecordingFilter
    from gputop.recording.reader import Recording
    from gputop.session.session import RunWatcher

    S = TypeVar("S", Source, MarkedSource)
R = TypeVar("R")


def _no_trace() -> str:
    """Return the default of options for before and after the command."""
    from argparse import SUPPRESS  # a start without a word need not import it

    return SUPPRESS


def filterable(command: argparse.ArgumentParser) -> None:
    """Add the options that select processes."""
    add = partial(command.add_argument, default=_no_trace())
    text = 'show these processes only: "gpu:3 user:ml mem>10G verdict:starved name~train !state:D"'
    add("--filter", metavar="TERMS", help=text)
    text = "show the processes of these users only, separated by commas; without a name: yours"
    add(
        "-u", "--user", metavar="NAMES", action="list", nargs="?", const=str(os.getuid()), help=text
    )
    text = "show the processes with these ids only, separated by commas"
    add("-p", "--pid", metavar="PIDS", action="list", help=text)


def serving(command: argparse.ArgumentParser) -> None:
    """Add the option for inference servers."""
    text = (
        "metrics address of a vLLM, SGLang, Triton or TGI server on this machine, beside the GPUs' "
        "verdicts"
    )
    command.add_argument(
        "--server-url", metavar="URL", action="servers", default=_no_trace(), help=text
    )


def waiting(command: argparse.ArgumentParser) -> None:
    """Add the option for slow drivers."""
    text = "how long to wait for a slow driver (default 10s)"
    command.add_argument("--wait", metavar="TIME", default=_no_trace(), help=text)


def printable(command: argparse.ArgumentParser) -> None:
    """Add ``-1``, which prints the first snapshot."""
    text = "print one snapshot and end, as `gputop once` does"
    command.add_argument("-1", "--once", action="store_true", default=_no_trace(), help=text)


NO_DEMO = "`gputop demo` shows the simulated node, `diagnose demo` and `report demo` judge it"
"""Where it is asked for in vain."""


def recording_argument(command: argparse.ArgumentParser, name: str, text: str, **more: Any) -> None:
    """Add the argument of a recording that must exist, not the demo."""

    def checked(file: str) -> str:
        if file == "demo" and not os.path.exists(file):
            import argparse

            raise argparse.ArgumentTypeError(f"no recording of that name; {NO_DEMO}")
        return file

    command.add_argument(name, type=checked, help=text, **more)


def seconds(text: str, option: str) -> float:
    """Parse a duration in seconds. Raises UsageError naming the option."""
    return _more_than_nothing(
        text, "s", f"{option} must be a time such as 30s, 10m or 8h, not {text!r}"
    )


def size_bytes(text: str, option: str) -> int:
    """Parse a size with binary units. Raises UsageError naming the option."""
    objection = f"{option} must be a size such as 500M or 2G, not {text!r}"
    return int(_more_than_nothing(f"{text}B" if text[-1:].isdigit() else text, "bytes", objection))


def _more_than_nothing(text: str, unit: Unit, objection: str) -> float:
    try:
        number = typed_number(text.strip(), unit)
    except ValueError:
        number = 0.0
    if not number:
        raise UsageError(objection)
    return number


def redactor_of(settings: Settings) -> Redactor | None:
    """Return a new redactor if the user asked for one."""
    if not settings.redact:
        return None
    from gputop.model.redaction import Redactor

    return Redactor()


def redacted_report(report: R, settings: Settings) -> R:
    """Return a report without paths, users and hosts if asked for."""
    redactor = redactor_of(settings)
    if redactor is None:
        return report
    from msgspec import convert, to_builtins

    return convert(redactor.data(to_builtins(report)), type(report))


def redacted_source(source: S, redactor: Redactor | None) -> S:
    """Return the source, redacted if asked for."""
    if redactor is None:
        return source
    from gputop.sources.redacted import Redacted

    return Redacted(source, redactor)  # type: ignore[return-value]


def redacted_snapshot(snapshot: Snapshot, redactor: Redactor | None) -> Snapshot:
    """Return the snapshot, redacted if asked for."""
    return snapshot if redactor is None else redactor.snapshot(snapshot)


def recording_filter_of(args: argparse.Namespace, settings: Settings) -> RecordingFilter | None:
    """Return the filter for reading a recording: GPUs and redaction.

    The configuration file's GPUs do not apply: they belong to this machine.
    """
    redactor, gpus = redactor_of(settings), getattr(args, "gpus", None)
    return redactor if not gpus else OnlyGpus(gpus, redactor)


class OnlyGpus:
    """Recording filter that keeps some GPUs, by the first frame.

    Raises UsageError where the first frame has none of them.
    """

    def __init__(self, spec: str, next_filter: RecordingFilter | None = None) -> None:
        self._spec = spec
        self._next_filter = next_filter
        self._uuids: frozenset[str] | None = None

    def snapshot(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the chosen GPUs, after the next filter.

        Raises UsageError for an unknown GPU.
        """
        from gputop.sources.selection import choose, with_gpus

        if self._uuids is None:
            statics = [gpu.static for gpu in snapshot.gpus]
            self._uuids = frozenset(
                statics[i].uuid for i in choose(statics, self._spec, None, "this recording")
            )
        shown = with_gpus(snapshot, self._uuids)
        return shown if self._next_filter is None else self._next_filter.snapshot(shown)

    def text(self, text: str) -> str:
        return text if self._next_filter is None else self._next_filter.text(text)


def filter_of(args: argparse.Namespace, redactor: Redactor | None = None) -> Expression | None:
    """Combine ``--filter``, ``-u`` and ``-p``; None without any.

    With a ``redactor`` the users of ``-u`` are found by their numbers. Raises UsageError.
    """
    terms = getattr(args, "filter", None) or ""
    option_terms = _users(getattr(args, "user", None), redactor) + _pids(getattr(args, "pid", None))
    if not terms and not option_terms:
        return None
    from gputop.model.expression import ExpressionError
    from gputop.paint.process_filter import parse

    try:
        # By itself first, so that the position of a mistake is counted in what was typed.
        typed = parse(terms)
        return parse(" ".join((terms, *option_terms))) if option_terms else typed
    except ExpressionError as error:
        raise UsageError(f"--filter: {error}") from error


def _users(names: str | None, redactor: Redactor | None) -> list[str]:
    if names is None:
        return []
    users = [_user(name.strip()) for name in names.split(",")]
    if redactor is not None:
        users = [redactor.user(name) or name for name in users]
    return [f"user:{','.join(users)}"]


def _user(name: str) -> str:
    """Return a user's name, also for a number known to the machine."""
    if not re.fullmatch(r"[^\s,\"']+", name):
        raise UsageError(
            f"-u must name users, separated by commas, or stand alone for yours, not {name!r}"
        )
    uid = whole_number(name, 0, _LARGEST_UID) if name.isdigit() else None
    if uid is None:
        return name
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return name


_LARGEST_UID = (1 << 32) - 1


def _pids(numbers: str | None) -> list[str]:
    if numbers is None:
        return []
    pids = [number.strip() for number in numbers.split(",")]
    for number in pids:
        if not (number.isascii() and number.isdigit()):
            raise UsageError(f"-p must be process ids, separated by commas, not {number!r}")
    return [f"pid:{','.join(pids)}"]


def filtered(frame: Frame, expression: Expression) -> Frame:
    """Return the frame with matching processes and their children only."""
    from msgspec.structs import replace

    from gputop.paint.process_table import shown_rows
    from gputop.paint.view import View

    measured = frame.snapshot.processes
    view = View(tree="all", filter=expression)
    passing_ids = {id(shown.process) for shown in shown_rows(frame, view, measured)}
    processes = tuple(p for p in measured if id(p) in passing_ids)
    return replace(frame, snapshot=replace(frame.snapshot, processes=processes))


FILE_TEXT = "write there; .json, .md and .html choose the form"


def forms(
    command: argparse.ArgumentParser, markdown: str, page: str, file_text: str = FILE_TEXT
) -> None:
    """Add the options for a report's form and file."""
    forms = command.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="one JSON object")
    forms.add_argument("--markdown", action="store_true", help=markdown)
    forms.add_argument("--html", action="store_true", help=page)
    command.add_argument("-o", "--output", metavar="FILE", help=file_text)


def form_of(args: argparse.Namespace, pictures: Sequence[str] = ()) -> str:
    """Return ``json``, ``md``, ``html`` or ``text``, by option or suffix.

    Suffixes of ``pictures`` are forms, too. Raises UsageError for the suffix of another form.
    """
    forms = {"json": args.json, "html": args.html}
    if hasattr(args, "markdown"):
        forms["md"] = args.markdown
    for form, is_asked in forms.items():
        if is_asked:
            return form
    suffix = os.path.splitext(args.output or "")[1].lstrip(".").lower()
    if suffix in forms or f".{suffix}" in pictures:
        return suffix
    if suffix not in ("", "txt", "text", "log"):
        suffixes = ", ".join((*(f".{form}" for form in forms), ".txt", *pictures))
        raise UsageError(f"cannot make a .{suffix}: name one of {suffixes}")
    return "text"


def deliver(content: str | bytes, path: str | None) -> None:
    """Write to a private file or stdout.

    Raises UsageError where the file cannot be written.
    """
    if path is None:
        assert isinstance(content, str), "a picture has a path"
        sys.stdout.write(content)
        return
    try:
        write_private(path, content)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    say(f"wrote {path}")


def deliver_report(
    args: argparse.Namespace,
    settings: Settings,
    data: Callable[[], Any],
    document: Callable[[bool], Document],
    aside: str = "",
) -> None:
    """Write a report in the requested form.

    ``document`` gets True for a page, which has more room and ``aside`` in its last line. Raises UsageError.
    """
    from gputop.output.document import MOST_WIDTH
    from gputop.output.html_document import html
    from gputop.output.plain_document import plain
    from gputop.output.snapshot_data import json_text

    form = form_of(args)
    if form == "json":
        text = json_text(data())
    elif form == "html":
        text = html(document(True), aside)
    else:
        text = plain(document(False), MOST_WIDTH, is_ascii=prints_ascii(settings, args.output))
    deliver(text, args.output)


def prints_ascii(settings: Settings, path: str | None = None) -> bool:
    """Whether a text has ASCII characters only.

    The terminal does not matter for a file.
    """
    from gputop.paint.terminal_kind import choose

    env, encoding = (os.environ, sys.stdout.encoding) if path is None else ({}, "utf-8")
    return (
        choose(env, encoding, theme="auto", ascii_only=settings.ascii, no_color=True).glyphs.name
        == "ascii"
    )


def stdout_is_text(settings: Settings) -> None:
    """Apply ``--ascii`` to stdout, which carries text for people."""
    if prints_ascii(settings):
        in_ascii(sys.stdout)


def wait_of(args: argparse.Namespace) -> float:
    """Return seconds to wait for the first reading. Raises UsageError."""
    # With the driver's binding behind it, which a screen imports after the driver was asked.
    from gputop.sources.one_reading import WAIT_S

    text = getattr(args, "wait", None)
    return WAIT_S if text is None else seconds(text, "--wait")


NEAR_S = 1.0
"""A clock shows whole seconds: so far outside of a recording its first or last frame is meant."""


def moment_in(recording: Recording, text: str) -> float:
    """Return a time of a recording as people write it.

    A distance that reaches beyond the recording ends there, with a message. Raises UsageError, also for a moment that
    was not recorded.
    """
    try:
        t = recording.moment_anywhere(text)
    except ValueError as error:
        raise UsageError(f"--at: {error}") from error
    begin, end = recording.begin, recording.end
    if begin - NEAR_S <= t <= end + NEAR_S:
        return min(max(t, begin), end)
    form = "%Y-%m-%d %H:%M:%S"
    first, last = (time.strftime(form, time.localtime(at)) for at in (begin, end))
    where = f"--at {text}: not in the recording, which goes from {first} to {last}"
    if text.strip()[:1] not in ("-", "+"):
        raise UsageError(where)
    # The last ten minutes of a recording of five are those five.
    say(f"{where}: shown from its {'beginning' if t < begin else 'end'}")
    return begin if t < begin else end


def say_gaps(gaps: Sequence[Event]) -> None:
    """Print a message about gaps in a recording."""
    if gaps:
        say(f"{count(len(gaps), 'gap')} in the recording, the last: {gaps[-1].text}")


def say_damage(path: str, recording: Recording) -> None:
    """Print a message about damage of a recording that an output cannot show."""
    if recording.damage:
        say(f"{path}: parts of it are damaged: {recording.damage}")


def run_watcher(
    args: argparse.Namespace, settings: Settings, tell: Callable[[str], None] | None = None
) -> RunWatcher | None:
    """Return the alerts for a run, None without any.

    ``tell`` gets a line whenever an alert acts, from other threads. Raises ConfigError where it must not act.
    """
    watcher: RunWatcher | None = (
        resolve(ALERTS_OF_RUN)(args, settings, tell=tell) if settings.alert else None
    )
    return watcher


def screen_watcher(args: argparse.Namespace, settings: Settings) -> RunWatcher | None:
    """Return the alerts for the live screen; they act only if asked to.

    Raises UsageError and ConfigError.
    """
    wanted = settings.alert or getattr(args, "alerts", False)
    watcher: RunWatcher | None = resolve(ALERTS_OF_SCREEN)(args, settings) if wanted else None
    return watcher
