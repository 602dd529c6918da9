"""Where a report goes and in which form: stdout, or a private file whose suffix decides."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gputop.model.source import UsageError
from gputop.output.messages import say
from gputop.output.private_file import write_private


def form_of(args: argparse.Namespace) -> str:
    """``json``, ``md``, ``html`` or ``text``: as asked for, else by the suffix of the file.

    Raises UsageError for the suffix of another form.
    """
    asked = {"json": args.json, "html": args.html}
    if hasattr(args, "markdown"):
        asked["md"] = args.markdown
    for form, wanted in asked.items():
        if wanted:
            return form
    suffix = Path(args.output or "").suffix.lstrip(".").lower()
    if suffix in asked:
        return suffix
    if suffix not in ("", "txt", "text", "log"):
        known = ", ".join(f".{form}" for form in (*asked, "txt"))
        raise UsageError(f"cannot make a .{suffix}: name one of {known}")
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
