"""``--filter``, ``-u`` and ``-p`` of the command line: terms of the same language as the screen's filter."""

from __future__ import annotations

import pwd
import re
from typing import TYPE_CHECKING

from gputop.model.source import UsageError

if TYPE_CHECKING:
    import argparse

    from gputop.model.redaction import Redactor
    from gputop.monitor import Frame
    from gputop.paint.process_filter import Filter


def filter_of(args: argparse.Namespace, redactor: Redactor | None = None) -> Filter | None:
    """What ``--filter``, ``-u`` and ``-p`` ask for together, None where they ask for nothing. Raises UsageError.

    With a ``redactor`` the users of ``-u`` are looked for under their numbers.
    """
    terms = getattr(args, "filter", None) or ""
    more = _users(getattr(args, "user", None), redactor) + _pids(getattr(args, "pid", None))
    if not terms and not more:
        return None
    from gputop.paint.process_filter import FilterError, parse

    try:
        # By itself first, so that the position of a mistake is counted in what was typed.
        asked = parse(terms)
        return parse(" ".join((terms, *more))) if more else asked
    except FilterError as error:
        raise UsageError(f"--filter: {error}") from error


def _users(names: str | None, redactor: Redactor | None) -> list[str]:
    if names is None:
        return []
    wanted = [_user(name.strip()) for name in names.split(",")]
    if redactor is not None:
        wanted = [redactor.user(name) or name for name in wanted]
    return [f"user:{','.join(wanted)}"]


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
    wanted = [number.strip() for number in numbers.split(",")]
    for number in wanted:
        if not (number.isascii() and number.isdigit()):
            raise UsageError(f"-p must be process ids, separated by commas, not {number!r}")
    return [f"pid:{','.join(wanted)}"]


def filtered(frame: Frame, wanted: Filter) -> Frame:
    """The frame with those processes only that pass, or whose GPU process does."""
    from msgspec.structs import replace

    from gputop.paint.process_table import shown_rows
    from gputop.paint.view import View

    kept = {id(shown.process) for shown in shown_rows(frame, View(tree="all", filter=wanted))}
    processes = tuple(p for p in frame.snapshot.processes if id(p) in kept)
    return replace(frame, snapshot=replace(frame.snapshot, processes=processes))
