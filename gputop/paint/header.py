"""The first two rows: machine, source of SM, gputop's own cost; and the state of the GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.diagnosis.types import STATE_WORDS
from gputop.model.derived import lacks_sm
from gputop.model.quantity import duration, file_size, seconds, terminal_safe
from gputop.model.snapshot import GpuSample, OwnCost
from gputop.monitor import Frame
from gputop.paint.line import Line, Row, Target, clock_time, elapsed, shorten, words_target
from gputop.paint.view import View, selected_count
from gputop.paint.words import count_words, model_name, product, sm_provenance, split_gpus

LEAST_WASTE_S = 10.0
LEAST_INDENTED = 80
LEAST_NOT_JUDGED = 0.1
"""From this share on, GPU time that was not judged is mentioned."""


FACTS = (
    ("SIMULATED", "tour"), ("asleep,", "gpu_details"), ("SM ", "gpu_details"), ("every ", "help"),
    ("charts ", "longer"), ("PAUSED", "pause"), ("PAST", "pause"), ("self ", "help"), ("? help", "help"),
)  # fmt: skip
"""What facts of the top bar begin with, and the key that a click on them is: it leads to more about them."""


def header_target(row: Row) -> Target:
    """A click on a fact of the top bar, from its first cell to the two blanks behind it, is its key."""
    text = "".join(part for part, _ in row)
    facts: list[tuple[str, str]] = []
    end = 0
    for beginning, key_id in FACTS:
        begin = text.find(f" {beginning}", end) + 1
        if begin > 0:
            end = max(begin + len(beginning), text.find("  ", begin + len(beginning)))
            facts.append((text[begin:end], key_id))
    return words_target(row, facts)


def header(frame: Frame, view: View, width: int) -> Row:
    """The top bar. Its parts give way in a fixed order as the width runs out; time and own cost keep their place."""
    snapshot, glyphs = frame.snapshot, view.glyphs
    right = _right(frame, view, width)
    room = width - sum(len(text) for text, _ in right) - 3
    line = Line().add(" gputop", "brand|bar")
    names = [product(gpu.static.name, gpu.mem_total_bytes) for gpu in snapshot.gpus]
    short = [model_name(gpu.static.name) for gpu in snapshot.gpus]
    words, style = sm_provenance(snapshot.gpus)
    wide = width >= 100
    # (rank in giving way, text, style): the highest rank goes first; that a node is simulated is never left out.
    parts: list[tuple[int, str, str]] = [(2, terminal_safe(snapshot.machine.hostname)[:24], "value|bar")]
    if names:
        parts.append((0, _counted(names if wide else short, glyphs.times), "value|bar"))
    if wide and snapshot.machine.driver:
        parts.append((4, f"driver {terminal_safe(snapshot.machine.driver)[:16]}", "dim|bar"))
    if view.demo or snapshot.machine.is_simulated:
        parts.append((-1, "SIMULATED", "level.info|bar"))
    if not wide:
        words = words.replace("SM not measured", "SM n/a").replace("measured · ", "")
    parts.append((1, words, f"{style}|bar"))
    if width >= 120:
        parts.append((5, f"every {seconds(snapshot.interval_s)}", "dim|bar"))
        parts.append((6, f"charts {duration(view.span_s)}", "dim|bar"))
    while parts and line.width + sum(2 + len(text) for _, text, _ in parts) > room:
        parts.remove(max(parts))
    for _, text, part_style in parts:
        line.add("  ", "bar").add(text, part_style)
    line.to(width - sum(len(text) for text, _ in right), "bar").add_all(right)
    return line.row(width)


def _right(frame: Frame, view: View, width: int) -> list[tuple[str, str]]:
    snapshot = frame.snapshot
    parts: list[tuple[str, str]] = []
    late = max(snapshot.stale.values(), default=0.0) if view.stale_s is None else view.stale_s
    if late:
        parts.append((f"STALE {late:.0f} s  ", "level.red|bar"))
    if view.recording is not None:
        since_s, size = view.recording
        parts.append((f"{view.glyphs.record} {elapsed(since_s, 1)} {file_size(size)}  ", "record|bar"))
    if view.replay is not None:
        parts.append(("PAUSED  " if not view.replay.playing else "PAST  ", "level.yellow|bar"))
    parts.append((clock_time(snapshot.t, view.utc_offset_s) + "  ", "dim|bar"))
    own_cost = snapshot.own
    if own_cost is not None and own_cost.cpu_pct is not None and width >= 60:
        parts.append((_own_cost(own_cost, own_cost.cpu_pct, width) + " ", "dim|bar"))
    if width >= 100:
        parts.append(("  ? help ", "dim|bar"))
    return parts


def _own_cost(own_cost: OwnCost, cpu_pct: float, width: int) -> str:
    """CPU and memory of gputop, and apart from them those of the helper that reads the hardware counters."""
    # The host's name matters more than the long form of the own cost.
    if width < 120:
        helper = "" if own_cost.helper_cpu_pct is None else f" + {_share(own_cost.helper_cpu_pct)}"
        return f"self {_share(cpu_pct)}{helper}"
    cost = f"self {_share(cpu_pct)} cpu"
    if own_cost.rss_bytes is not None:
        cost += f" {own_cost.rss_bytes / 2**20:3.0f} MiB"
    if own_cost.helper_cpu_pct is not None:
        cost += f" + counters {_share(own_cost.helper_cpu_pct)}"
        if own_cost.helper_rss_bytes is not None and width >= 160:
            cost += f" {own_cost.helper_rss_bytes / 2**20:3.0f} MiB"
    return cost


def _share(cpu_pct: float) -> str:
    """A share of a core in whole percent: the tenths never stand still."""
    return "<1 %" if cpu_pct < 1.0 else f"{cpu_pct:2.0f} %"


def _counted(names: list[str], times: str) -> str:
    """``8 × H100 80GB``, or the kinds one after another when they differ."""
    kinds = dict.fromkeys(names)
    if len(names) == 1:
        return names[0]
    return " + ".join(f"{names.count(kind)} {times} {kind}" for kind in kinds)


def _sm_fixes(gpus: Sequence[GpuSample]) -> list[str]:
    """How to get SM activity where a source measures all but that: panes often have no room to say it."""
    fixes = dict.fromkeys(gpu.sm_lack.fix for gpu in gpus if gpu.sm_lack is not None and lacks_sm(gpu))
    return [f"for SM activity {fix}" for fix in fixes if fix]


def waste_words(frame: Frame) -> str:
    """How much of the node's GPU time was lost lately, and how much of it was not judged; empty before 10 s."""
    waste, gpus = frame.waste, len(frame.snapshot.gpus) - len(split_gpus(frame.snapshot))
    if waste.recent_gpus <= 0 or waste.recent_s < LEAST_WASTE_S:
        return ""
    not_judged = max(0.0, gpus - waste.recent_gpus)
    if gpus <= 1:
        count = f"{100 * waste.recent_lost_gpus / waste.recent_gpus:.0f} % of the GPU's time"
        return f"last {duration(waste.recent_s)}: {count} was lost"
    apart = f", {not_judged:.1f} {STATE_WORDS['unmeasured']}" if not_judged >= LEAST_NOT_JUDGED else ""
    count = f"{waste.recent_lost_gpus:.1f} of {gpus} GPUs' time"
    return f"last {duration(waste.recent_s)}: {count} was lost{apart}"


def summary_target(frame: Frame, view: View, width: int) -> Target | None:
    """The cells of each count, with the word that it counts."""
    if view.message:
        return None
    ends: list[tuple[int, object]] = []
    end = _indent(width)
    for text, _, group in count_words(frame.snapshot, frame.diagnoses, view.glyphs, width - 2):
        end += len(text)
        if end > width:
            break
        ends.append((end, group))
    line_text = "".join(text for text, _ in summary(frame, view, width))
    begin = line_text.find(" last ", end)
    if begin >= 0 and frame.waste.recent_s >= LEAST_WASTE_S:
        ends += [(begin + 1, None), (begin + 1 + len(line_text[begin + 1 :].split("   ")[0].rstrip()), WASTE)]
    return Target("count", None, (*ends, (width, None)))


WASTE = "waste"
"""What a click on the share of time that was lost means: the findings, which say when and why."""


def _indent(width: int) -> int:
    """Where the counts begin: below the titles of the panes, on a narrow screen at the edge."""
    return 2 if width >= LEAST_INDENTED else 1


def summary(frame: Frame, view: View, width: int) -> Row:
    """Counts by state, and how much of the GPUs' time was lost."""
    line = Line().add(" " * _indent(width))
    if view.message:
        return line.add(shorten(view.message, width - 2), "level.yellow").row(width)
    for text, style, group in count_words(frame.snapshot, frame.diagnoses, view.glyphs, width - 2):
        if line.width + len(text) > width:
            break
        count_text = text.lstrip()
        line.add(" " * (len(text) - len(count_text)))
        line.add(count_text, f"{style}|select" if group == selected_count(frame, view) else style)
    text = waste_words(frame)
    if text and line.width + 3 + len(text) <= width:
        line.add("   ").add(text, "text")
    for notice in (*frame.snapshot.notices, *_sm_fixes(frame.snapshot.gpus)):
        text = terminal_safe(notice)
        if line.width + 4 + 20 <= width:
            line.add("   ").add(shorten(text, width - line.width - 1), "level.yellow")
    return line.row(width)
