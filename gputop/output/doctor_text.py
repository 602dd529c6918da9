"""The report of ``gputop doctor`` for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gputop.model.extras import install
from gputop.model.quantity import numbers
from gputop.model.sm import COUNTERS_DENIED
from gputop.output.document import labelled, text_lines


def _alike(gpus: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """GPUs that differ only in number and UUID, grouped, so that each thing is reported once."""
    groups: list[list[Mapping[str, Any]]] = []
    for gpu in gpus:
        own = {key: value for key, value in gpu.items() if key not in ("index", "uuid")}
        for group in groups:
            if {key: value for key, value in group[0].items() if key not in ("index", "uuid")} == own:
                group.append(gpu)
                break
        else:
            groups.append([gpu])
    return groups


def doctor_text(report: Mapping[str, Any], width: int = 100) -> str:
    """GPUs with their sources, the machine, and last what is wrong and how to fix it."""
    lines: list[str] = []
    driver = report["driver"] or "no driver"
    lines.append(
        f"{report['host']}   driver {driver}   NVML {report.get('nvml') or 'n/a'}   {report.get('library') or ''}"
    )
    for alike in _alike(report["gpus"]):
        gpu = alike[0]
        lines.append("")
        if len(alike) > 1:
            which = numbers(one["index"] for one in alike)
            lines.append(f"GPUs {which}   {len(alike)} × {gpu['name']}   {gpu['architecture'] or ''}")
            lines += [f"  GPU {one['index']:<3} {one['uuid']}" for one in alike]
        else:
            lines.append(f"GPU {gpu['index']}   {gpu['name']}   {gpu['architecture'] or ''}   {gpu['uuid']}")
        if gpu["lost_reason"]:
            lines.append(f"  LOST: {gpu['lost_reason']}")
        for row in gpu["rungs"]:
            used = " (used)" if row["rung"] == gpu["sm_source"] else ""
            lines += labelled(f"  {'yes' if row['ok'] else 'no ':<4}{row['rung']:<14}{used} ", row["reason"], width)
            if row["fix"]:
                lines += labelled(" " * 20 + "→ ", row["fix"], width)
    if any(row["reason"] == COUNTERS_DENIED for gpu in report["gpus"] for row in gpu["rungs"]):
        # Commands are there to be copied: each stays on one line.
        advice = (f"  {line}" for line in report["counters"]["advice"])
        lines += ["", f"counters     SM not measured: {COUNTERS_DENIED}.", *advice]
    kernel, permissions, terminal = report["kernel"], report["permissions"], report["terminal"]
    present = {True: "yes", False: "no", None: "n/a"}
    lines += [
        "",
        f"kernel       {kernel['release']}   schedstat {present[kernel['schedstat']]}   PSI {present[kernel['psi']]}"
        f"   wait channel {present[kernel['wait_channel']]}",
        f"processes    PID namespace {report['pid_namespace']}   root {present[permissions['root']]}"
        f"   other users' processes {present[permissions['other_users_processes']]}",
        f"terminal     TERM {terminal.get('term')}   colours {terminal.get('colour_depth')}"
        f"   encoding {terminal.get('encoding')}",
    ]
    if terminal.get("tmux") and terminal.get("colour_depth") != "truecolor":
        hint = "for 24-bit colour: set -as terminal-features ',*:RGB' in tmux.conf and export COLORTERM=truecolor"
        lines += labelled("             → ", hint, width)
    if (alerts := report.get("alerts")) is not None:
        who = "nobody" if alerts["fired_by_pid"] is None else f"pid {alerts['fired_by_pid']}"
        names = ", ".join(alert["name"] for alert in alerts["configured"])
        lines += labelled("alerts       ", f"{names}   fired by {who}", width)
    lines += _fleet_lines(report, width)
    versions = "   ".join(f"{name} {version or 'not installed'}" for name, version in report["versions"].items())
    lines += labelled("versions     ", versions, width)
    lines.append("")
    if report["problems"]:
        lines.append("problems")
        for problem in report["problems"]:
            lines += labelled("  - ", problem, width)
    else:
        lines.append("no problems")
    return text_lines(lines)


def _fleet_lines(report: Mapping[str, Any], width: int) -> list[str]:
    """Exporters, the socket that hears steps, optional parts, and files that hold tokens."""
    lines = []
    if (exporters := report.get("exporters")) is not None:
        for row in exporters or (None,):
            lines += labelled("exporter     ", _exporter(row), width)
        socket = report["step_socket"]
        heard = (
            f"an exporter receives every user's steps at {socket['path']}, mode {socket['mode']}"
            if socket["listens"]
            else "no exporter receives the steps of every user's jobs"
        )
        lines += labelled("job steps    ", heard, width)
    if (extras := report.get("extras")) is not None:
        installed = [name for name, row in extras.items() if row["version"] is not None]
        missing = [f"{name} ({row['for']})" for name, row in extras.items() if row["version"] is None]
        lines += labelled("extras       ", ", ".join(installed) or "none installed", width)
        if missing:
            lines += labelled("             not installed: ", ", ".join(missing), width)
            lines += labelled("             → ", install("NAME"), width)
    for row in report.get("private_files", ()):
        lines += labelled("token file   ", f"{row['what']}: {row['path']}   mode {row['mode'] or 'n/a'}", width)
    return lines


def _exporter(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "none runs here, as far as this user can see"
    who = "of another PID namespace or a hidden user" if row["pid"] is None else f"pid {row['pid']} ({row['user']})"
    where = [f"at {row['listen']}"] if row["listen"] else []
    where += ["a text file"] if row["textfile"] else []
    state = {True: "its values are current", False: "its values are late, or there is no GPU", None: ""}
    said = "does not answer" if row["answers"] is False else state[row["up"]]
    if row["answers"] is None and row["listen"]:
        said = "served by TLS: not asked" if row["tls"] else "no address of this machine: not asked"
    return "   ".join(part for part in (who, " and ".join(where), said) if part)
