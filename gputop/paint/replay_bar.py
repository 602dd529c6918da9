"""The time line under a screen that shows the past: where we are, and what the verdicts were, GPU by GPU."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from msgspec import Struct

from gputop.diagnosis.types import STATE_WORDS, VerdictChange
from gputop.model.snapshot import GpuSample
from gputop.monitor import Frame
from gputop.paint.glyphs import Glyphs, keys_shown
from gputop.paint.keys import KEYS, REPLAY_KEYS, Key
from gputop.paint.line import Line, Row, Target, clock_time, elapsed, words_target

ORDER = ("grey", "grey-green", "green", "info", "yellow", "red")
"""Levels from the least to the most urgent: a column shows the most urgent of its time."""
LEAST_LENGTH_WIDTH = 100
"""A narrower screen has no room for the length beside the keys."""
LIVE = (("release", "live"),)
PARTS = (
    (("play", "play"),),
    (("back", ""), ("on", "step")),
    (("next_change", ""), ("previous_change", "verdict")),
    (("jump", "jump"),),
    (("slower", ""), ("faster", "speed")),
    (("begin", ""), ("end", "ends")),
)
"""The commands of the past and what they do, the most useful first: as many as fit are shown, each with its key."""
PastKeys = tuple[tuple[str, str], ...]


def shown_keys(keys: Iterable[Key]) -> PastKeys:
    """(id, key as shown) of the commands of the past that have a key."""
    ids = {key_id for part in (LIVE, *PARTS) for key_id, _ in part}
    return tuple((key.id, key.shown.split("  ")[0]) for key in keys if key.id in ids and key.shown)


USUAL = shown_keys((*KEYS, *REPLAY_KEYS))


class Replay(Struct, frozen=True):
    """The position of a replay. ``own_past`` means the past of this run; ``changes`` are in order of time."""

    begin: float
    end: float
    position: float
    playing: bool
    speed: float
    changes: tuple[VerdictChange, ...] = ()
    own_past: bool = False
    judged_pct: float | None = None
    """How much of the past is judged yet, percent; None once all is."""
    differs: str = ""
    """Which verdicts were recorded otherwise at this moment, in words."""


def bar_height(frame: Frame, replay: Replay) -> int:
    """The rows that the whole bar takes: its state, a strip a GPU, the position, and what was recorded otherwise."""
    return len(frame.snapshot.gpus) + 2 + bool(replay.differs)


def bar_rows(
    frame: Frame,
    replay: Replay,
    selected: int,
    glyphs: Glyphs,
    width: int,
    room: int,
    offset: float,
    keys: PastKeys = (),
) -> list[Row]:
    """State and keys, the strips of as many GPUs as ``room`` rows allow, the position, and what was recorded otherwise.

    At least one row, whatever the room.
    """
    shown, label, columns = _strips(frame, replay, selected, width, room)
    gpus = len(frame.snapshot.gpus)
    hidden = f" {len(shown)} of {gpus} GPUs" if len(shown) < gpus else ""
    rows = [_state(replay, glyphs, width, offset, keys, hidden)]
    for gpu in shown:
        line = Line().add(f" {gpu.static.index} ".rjust(label), "dim")
        rows.append(line.add_all(_strip(replay, gpu.static.index, columns, glyphs)).row(width))
    if room > len(rows) and shown:
        rows.append(_position(replay, glyphs, width, offset, label, columns))
    if room > len(rows) and replay.differs:
        rows.append(Line().to(label).add(replay.differs[: width - label], "level.info").row(width))
    return rows


LEGEND = (
    ("green", STATE_WORDS["working"]), ("info", f"{STATE_WORDS['idle']}, note"), ("yellow", "warning"),
    ("red", "alarm"), ("grey", STATE_WORDS["unmeasured"]),
)  # fmt: skip
"""What the colours of a strip mean."""


def _position(replay: Replay, glyphs: Glyphs, width: int, offset: float, label: int, columns: int) -> Row:
    """Where in the past this is, its first and its last time, and where there is room what the colours mean."""
    span = max(replay.end - replay.begin, 1e-9)
    at = min(columns - 1, int((replay.position - replay.begin) / span * columns))
    first_time, last_time = clock_time(replay.begin, offset), clock_time(replay.end, offset)
    legend = [(f"{_cell(glyphs, level)} ", f"level.{level}", f"{word}   ") for level, word in LEGEND]
    length = sum(len(cell) + len(word) for cell, _, word in legend) - 3
    line = Line().to(label)
    if at > len(first_time) + 1:
        line.add(first_time, "dim")
    # On the longer side of the mark, away from both times.
    begin, end = (len(first_time) + 2, at - 1) if at > columns // 2 else (at + 3, columns - len(last_time) - 2)
    mark = "^" if glyphs.name == "ascii" else "▴"
    if at <= columns // 2:
        line.to(label + at).add(mark, "strong")
    if end - begin >= length:
        line.to(label + begin)
        for cell, style, word in legend:
            line.add(cell, style).add(word, "dim")
    if at > columns // 2:
        line.to(label + at).add(mark, "strong")
    if at < columns - len(last_time) - 1:
        line.to(label + columns - len(last_time)).add(last_time, "dim")
    return line.row(width)


def _cell(glyphs: Glyphs, level: str) -> str:
    return "▆" if glyphs.solid else glyphs.level(level)


def bar_targets(
    rows: Sequence[Row],
    frame: Frame,
    replay: Replay,
    selected: int,
    glyphs: Glyphs,
    width: int,
    room: int,
    keys: PastKeys = (),
) -> list[Target | None]:
    """What a click on each row of the bar means: its keys, and below them the moment of each column."""
    _, label, columns = _strips(frame, replay, selected, width, room)
    state = "".join(text for text, _ in rows[0])
    named = [part for words, parts in _named(keys, glyphs, own_past=True) if words in state for part in parts]
    moment = Target("time", (label, columns, replay.begin, replay.end))
    return [words_target(rows[0], named), *[moment] * (len(rows) - 1)]


def _strips(frame: Frame, replay: Replay, selected: int, width: int, room: int) -> tuple[list[GpuSample], int, int]:
    """The GPUs that have a strip (if not all fit, those around the selected one), the cells before it, its columns."""
    gpus = frame.snapshot.gpus
    count = min(len(gpus), max(room - 2 - bool(replay.differs), 1 if room > 1 else 0))
    first = max(0, min(selected - count // 2, len(gpus) - count))
    shown = list(gpus[first : first + count])
    label = max((len(str(gpu.static.index)) for gpu in gpus), default=1) + 3
    return shown, label, max(10, width - label - 2)


def _named(keys: PastKeys, glyphs: Glyphs, *, own_past: bool) -> list[tuple[str, list[tuple[str, str]]]]:
    """(words, [(words of one key, its id)]) of each group of commands; those without a key are left out."""
    shown = {key_id: keys_shown(key, glyphs) for key_id, key in keys or USUAL}
    groups = []
    for group in (*((LIVE,) if own_past else ()), *PARTS):
        parts = [(f"{shown[key_id]} {does}".strip(), key_id) for key_id, does in group if key_id in shown]
        if len(parts) == len(group):
            groups.append((" ".join(words for words, _ in parts), parts))
    return groups


def _state(replay: Replay, glyphs: Glyphs, width: int, offset: float, past_keys: PastKeys, hidden: str) -> Row:
    rule = glyphs.rule
    title = "this run's past" if replay.own_past else "replay"
    line = Line().add(f"{rule} ", "rule").add(title, "title").add("  ")
    line.add(f"{'playing' if replay.playing else 'paused'} {replay.speed:g}{glyphs.times}", "level.info")
    into, whole = elapsed(replay.position - replay.begin, 1), elapsed(replay.end - replay.begin, 1)
    line.add(f"  {clock_time(replay.position, offset)} ", "text")
    if width >= LEAST_LENGTH_WIDTH:
        line.add(f" {into} of {whole} ", "text")
    line.add(hidden, "dim")
    if replay.judged_pct is not None:
        line.add(f" judging: {replay.judged_pct:.0f} % ", "level.info")
    keys = ""
    for words, _ in _named(past_keys, glyphs, own_past=replay.own_past):
        if line.width + len(keys) + len(words) + 7 <= width:
            keys += ("   " if keys else "") + words
    if keys:
        line.rule(width - len(keys) - 3, rule).add(f" {keys} ", "dim")
    return line.rule(width, rule).row(width)


def _strip(replay: Replay, gpu: int, columns: int, glyphs: Glyphs) -> list[tuple[str, str]]:
    """One GPU's verdicts over the whole recording, a character a column."""
    changes = [change for change in replay.changes if change.gpu == gpu]
    times = [change.t for change in changes]
    width_s = (replay.end - replay.begin) / columns
    line = Line()
    for column in range(columns):
        begin = replay.begin + column * width_s
        if replay.judged_pct is not None and begin > replay.begin + replay.judged_pct / 100.0 * (
            replay.end - replay.begin
        ):
            # What was there is not known yet.
            line.add(" ")
            continue
        first = max(0, bisect_right(times, begin) - 1)
        last = bisect_right(times, begin + width_s)
        if not times or times[0] > begin + width_s:
            line.add(" ")
            continue
        level = max((change.level for change in changes[first:last]), key=ORDER.index, default="grey")
        line.add(_cell(glyphs, level), f"level.{level}")
    return list(line.row(columns))
