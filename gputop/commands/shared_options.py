"""What several commands share: GPUs of a recording, redaction, filters, alerts, and where a report goes."""

from __future__ import annotations

import argparse
import os
import pwd
import re
import sys
import time
from typing import TYPE_CHECKING, TypeVar

from gputop.commands.argument_parser import seconds
from gputop.config import Settings
from gputop.model.feature_table import FEATURES, resolve
from gputop.model.source import UsageError
from gputop.output.messages import in_ascii, say
from gputop.output.private_file import write_private

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputop.model.expression import Expression
    from gputop.model.redaction import Redactor
    from gputop.model.snapshot import Snapshot
    from gputop.model.source import MarkedSource, Source
    from gputop.monitor import Frame
    from gputop.recording.decode import RecordingFilter
    from gputop.recording.reader import Recording
    from gputop.session.session import RunWatcher

    S = TypeVar("S", Source, MarkedSource)
R = TypeVar("R")


# ``--redact`` of the command line: one redactor for everything that a command shows or writes.


def redactor_of(settings: Settings) -> Redactor | None:
    """A new redactor where the user asked for one."""
    if not settings.redact:
        return None
    from gputop.model.redaction import Redactor

    return Redactor()


def redacted_report(report: R, settings: Settings) -> R:
    """A report, a struct, without paths, users and hosts in its texts, where the user asked for that."""
    redactor = redactor_of(settings)
    if redactor is None:
        return report
    from msgspec import convert, to_builtins

    return convert(redactor.data(to_builtins(report)), type(report))


def redacted_source(source: S, redactor: Redactor | None) -> S:
    """The source, redacted where that was asked for."""
    if redactor is None:
        return source
    from gputop.sources.redacted import Redacted

    return Redacted(source, redactor)  # type: ignore[return-value]


def redacted_snapshot(snapshot: Snapshot, redactor: Redactor | None) -> Snapshot:
    """The snapshot, redacted where that was asked for."""
    return snapshot if redactor is None else redactor.snapshot(snapshot)


def recording_filter_of(args: argparse.Namespace, settings: Settings) -> RecordingFilter | None:
    """The filter for reading a recording: the GPUs of the command line, and the redaction that was asked for.

    The configuration file's GPUs are those of this machine, not of the recording.
    """
    redactor, gpus = redactor_of(settings), getattr(args, "gpus", None)
    return redactor if not gpus else OnlyGpus(gpus, redactor)


class OnlyGpus:
    """A recording filter that keeps some of the GPUs. Which ones is found in the first frame; raises UsageError where
    it has none."""

    def __init__(self, spec: str, next_filter: RecordingFilter | None = None) -> None:
        self._spec = spec
        self._next_filter = next_filter
        self._uuids: frozenset[str] | None = None

    def snapshot(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the chosen GPUs, passed through the next filter. Raises UsageError for an unknown GPU."""
        from gputop.sources.selection import choose, with_gpus

        if self._uuids is None:
            statics = [gpu.static for gpu in snapshot.gpus]
            self._uuids = frozenset(statics[i].uuid for i in choose(statics, self._spec, None, "this recording"))
        shown = with_gpus(snapshot, self._uuids)
        return shown if self._next_filter is None else self._next_filter.snapshot(shown)

    def text(self, text: str) -> str:
        return text if self._next_filter is None else self._next_filter.text(text)


# ``--filter``, ``-u`` and ``-p`` of the command line: terms of the same language as the screen's filter.


def filter_of(args: argparse.Namespace, redactor: Redactor | None = None) -> Expression | None:
    """What ``--filter``, ``-u`` and ``-p`` ask for together, None where they ask for nothing. Raises UsageError.

    With a ``redactor`` the users of ``-u`` are looked for under their numbers.
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
    """A user's name; a number is that user's name where the machine knows it."""
    if not re.fullmatch(r"[^\s,\"']+", name):
        raise UsageError(f"-u must name users, separated by commas, or stand alone for yours, not {name!r}")
    if name.isascii() and name.isdigit():
        try:
            return pwd.getpwuid(int(name)).pw_name
        except (KeyError, OverflowError):
            return name
    return name


def _pids(numbers: str | None) -> list[str]:
    if numbers is None:
        return []
    pids = [number.strip() for number in numbers.split(",")]
    for number in pids:
        if not (number.isascii() and number.isdigit()):
            raise UsageError(f"-p must be process ids, separated by commas, not {number!r}")
    return [f"pid:{','.join(pids)}"]


def filtered(frame: Frame, expression: Expression) -> Frame:
    """The frame with those processes only that pass, or whose GPU process does."""
    from msgspec.structs import replace

    from gputop.paint.process_table import shown_rows
    from gputop.paint.view import View

    passing_ids = {id(shown.process) for shown in shown_rows(frame, View(tree="all", filter=expression))}
    processes = tuple(p for p in frame.snapshot.processes if id(p) in passing_ids)
    return replace(frame, snapshot=replace(frame.snapshot, processes=processes))


# Where a report goes and in which form: stdout, or a private file whose suffix decides.


def form_of(args: argparse.Namespace) -> str:
    """``json``, ``md``, ``html`` or ``text``: as asked for, else by the suffix of the file.

    Raises UsageError for the suffix of another form.
    """
    forms = {"json": args.json, "html": args.html}
    if hasattr(args, "markdown"):
        forms["md"] = args.markdown
    for form, is_asked in forms.items():
        if is_asked:
            return form
    suffix = os.path.splitext(args.output or "")[1].lstrip(".").lower()
    if suffix in forms:
        return suffix
    if suffix not in ("", "txt", "text", "log"):
        suffixes = ", ".join(f".{form}" for form in (*forms, "txt"))
        raise UsageError(f"cannot make a .{suffix}: name one of {suffixes}")
    return "text"


def deliver(text: str, path: str | None) -> None:
    """Write to a file that only the user can read, or to stdout. Raises UsageError where the file cannot be written."""
    if path is None:
        sys.stdout.write(text)
        return
    try:
        write_private(path, text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    say(f"wrote {path}")


def prints_ascii(settings: Settings, path: str | None = None) -> bool:
    """Whether a text has ASCII characters only. A file is not drawn for the terminal that it is written from."""
    from gputop.paint.glyphs import choose

    env, encoding = (os.environ, sys.stdout.encoding) if path is None else ({}, "utf-8")
    return choose(env, encoding, theme="auto", ascii_only=settings.ascii, no_color=True).glyphs.name == "ascii"


def stdout_is_text(settings: Settings) -> None:
    """Stdout carries text for people from here on, and not data, whose names stay as they are: ``--ascii`` holds."""
    if prints_ascii(settings):
        in_ascii(sys.stdout)


def wait_of(args: argparse.Namespace) -> float:
    """How long to wait for the first complete reading, in seconds. Raises UsageError."""
    # With the driver's binding behind it, which a screen imports after the driver was asked.
    from gputop.sources.local import WAIT_S

    text = getattr(args, "wait", None)
    return WAIT_S if text is None else seconds(text, "--wait")


NEAR_S = 1.0
"""A clock shows whole seconds: so far outside of a recording its first or last frame is meant."""


def moment_in(recording: Recording, text: str) -> float:
    """A time of a recording as people write it; a distance that reaches beyond it is said, and ends there.

    Raises UsageError, also for a moment that was not recorded.
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


# What looks at every frame of a run besides: alerts.


def run_watcher(
    args: argparse.Namespace, settings: Settings, tell: Callable[[str], None] | None = None
) -> RunWatcher | None:
    """What the settings ask to look at every frame of a run, None where nothing.

    ``tell`` is given a line whenever it acts, from other threads. Raises ConfigError where it must not act.
    """
    if not settings.alert:
        return None
    (path,) = (feature.watcher for feature in FEATURES.values() if feature.watcher is not None)
    watcher: RunWatcher | None = resolve(path)(args, settings, tell=tell)
    return watcher


def screen_watcher(args: argparse.Namespace, settings: Settings) -> RunWatcher | None:
    """The same for the live screen, where it acts only if asked to. Raises UsageError and ConfigError."""
    if not settings.alert and not getattr(args, "alerts", False):
        return None
    (path,) = (feature.screen_watcher for feature in FEATURES.values() if feature.screen_watcher is not None)
    watcher: RunWatcher | None = resolve(path)(args, settings)
    return watcher
