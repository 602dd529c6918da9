"""Saves one setting in the configuration file.

Its statement is replaced or added, every other byte stays.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from gputop.config import ConfigError


def save_setting(path: str, name: str, statement: str) -> None:
    """Put a line of TOML such as ``theme = "light"`` into a file.

    Creates a missing file. Raises ConfigError for a link, somebody else's file, and one that is not TOML.
    """
    before = _own_text(path)
    after = with_setting(before or "", name, statement)
    if after == before:
        return
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        descriptor, made = tempfile.mkstemp(dir=folder, prefix=".gputop-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(after)
                os.fchmod(
                    file.fileno(), 0o600 if before is None else stat.S_IMODE(os.lstat(path).st_mode)
                )
            os.replace(made, path)
        except OSError:
            with suppress(OSError):
                os.unlink(made)
            raise
    except OSError as error:
        raise ConfigError(f"not saved: {path}: {error.strerror or error}") from error


def _own_text(path: str) -> str | None:
    """Return the text of this user's file, None if missing."""
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError(f"not saved: {path} is a link or no file: change it yourself")
        if found.st_uid != os.geteuid():
            raise ConfigError(f"not saved: {path} belongs to somebody else")
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ConfigError(f"not saved: {path} is not UTF-8") from error
    except OSError as error:
        raise ConfigError(f"not saved: {path}: {error.strerror or error}") from error


def with_setting(text: str, name: str, statement: str) -> str:
    """Return a configuration with one top-level setting.

    Raises ConfigError for text that is not TOML.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    new = statement.rstrip("\n")
    kept: list[str] = []
    is_replaced = False
    end = 0
    for part, values in _statements(text):
        end += len(part)
        if name in values:
            is_replaced = True
            kept.append(new + _comment(part) + newline)
        else:
            kept.append(part)
    top = "".join(kept)
    if not is_replaced:
        top += ("" if not top or top.endswith("\n") else newline) + new + newline
    return top + text[end:]


def _statements(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each statement above the first table with its values."""
    part = ""
    for line in text.splitlines(keepends=True):
        if not part and line.lstrip().startswith("["):
            return
        part += line
        if (values := _parsed(part)) is not None:
            yield part, values
            part = ""
    if part:
        raise ConfigError("not saved: the configuration has a mistake, see `gputop config --check`")


def _parsed(text: str) -> dict[str, Any] | None:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        values: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
    return values


def _comment(part: str) -> str:
    """Return the comment after a one-line statement, with its spaces."""
    line = part.rstrip("\r\n")
    for place, char in enumerate(line):
        if char == "#" and "\n" not in line and _parsed(line[:place]) == _parsed(line):
            return line[len(line[:place].rstrip()) :]
    return ""
