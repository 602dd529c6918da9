"""The addresses of a ``notify_file``: one a line, ``#`` begins a comment. They carry tokens: for the owner alone."""

from __future__ import annotations

import os
import stat

MOST_BYTES = 1 << 16


class AddressError(Exception):
    """Why the file is not used, in one line that quotes none of it."""


def addresses(path: str) -> list[str]:
    """The addresses that a file holds. Raises AddressError."""
    try:
        file = os.open(os.path.expanduser(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise AddressError(f"notify_file {path}: {error.strerror}") from None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o077:
            raise AddressError(f"notify_file {path} must be a file for its owner alone: chmod 600 {path}")
        text = os.read(file, MOST_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        raise AddressError(f"notify_file {path} cannot be read as text") from None
    finally:
        os.close(file)
    found = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not found:
        raise AddressError(f"notify_file {path} holds no address")
    return found
