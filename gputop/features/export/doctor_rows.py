"""The exporter's part of ``gputop doctor``."""

from __future__ import annotations

import errno
import os
import pwd
import socket
import stat
from pathlib import Path
from typing import Any

from gputop.config import Settings
from gputop.model.quantity import clean_text
from gputop.sources.step_socket import STEPS_SOCKET


def doctor_report(args: Any, settings: Settings) -> dict[str, Any]:
    """Return the step socket and its problem."""
    steps = step_socket()
    return {"step_socket": steps, "problems": [steps["problem"]] if steps["problem"] is not None else []}


def step_socket(path: str = STEPS_SOCKET) -> dict[str, Any]:
    """Return who listens on the socket of all users' steps, and its mode."""
    report: dict[str, Any] = {"path": path, "mode": None, "owner": None, "listens": False, "problem": None}
    try:
        status = os.lstat(path)
    except OSError:
        return report
    report["mode"], report["owner"] = f"{stat.S_IMODE(status.st_mode):04o}", _owner(Path(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        code = probe.connect_ex(path)
    report["listens"] = code == 0
    if not stat.S_ISSOCK(status.st_mode):
        report["problem"] = f"{path} is not a socket: remove it, and start gputop export again"
    elif code == errno.ECONNREFUSED:
        report["problem"] = f"nobody listens on {path} any more: start gputop export again"
    elif code in (errno.EACCES, errno.EPERM):
        report["problem"] = f"this user may not write to {path}: its steps are not heard"
    elif code:
        report["problem"] = f"{path}: {os.strerror(code)}"
    elif status.st_mode & 0o222 != 0o222:
        report["problem"] = f"not every user may write to {path}: chmod 666 it, or start gputop export again"
    return report


def _owner(path: Path) -> str | None:
    try:
        uid = path.stat().st_uid
    except OSError:
        return None
    try:
        return clean_text(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return str(uid)
