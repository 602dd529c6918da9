"""The environment of a process as rows. Values that look like secrets are masked until the user asks for them."""

from __future__ import annotations

import re

from gputop.model.inspection import Environment
from gputop.model.secret_marks import MASK
from gputop.model.secrets import masked_text
from gputop.model.text import terminal_safe
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row
from gputop.paint.text import fit

_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|COOKIE|PRIVATE|DSN", re.IGNORECASE)
NAME_WIDTH = 32


def is_secret(name: str) -> bool:
    """Whether a variable's name says that its value is a secret."""
    return _SECRET.search(name) is not None


def shown_value(name: str, value: str, *, revealed: bool) -> str:
    """A value as it may be shown: secrets masked whole by their names, others where they look like one."""
    if revealed:
        return value
    return MASK if is_secret(name) and value else masked_text(value)


def environment_rows(
    environment: Environment, title: str, glyphs: Glyphs, width: int, *, revealed: bool, wanted: str = ""
) -> list[Row]:
    """A title and one row a variable; only those whose name or shown value holds ``wanted``."""
    head = Line().add(f" environment of {environment.identity.pid}  ", "title")
    rows = [head.add(fit(title, max(1, width - head.width - 1), glyphs.more), "dim").row(width)]
    if environment.reason:
        return [*rows, Line().add(f"  {terminal_safe(environment.reason)}", "level.yellow").row(width)]
    if environment.note:
        rows.append(Line().add(f"  {environment.note}", "level.info").row(width))
    above = len(rows)
    masked = 0
    names = min(NAME_WIDTH, width // 3)
    for name, value in environment.variables:
        text = shown_value(name, value, revealed=revealed)
        if wanted.lower() not in f"{name}={text}".lower():
            continue
        masked += text != value
        line = Line().add("  ").add(fit(name, names, glyphs.more), "key").add("  ")
        rows.append(line.add(fit(text, max(1, width - line.width - 1), glyphs.more), "text").row(width))
    if len(rows) == above:
        rows.append(Line().add("  no variable holds these letters", "dim").row(width))
    if masked:
        rows.insert(1, Line().add(f"  masked because they look like secrets: {masked}; v shows them", "dim").row(width))
    return rows
