"""The exporter's part of ``gputop doctor``."""

from __future__ import annotations

import errno
import os
import pwd
import re
import socket
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gputop.config import Settings
from gputop.features.export.scrape_server import DEFAULT
from gputop.model.quantity import clean_text
from gputop.sources.activity.http_get import get
from gputop.sources.patient_reader import PatientReader
from gputop.sources.step_socket import STEPS_SOCKET

TIMEOUT_S = 0.5
MOST_EXPORTERS = 16
_MOST_COMMAND = 4096
_VALUED = ("--listen", "--textfile", "--tls-cert")
_UP = re.compile(r"^gputop_up ([01])$", re.MULTILINE)
_VERSION = re.compile(r'^gputop_build_info\{version="([^"]{1,40})"\}', re.MULTILINE)


def doctor_report(args: Any, settings: Settings) -> dict[str, Any]:
    """Return this node's exporters, the step socket, and their problems."""
    rows, steps = exporters(DEFAULT), step_socket()
    problems = [row["problem"] for row in (*rows, steps) if row["problem"] is not None]
    return {"exporters": rows, "step_socket": steps, "problems": problems}


def exporters(usual: str, proc: str = "/proc") -> list[dict[str, Any]]:
    """Return this node's exporters, and the one at the ``usual`` address."""
    rows = [_row(pid, _owner(Path(proc, str(pid))), options, usual) for pid, options in _running(proc)]
    if all(row["answers"] is None for row in rows):
        # In another PID namespace, or a process of a user whose processes are hidden from us.
        row = _row(None, None, {}, usual)
        rows += [row] if row["answers"] else []
    return rows


def _row(pid: int | None, user: str | None, options: Mapping[str, str], usual: str) -> dict[str, Any]:
    listen = options.get("--listen") or (None if "--textfile" in options else usual)
    by_tls = "--tls-cert" in options
    asked = listen is not None and not by_tls and _is_usual(listen, usual)
    return {
        "pid": pid, "user": user, "listen": listen and clean_text(listen)[:80], "tls": by_tls,
        "textfile": "--textfile" in options, "answers": None, "up": None, "version": None, "problem": None,
        **(_page_status(usual) if asked else {}),
    }  # fmt: skip


def _running(proc: str) -> list[tuple[int, dict[str, str]]]:
    """The pid of each exporter with the options that say where it is."""
    patient = PatientReader()
    found: list[tuple[int, dict[str, str]]] = []
    for pid in sorted(int(name) for name in os.listdir(proc) if name.isdecimal()):
        read = patient.read(f"{proc}/{pid}/cmdline") or b""
        words = _after_gputop(read[:_MOST_COMMAND].decode("utf-8", "replace").split("\0"))
        if "export" in words and not {"--once", "-1"} & {*words} and len(found) < MOST_EXPORTERS:
            found.append((pid, _options(words)))
    patient.close()
    return found


def _after_gputop(words: Sequence[str]) -> Sequence[str]:
    """The words after ``gputop`` or ``python -m gputop``; none for another program."""
    for position, word in enumerate(words[:4]):
        if word.rpartition("/")[2] == "gputop" and (position == 0 or "python" in words[0]):
            return words[position + 1 :]
    return ()


def _options(words: Sequence[str]) -> dict[str, str]:
    options = {}
    for position, word in enumerate(words):
        name, sign, value = word.partition("=")
        if name in _VALUED:
            options[name] = value if sign else "".join(words[position + 1 : position + 2])
    return options


def _is_usual(listen: str, usual: str) -> bool:
    """Whether an exporter that listens there answers at the usual address of this machine."""
    host, _, port = listen.rpartition(":")
    usual_host, _, usual_port = usual.rpartition(":")
    return port == usual_port and host in ("", "0.0.0.0", "[::]", "localhost", usual_host)


def _page_status(usual: str) -> dict[str, Any]:
    """State and version of the exporter at the usual address, by its page."""
    try:
        text = get(f"http://{usual}/metrics", TIMEOUT_S)
        reason = "something else answers there"
    except (OSError, ValueError) as error:
        text = ""
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or "does not answer"
    version, up = _VERSION.search(text), _UP.search(text)
    if version is None:
        return {"answers": False, "problem": f"{usual}: {clean_text(reason)}"}
    return {"answers": True, "version": version[1], "up": None if up is None else up[1] == "1"}


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
