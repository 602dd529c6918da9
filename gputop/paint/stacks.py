"""A deep look as rows: where the main thread stood, time after time, what each thread waits for, what to run next."""

from __future__ import annotations

from gputop.model.inspection import DeepLook, ProcessSight, Stack, ThreadSight
from gputop.model.quantity import count
from gputop.model.text import terminal_safe
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row
from gputop.paint.profile_commands import recipes
from gputop.paint.text import fit, folded

FRAMES_SHOWN = 12
THREADS_SHOWN = 24
STATES = {"R": "running", "S": "asleep", "D": "disk wait", "Z": "ended", "T": "stopped", "t": "traced", "I": "idle"}
"""Kernel states in words, as in the catalogue's ``state``."""


def look_rows(look: DeepLook, command: str, glyphs: Glyphs, width: int) -> list[Row]:
    """Everything that was seen, and the commands that see more; numbered, so that a key can copy each."""
    rows = [Line().add(f"  {look.note}", "level.info").row(width)] if look.note else []
    rows += _sight(look.process, "process", command, glyphs, width)
    if look.loader is not None:
        told = look.loader.reason == look.process.reason
        rows += _sight(look.loader, "one of its loaders", "", glyphs, width, told=told)
    rows.append(_heading("to see more", glyphs, width))
    process = look.process.identity
    for number, recipe in enumerate(recipes(process.pid, look.argv, look.folder), 1):
        rows.append(Line().add(f"  {number} ", "key").add(recipe.purpose, "dim").row(width))
        for text in recipe.lines:
            rows += [Line().add("      ").add(part, "remedy").row(width) for part in folded(text, width - 8)]
    return rows


def waiting_rows(pid: int, glyphs: Glyphs, width: int) -> list[Row]:
    """What is shown while the look is under way."""
    text = f"  looking at {pid} three times in 1.5 s{glyphs.more}"
    return [_heading("deep look", glyphs, width), Line().add(text, "dim").row(width)]


def _heading(text: str, glyphs: Glyphs, width: int) -> Row:
    return Line().add(f"{glyphs.rule} ", "rule").add(text, "title").add(" ", "rule").rule(width, glyphs.rule).row(width)


def _sight(
    sight: ProcessSight, what: str, command: str, glyphs: Glyphs, width: int, *, told: bool = False
) -> list[Row]:
    """One process. ``told`` leaves out the reason, which the process above already gave."""
    title = f"{what} {sight.identity.pid}"
    if command:
        title += f"  {fit(command, max(1, min(len(command), width - len(title) - 8)), glyphs.more).rstrip()}"
    rows = [_heading(title, glyphs, width)]
    if sight.stacks:
        rows += _stacks(sight.stacks, glyphs, width)
    elif not told:
        line = Line().add("  no Python stack: ", "level.yellow").add(terminal_safe(sight.reason), "text")
        rows.append(line.row(width))
        if sight.help:
            rows += [
                Line().add("  ").add(glyphs.remedy if i == 0 else " " * len(glyphs.remedy), "remedy")
                .add(f" {part}", "remedy").row(width)
                for i, part in enumerate(folded(sight.help, width - 6))
            ]  # fmt: skip
    return [*rows, *_threads(sight.threads, glyphs, width), Line().row(width)]


def _stacks(stacks: tuple[Stack, ...], glyphs: Glyphs, width: int) -> list[Row]:
    """Stacks that are equal are shown once, with how often they were seen; the most frequent first."""
    seen: dict[tuple[tuple[str, str, int], ...], list[Stack]] = {}
    for stack in stacks:
        seen.setdefault(stack.frames, []).append(stack)
    rows = []
    for frames, same in sorted(seen.items(), key=lambda item: -len(item[1])):
        state = "running" if any(stack.active for stack in same) else "waiting"
        text = f"  main thread, {state}, {len(same)} of {len(stacks)} looks stood here (innermost first)"
        rows.append(Line().add(text, "heading").row(width))
        if not frames:
            rows.append(Line().add("    no Python frame: it is starting or ending", "dim").row(width))
        for depth, (function, file, number) in enumerate(frames[:FRAMES_SHOWN]):
            line = (
                Line()
                .add("    ")
                .add(fit(function, min(40, width // 3), glyphs.more), "value" if depth == 0 else "text")
            )
            where = f"{file}:{number}" if number else file
            rows.append(line.add(fit(f"  {where}", max(1, width - line.width), glyphs.more), "dim").row(width))
        if len(frames) > FRAMES_SHOWN:
            rows.append(Line().add(f"    {count(len(frames) - FRAMES_SHOWN, 'more frame')}", "dim").row(width))
    return rows


def _threads(threads: tuple[ThreadSight, ...], glyphs: Glyphs, width: int) -> list[Row]:
    if not threads:
        return []
    rows = [
        Line()
        .add(f"  {'THREAD':>8}  {'NAME':<16}  {'STATE':<10}  {'WAITS ON':<9}  KERNEL FUNCTION", "heading")
        .row(width)
    ]
    for thread in threads[:THREADS_SHOWN]:
        line = Line().add(f"  {thread.tid:>8}  ", "dim").add(fit(thread.name, 16, glyphs.more), "value")
        line.add(f"  {STATES.get(thread.state, thread.state):<10}", "level.red" if thread.state == "D" else "text")
        line.add(f"  {thread.waiting_on or glyphs.dash:<9}  ", "text")
        rows.append(line.add(fit(thread.channel or glyphs.dash, 40, glyphs.more), "dim").row(width))
    if len(threads) > THREADS_SHOWN:
        rows.append(Line().add(f"  {'':>8}  {len(threads) - THREADS_SHOWN} more threads", "dim").row(width))
    return rows
