"""Directories in which a user's running gputop find each other."""

from __future__ import annotations

import os
import stat
from contextlib import suppress


def runtime_directories() -> list[str]:
    """Return the directories of this user's sockets, the usual one first.

    Only their user can enter them. A job often lacks the XDG_RUNTIME_DIR of the screen, so there are two places.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    private = f"/tmp/gputop-{os.geteuid()}"
    return (
        [os.path.join(runtime, "gputop"), private]
        if runtime and os.path.isabs(runtime)
        else [private]
    )


def login_directories() -> list[str]:
    """Return ``runtime_directories``, with a login session's first.

    Also where this process does not have its XDG_RUNTIME_DIR.
    """
    directories, login = runtime_directories(), f"/run/user/{os.geteuid()}"
    inside = os.path.join(login, "gputop")
    return (
        [inside, *directories]
        if inside not in directories and os.path.isdir(login)
        else directories
    )


def prepare(directory: str) -> None:
    """Create a directory, or check that only this user can enter it.

    Raises OSError.
    """
    with suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    if not is_ours(directory):
        raise PermissionError(1, "not a directory of this user alone")


def is_ours(directory: str) -> bool:
    """Whether only this user can enter a directory; links do not count."""
    try:
        status = os.lstat(directory)
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not status.st_mode & 0o077
    )
