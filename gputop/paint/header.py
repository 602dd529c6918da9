"""The first two rows of the screen, and the last.

The first has the machine, the source of SM and gputop's own cost, the second the state of the GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence

from gputop.diagnosis.types import STATE_WORDS, State
from gputop.model.clean_text import terminal_safe
from gputop.model.derived import lacks_sm
from gputop.model.durations import clock_time, duration, elapsed, seconds
from gputop.model.quantity import file_size
from gputop.model.snapshot import GpuSample, OwnCost
from gputop.monitor import Frame
from gputop.paint.cells import shorten
from gputop.paint.line import Line
from gputop.paint.view import View
from gputop.paint.words import count_words, model_name, product, sm_provenance, split_gpus

LEAST_WASTE_S = 10.0
LEAST_INDENTED = 80
LEAST_APART = 0.1
"""From this share on, GPU time that was idle or not judged is mentioned."""


def header(frame: Frame, view: View, width: int) -> Line:
    """Return the top bar.

    A click on a fact is the key that leads to more about it. Its parts give way in a fixed order as the width runs
    out; time and own cost keep their place.
    """
    snapshot = frame.snapshot
    right = _right(frame, view, width)
    right_width = sum(len(text) for text, _, _ in right)
    line = Line().add(" gputop", "brand|bar")
    wide = width >= 100
    names = [
        product(gpu.static.name, gpu.mem_total_bytes) if wide else model_name(gpu.static.name)
        for gpu in frame.shown.gpus
    ]
    words, style = sm_provenance(frame.shown.gpus)
    if not wide:
        words = words.replace("SM not measured", "SM n/a").replace("measured · ", "")
    # (rank in giving way, text, style, key): the highest rank goes first; that a node is simulated is never left out.
    parts: list[tuple[int, str, str, str | None]] = [
        (2, terminal_safe(snapshot.machine.hostname)[:24], "value", None)
    ]
    if names:
        parts.append((0, _counted(names), "value", None))
    if wide and snapshot.machine.driver:
        parts.append((4, f"driver {terminal_safe(snapshot.machine.driver)[:16]}", "dim", None))
    if view.demo or snapshot.machine.is_simulated:
        parts.append((-1, "SIMULATED", "level.info", "tour"))
    parts.append((1, words, style, "gpu_details"))
    if width >= 120:
        parts.append((5, f"every {seconds(snapshot.interval_s)}", "dim", "help"))
        parts.append((6, f"charts {duration(view.span_s)}", "dim", "longer"))
    while parts and line.width + sum(2 + len(part[1]) for part in parts) > width - right_width - 3:
        parts.remove(max(parts, key=lambda part: part[0]))
    for _, text, style, key in parts:
        line.add("  ", "bar").add(text, f"{style}|bar", key)
    line.to(width - right_width, "bar")
    for text, style, key in right:
        line.add(text, f"{style}|bar", key)
    return line


def _right(frame: Frame, view: View, width: int) -> list[tuple[str, str, str | None]]:
    """(text, style, key) of what keeps its place at the right."""
    snapshot = frame.snapshot
    parts: list[tuple[str, str, str | None]] = []
    late = max(snapshot.stale.values(), default=0.0) if view.stale_s is None else view.stale_s
    if late:
        parts.append((f"STALE {late:.0f} s  ", "level.red", None))
    if view.recording is not None:
        since_s, size = view.recording
        parts.append((f"● {elapsed(since_s)} {file_size(size)}  ", "record", None))
    if view.replay is not None:
        parts.append(("PAST  " if view.replay.playing else "PAUSED  ", "level.yellow", "pause"))
    parts.append((clock_time(snapshot.t, view.utc_offset_s) + "  ", "dim", None))
    own_cost = snapshot.own
    if own_cost is not None and own_cost.cpu_pct is not None and width >= 60:
        parts.append((_own_cost(own_cost, own_cost.cpu_pct, width) + " ", "dim", "help"))
    if width >= 100:
        parts.append(("  ? help ", "dim", "help"))
    return parts


def _own_cost(own_cost: OwnCost, cpu_pct: float, width: int) -> str:
    """Return gputop's own CPU time and memory.

    The helper that reads the hardware counters is counted apart.
    """
    # The host's name matters more than the own memory.
    helper = (
        "" if own_cost.helper_cpu_pct is None else f" + counters {_share(own_cost.helper_cpu_pct)}"
    )
    size = (
        ""
        if own_cost.rss_bytes is None or width < 120
        else f" cpu {own_cost.rss_bytes / 2**20:3.0f} MiB"
    )
    return f"self {_share(cpu_pct)}{size}{helper}"


def _share(cpu_pct: float) -> str:
    """Return a share of a core in whole percent.

    Tenths change all the time.
    """
    return "<1 %" if cpu_pct < 1.0 else f"{cpu_pct:2.0f} %"


def _counted(names: list[str]) -> str:
    """Return the GPUs by kind: ``8 × H100 80GB``."""
    kinds = dict.fromkeys(names)
    if len(names) == 1:
        return names[0]
    return " + ".join(f"{names.count(kind)} × {kind}" for kind in kinds)


def _sm_fixes(gpus: Sequence[GpuSample]) -> list[str]:
    """Return how to measure SM activity where it is missing.

    Panes often have no room for it.
    """
    fixes = dict.fromkeys(
        gpu.sm_lack.fix for gpu in gpus if gpu.sm_lack is not None and lacks_sm(gpu)
    )
    return [f"for SM activity {fix}" for fix in fixes if fix]


def waste_words(frame: Frame) -> str:
    """Return how much GPU time was wasted lately.

    What nobody held, and what was not judged, is named too; empty before 10 s.
    """
    waste, gpus = frame.waste, len(frame.shown.gpus) - len(split_gpus(frame.snapshot))
    if waste.recent_gpus <= 0 or waste.recent_s < LEAST_WASTE_S:
        return ""
    wasted = _gpus_words(waste.recent_lost_gpus, gpus)
    whose = "the GPU's time" if gpus <= 1 else f"{gpus} GPUs' time"
    words = f"last {duration(waste.recent_s, whole=True)}: {wasted} of {whose} was wasted"
    apart: dict[State, float] = {
        "idle": waste.recent_idle_gpus,
        "unmeasured": max(0.0, gpus - waste.recent_gpus),
    }
    for state, part in apart.items():
        if part >= LEAST_APART:
            words += f", {_gpus_words(part, gpus)} {STATE_WORDS[state]}"
    return words


def _gpus_words(part: float, gpus: int) -> str:
    """Return a part of the GPUs' time: of one GPU in percent."""
    return f"{100 * part:.0f} %" if gpus <= 1 else f"{part:.1f}"


WASTE = "waste"
"""What a click on the share of time that was wasted means: the findings, which say when and why."""


def summary(frame: Frame, view: View, width: int) -> Line:
    """Return the counts by state and the wasted time.

    A click on a count goes through its GPUs.
    """
    # Below the titles of the panes; on a narrow screen at the edge.
    line = Line().add(" " * (2 if width >= LEAST_INDENTED else 1))
    if view.message:
        return line.add(shorten(view.message, width - 2), "level.yellow")
    for text, style, group in count_words(frame.snapshot, frame.diagnoses, width - 2):
        if line.width + len(text) > width:
            break
        count_text = text.lstrip()
        line.add(" " * (len(text) - len(count_text)))
        line.add(count_text, style, group)
    text = waste_words(frame)
    if text and line.width + 3 + len(text) <= width:
        line.add("   ").add(text, "text", WASTE)
    for notice in (*frame.snapshot.notices, *_sm_fixes(frame.shown.gpus)):
        if line.width + 4 + 20 <= width:
            line.add("   ").add(
                shorten(terminal_safe(notice), width - line.width - 1), "level.yellow"
            )
    return line
