"""A deep look at a process as rows: its environment with secrets hidden, its stacks, commands that look deeper."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from gputop.model.clean_text import terminal_safe, wrapped
from gputop.model.inspection import (
    DeepLook,
    Environment,
    InspectedProcess,
    ThreadSample,
    ThreadStack,
)
from gputop.model.quantity import count
from gputop.model.secret_marks import MASK
from gputop.model.secrets import masked_text
from gputop.paint.cells import fit, folded
from gputop.paint.line import Line, Row, heading, text_row

_SECRET = re.compile(
    r"TOKEN|KEY|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|COOKIE|PRIVATE|DSN", re.IGNORECASE
)
NAME_WIDTH = 32


def is_secret(name: str) -> bool:
    """Whether a variable's name says that its value is a secret."""
    return _SECRET.search(name) is not None


def shown_value(name: str, value: str, *, revealed: bool) -> str:
    """Return a value with its secrets masked.

    Whole by its name, else in part where it looks like a secret.
    """
    if revealed:
        return value
    return MASK if is_secret(name) and value else masked_text(value)


def environment_rows(
    environment: Environment, title: str, width: int, *, revealed: bool, search: str = ""
) -> list[Row]:
    """Return a title and one row for each variable.

    Only those whose name or shown value holds ``search``.
    """
    head = Line().add(f" environment of {environment.identity.pid}  ", "title")
    rows = [head.add(fit(title, max(1, width - head.width - 1)), "dim").row(width)]
    if environment.reason:
        return [*rows, text_row(f"  {terminal_safe(environment.reason)}", width, "level.yellow")]
    above = len(rows)
    masked = 0
    names = min(NAME_WIDTH, width // 3)
    for name, value in environment.variables:
        text = shown_value(name, value, revealed=revealed)
        if search.lower() not in f"{name}={text}".lower():
            continue
        masked += text != value
        line = Line().add("  ").add(fit(name, names), "key").add("  ")
        rows.append(line.fill(text, width).row(width))
    if len(rows) == above:
        rows.append(text_row("  no variable holds these letters", width, "dim"))
    if masked:
        rows.insert(
            1,
            text_row(
                f"  masked because they look like secrets: {masked}; v shows them", width, "dim"
            ),
        )
    return rows


def recipes(
    pid: int, argv: Sequence[str], folder: str | None
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return commands that profile a process: purpose and lines of each.

    py-spy on the running process, Nsight Systems on a new run, torch.profiler for its training loop. Non-printing
    characters are dropped: an escape sequence in a command line could end a paste and start to run.
    """
    command = shlex.join(argv) if argv and all(word.isprintable() for word in argv) else "COMMAND"
    where = (f"cd {shlex.quote(folder)}",) if folder and folder.isprintable() else ()
    return (
        (
            "where the Python code spends its time, as a flame graph; the job goes on",
            (f"py-spy record --output profile-{pid}.svg --duration 30 --subprocesses --pid {pid}",),
        ),
        (
            "kernels, copies and the CPU on one time axis; restarts the job (--gpu-metrics-devices=all adds SM)",
            (
                *where,
                f"nsys profile --output profile-{pid} --trace cuda,nvtx,osrt,cudnn,cublas --delay 60 "
                f"--duration 30 --kill none {command}",
                f"nsys export --type sqlite --force-overwrite=true --output profile-{pid}.sqlite "
                f"profile-{pid}.nsys-rep",
                f"gputop trace profile-{pid}.sqlite",
            ),
        ),
        (
            "operators and kernels by name; around the training loop",
            (
                "from torch.profiler import profile, schedule",
                "with profile(schedule=schedule(wait=10, warmup=2, active=6, repeat=1),",
                "             on_trace_ready=lambda p: p.export_chrome_trace('trace.json.gz')) as profiler:",
                "    for batch in loader:",
                "        step(batch)",
                "        profiler.step()",
                "# then, in a shell: gputop trace trace.json.gz",
            ),
        ),
    )


FRAMES_SHOWN = 12
THREADS_SHOWN = 24
STATES = {
    "R": "running",
    "S": "asleep",
    "D": "disk wait",
    "Z": "ended",
    "T": "stopped",
    "t": "traced",
    "I": "idle",
}
"""Kernel states in words, as in the catalogue's ``state``."""


def look_rows(look: DeepLook, command: str, width: int) -> list[Row]:
    """Return the stacks seen, and commands to see more."""
    rows = _process_rows(look.process, "process", command, width)
    if look.loader is not None:
        is_repeated = look.loader.reason == look.process.reason
        rows += _process_rows(
            look.loader, "one of its loaders", "", width, reason_shown=is_repeated
        )
    rows.append(heading("to see more", width, "title"))
    process = look.process.identity
    for purpose, lines in recipes(process.pid, look.argv, look.folder):
        rows += [text_row(part, width, "dim", 2) for part in wrapped(purpose, max(10, width - 5))]
        for text in lines:
            rows += [
                Line().add("      ").add(part, "remedy").row(width)
                for part in folded(text, width - 8)
            ]
    return rows


def waiting_rows(pid: int, error: Exception | None, width: int) -> list[Row]:
    """Return the rows of a look under way or failed."""
    text = f"  looking at {pid} three times in 1.5 s…"
    if error is not None:
        text = f"  looking at {pid} has failed: {type(error).__name__}"
    return [heading("deep look", width, "title"), text_row(text, width, "dim")]


def _process_rows(
    process: InspectedProcess, role: str, command: str, width: int, *, reason_shown: bool = False
) -> list[Row]:
    """Return one process.

    ``reason_shown`` leaves out the reason, which the process above already gave.
    """
    title = f"{role} {process.identity.pid}"
    if command:
        title += f"  {fit(command, max(1, min(len(command), width - len(title) - 8))).rstrip()}"
    rows = [heading(title, width, "title")]
    if process.stacks:
        rows += _stacks(process.stacks, width)
    elif not reason_shown:
        line = (
            Line()
            .add("  no Python stack: ", "level.yellow")
            .add(terminal_safe(process.reason), "text")
        )
        rows.append(line.row(width))
        if process.help:
            rows += [
                Line()
                .add("  ")
                .add("→" if i == 0 else " ", "remedy")
                .add(f" {part}", "remedy")
                .row(width)
                for i, part in enumerate(folded(process.help, width - 6))
            ]
    return [*rows, *_threads(process.threads, width), Line().row(width)]


def _stacks(stacks: tuple[ThreadStack, ...], width: int) -> list[Row]:
    """Return each stack once, the most frequent first."""
    stacks_of_frames: dict[tuple[tuple[str, str, int], ...], list[ThreadStack]] = {}
    for stack in stacks:
        stacks_of_frames.setdefault(stack.frames, []).append(stack)
    rows = []
    for frames, equal in sorted(stacks_of_frames.items(), key=lambda item: -len(item[1])):
        state = "running" if any(stack.active for stack in equal) else "waiting"
        text = (
            f"  main thread, {state}, {len(equal)} of {len(stacks)} looks stood here (innermost "
            "first)"
        )
        rows.append(text_row(fit(text, width), width, "heading"))
        if not frames:
            rows.append(text_row("    no Python frame: it is starting or ending", width, "dim"))
        for depth, (function, file, number) in enumerate(frames[:FRAMES_SHOWN]):
            line = (
                Line()
                .add("    ")
                .add(fit(function, min(40, width // 3)), "value" if depth == 0 else "text")
            )
            where = f"{file}:{number}" if number else file
            rows.append(line.add(fit(f"  {where}", max(1, width - line.width)), "dim").row(width))
        if len(frames) > FRAMES_SHOWN:
            rows.append(
                text_row(f"    {count(len(frames) - FRAMES_SHOWN, 'more frame')}", width, "dim")
            )
    return rows


def _threads(threads: tuple[ThreadSample, ...], width: int) -> list[Row]:
    if not threads:
        return []
    rows = [
        text_row(
            f"  {'THREAD':>8}  {'NAME':<16}  {'STATE':<10}  {'WAITS ON':<9}  KERNEL FUNCTION",
            width,
            "heading",
        )
    ]
    for thread in threads[:THREADS_SHOWN]:
        line = Line().add(f"  {thread.tid:>8}  ", "dim").add(fit(thread.name, 16), "value")
        line.add(
            f"  {STATES.get(thread.state, thread.state):<10}",
            "level.red" if thread.state == "D" else "text",
        )
        line.add(f"  {thread.waiting_on or '–':<9}  ", "text")
        rows.append(line.add(fit(thread.channel or "–", 40), "dim").row(width))
    if len(threads) > THREADS_SHOWN:
        rows.append(
            text_row(f"  {'':>8}  {len(threads) - THREADS_SHOWN} more threads", width, "dim")
        )
    return rows
