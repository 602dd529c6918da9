"""The report of ``gputop doctor`` for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gputop.model.extras import install
from gputop.model.quantity import NOT_MEASURED, number, which_gpus
from gputop.model.sm import COUNTERS_DENIED, MEASURED, SM_SOURCES
from gputop.output.document import Block, Code, Document, Entries, Heading, Items, part
from gputop.output.plain_document import plain

_SHOWN = ("name", "architecture", "sm_source", "lost_reason")


def _alike(gpus: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Group GPUs with the same facts and sources.

    Numbers that change every second do not separate them.
    """
    groups: dict[tuple[object, ...], list[Mapping[str, Any]]] = {}
    for gpu in gpus:
        sources = tuple(
            (row["rung"], row["ok"], row["ok"] or row["reason"], row["fix"]) for row in gpu["rungs"]
        )
        groups.setdefault((*(gpu[key] for key in _SHOWN), sources), []).append(gpu)
    return list(groups.values())


_PRESENT = {True: "yes", False: "no", None: "n/a"}


def doctor_text(report: Mapping[str, Any]) -> str:
    """The report as text for a terminal."""
    return plain(doctor_document(report))


def doctor_document(report: Mapping[str, Any]) -> Document:
    """GPUs with their sources, the machine, and all problems."""
    machine = (report["host"], f"driver {report['driver'] or 'none'}", f"NVML {report.get('nvml') or NOT_MEASURED}",
               report.get("library") or "")  # fmt: skip
    blocks = [block for alike in _alike(report["gpus"]) for block in _gpus(alike)]
    if any(row["reason"] == COUNTERS_DENIED for gpu in report["gpus"] for row in gpu["rungs"]):
        denied = Items((f"SM not measured: {COUNTERS_DENIED}.",))
        blocks += part("counters", denied, Code(tuple(report["counters"]["advice"])))
    blocks += part("machine", Entries(("", ""), tuple(_machine(report))))
    problems = Items(tuple(report["problems"]) or ("none",))
    return Document(
        "gputop doctor",
        (*blocks, *part("problems", problems)),
        ("   ".join(filter(None, machine)),),
    )


def _gpus(alike: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    """GPUs of one kind and their source of SM activity.

    Where nothing measures it, all sources with the reason and the fix.
    """
    gpu = alike[0]
    kind = f"{gpu['name']}   {gpu['architecture'] or ''}".strip()
    if len(alike) > 1:
        yield Heading(f"{which_gpus(member['index'] for member in alike)}   {len(alike)} × {kind}")
    else:
        yield Heading(f"GPU {gpu['index']}   {kind}   {gpu['uuid']}")
    if gpu["lost_reason"]:
        yield Items((f"LOST: {gpu['lost_reason']}",))
    words = {_health_words(member["health"]) for member in alike}
    yield Items(tuple(sorted(words)))
    if gpu["sm_source"] in MEASURED:
        reasons = {row["rung"]: row["reason"] for row in gpu["rungs"] if row["ok"]}
        source = SM_SOURCES[gpu["sm_source"]].label
        others = [name for name in reasons if name in MEASURED and name != gpu["sm_source"]]
        also = f"; {', '.join(others)} could, too" if others else ""
        yield Items(
            (f"SM activity from {source}: {reasons.get(gpu['sm_source'], 'measured')}{also}",)
        )
        return
    rows = [
        (f"{'yes' if row['ok'] else 'no':<3} {row['rung']}", row["reason"], row["fix"] or "")
        for row in gpu["rungs"]
        if row["rung"] != "none"
    ]
    yield Entries(("SM activity from", "", "fix"), tuple(rows))


def _health_words(health: Mapping[str, Any]) -> str:
    """Return a GPU's health in a line; what is not told is n/a."""
    links = "n/a"
    if health["nvlink_active"] is not None:
        links = f"{health['nvlink_active']} of {health['nvlink_count']} up"
    rate = number(health["ecc_corrected_per_s"])
    modes = f"compute mode {health['compute_mode'] or 'n/a'}   CUDA {health['cuda'] or 'n/a'}"
    return f"recovery action {health['recovery'] or 'n/a'}   NVLinks {links}   corrected ECC errors {rate}/s   {modes}"


def _machine(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Kernel, permissions, terminal, extras and versions."""
    kernel, permissions, terminal = report["kernel"], report["permissions"], report["terminal"]
    yield (
        "kernel",
        (
            f"{kernel['release']}   schedstat {_PRESENT[kernel['schedstat']]}   PSI {_PRESENT[kernel['psi']]}"
            f"   wait channel {_PRESENT[kernel['wait_channel']]}"
        ),
    )
    yield (
        "processes",
        (
            f"PID namespace {report['pid_namespace']}   root {_PRESENT[permissions['root']]}"
            f"   other users' processes {_PRESENT[permissions['other_users_processes']]}"
        ),
    )
    yield (
        "terminal",
        (
            f"TERM {terminal.get('term')}   colours {terminal.get('colour_depth')}"
            f"   encoding {terminal.get('encoding')}"
        ),
    )
    if terminal.get("tmux") and terminal.get("colour_depth") != "truecolor":
        yield (
            "",
            "→ for 24-bit colour: set -as terminal-features ',*:RGB' in tmux.conf and export COLORTERM=truecolor",
        )
    if (extras := report.get("extras")) is not None:
        yield (
            "extras",
            ", ".join(name for name, row in extras.items() if row["version"] is not None)
            or "none installed",
        )
        if missing := [
            f"{name} ({row['for']})" for name, row in extras.items() if row["version"] is None
        ]:
            yield "", f"not installed: {', '.join(missing)}"
            yield "", f"→ {install('NAME')}"
    yield (
        "versions",
        "   ".join(
            f"{name} {version or 'not installed'}" for name, version in report["versions"].items()
        ),
    )
