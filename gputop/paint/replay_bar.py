"""The time line under a screen of the past.

The position, and the verdicts GPU by GPU.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from gputop.model.durations import clock_time, elapsed
from gputop.monitor import Frame
from gputop.paint.glyphs import Glyphs, keys_shown, level_glyph
from gputop.paint.keys import KEYS, REPLAY_KEYS, Key
from gputop.paint.line import Line, Row, Span, Target
from gputop.paint.view import Replay, View, selected_gpu

ORDER = ("grey", "green", "info", "yellow", "red")
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


def shown_keys(keys: Iterable[Key]) -> tuple[tuple[str, str], ...]:
    """Return (id, key as shown) of the replay's commands.

    Commands without a key are left out.
    """
    ids = {key_id for part in (LIVE, *PARTS) for key_id, _ in part}
    return tuple((key.id, key.first) for key in keys if key.id in ids and key.keys)


USUAL = shown_keys((*KEYS, *REPLAY_KEYS))


def bar_height(frame: Frame, replay: Replay) -> int:
    """Rows of the whole bar: state, a strip for each GPU, position."""
    return len(frame.shown.gpus) + 2


def replay_bar(
    frame: Frame, view: View, replay: Replay, width: int, room: int
) -> tuple[list[Row], list[Target | None]]:
    """Rows of the bar with click targets.

    State and keys, the strips of as many GPUs as ``room`` rows allow, and the position; at least one row. A click on
    the first row means a key, below it the moment of a column.
    """
    gpus = frame.shown.gpus
    count = min(len(gpus), max(room - 2, 1 if room > 1 else 0))
    # If not all fit, those around the selected one.
    first = max(0, min(selected_gpu(frame, view) - count // 2, len(gpus) - count))
    label = max((len(str(gpu.static.index)) for gpu in gpus), default=1) + 3
    columns = max(10, width - label - 2)
    shown_gpus = gpus[first : first + count]
    hidden = ""
    if shown_gpus and count < len(gpus):
        numbers = f"{shown_gpus[0].static.index}-{shown_gpus[-1].static.index}"
        hidden = f"  GPUs {numbers} of {len(gpus)} "
    state = _state(view, replay, width, hidden)
    rows = [state.row(width)]
    for gpu in shown_gpus:
        line = Line().add(f" {gpu.static.index} ".rjust(label), "dim")
        rows.append(line.add_all(_strip(replay, gpu.static.index, columns, view.glyphs)).row(width))
    if room > len(rows) and count:
        rows.append(_position(view, replay, width, label, columns))
    moment = Target("time", (label, columns, replay.begin, replay.end))
    return rows, [state.target(), *[moment] * (len(rows) - 1)]


def _position(view: View, replay: Replay, width: int, label: int, columns: int) -> Row:
    """Return the row of the position in the past, with its first and its last time."""
    offset = view.utc_offset_s
    span = max(replay.end - replay.begin, 1e-9)
    # Frames of a clock that was wrong by years lie outside.
    at = max(0, min(columns - 1, int((replay.position - replay.begin) / span * columns)))
    first_time, last_time = clock_time(replay.begin, offset), clock_time(replay.end, offset)
    line = Line().to(label)
    if at > len(first_time) + 1:
        line.add(first_time, "dim")
    line.to(label + at).add("▴", "strong")
    if at < columns - len(last_time) - 1:
        line.to(label + columns - len(last_time)).add(last_time, "dim")
    return line.row(width)


def _cell(glyphs: Glyphs, level: str) -> str:
    return "▆" if glyphs.solid else level_glyph(level)


def _named(view: View, *, own_past: bool) -> list[list[tuple[str, str]]]:
    """Return (words of one key, its id) of each group.

    Groups with a command that has no key are left out.
    """
    shown = {key_id: keys_shown(key, view.glyphs) for key_id, key in view.past_keys or USUAL}
    groups = [*((LIVE,) if own_past else ()), *PARTS]
    return [
        [(f"{shown[key_id]} {does}".strip(), key_id) for key_id, does in group]
        for group in groups
        if all(key_id in shown for key_id, _ in group)
    ]


def _state(view: View, replay: Replay, width: int, hidden: str) -> Line:
    title = "this run's past" if replay.own_past else "replay"
    line = Line().add("─ ", "rule").add(title, "title").add("  ")
    line.add(f"{'playing' if replay.playing else 'paused'} {replay.speed:g}×", "level.info")
    into, whole = elapsed(replay.position - replay.begin), elapsed(replay.end - replay.begin)
    line.add(f"  {clock_time(replay.position, view.utc_offset_s)} ", "text")
    if width >= LEAST_LENGTH_WIDTH:
        line.add(f" {into} of {whole} ", "text")
    if replay.judged_pct is not None:
        line.add(f" judging {replay.judged_pct:.0f} % ", "level.info")
    line.add(hidden, "dim")
    keys = Line()
    for parts in _named(view, own_past=replay.own_past):
        length = sum(len(words) + 1 for words, _ in parts) - 1
        if line.width + keys.width + length + 7 <= width:
            for i, (words, key_id) in enumerate(parts):
                keys.add((" " if i else "   ") if keys.width else "", "dim").add(
                    words, "dim", key_id
                )
    if keys.width:
        line.rule(width - keys.width - 3).add(" ", "dim").add_line(keys).add(" ", "dim")
    return line.rule(width)


def _strip(replay: Replay, gpu: int, columns: int, glyphs: Glyphs) -> list[Span]:
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
        level = max(
            (change.level for change in changes[first:last]), key=ORDER.index, default="grey"
        )
        line.add(_cell(glyphs, level), f"level.{level}")
    return list(line.row(columns))
