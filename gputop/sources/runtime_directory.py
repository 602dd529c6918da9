"""Where a user's running gputops find each other on this machine: directories that only their user can enter."""

from __future__ import annotations

import os
import stat
from contextlib import suppress


def runtime_directories() -> list[str]:
    """The usual one first. A job often lacks the XDG_RUNTIME_DIR of the screen, so there are two places."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    private = f"/tmp/gputop-{os.geteuid()}"
    return [os.path.join(runtime, "gputop"), private] if runtime and os.path.isabs(runtime) else [private]


def login_directories() -> list[str]:
    """``runtime_directories`` and that of a login session, even if this process was not told of it."""
    found, login = runtime_directories(), f"/run/user/{os.geteuid()}"
    inside = os.path.join(login, "gputop")
    return [inside, *found] if inside not in found and os.path.isdir(login) else found


def prepare(directory: str) -> None:
    """Make the directory, or check that only this user can enter it. Raises OSError."""
    with suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    if not is_ours(directory):
        raise PermissionError(1, "not a directory of this user alone")


def is_ours(directory: str) -> bool:
    """Whether a directory belongs to this user and nobody else can enter it; a link is not followed."""
    try:
        status = os.lstat(directory)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
