"""The tour of the demo: a page for each GPU.

Each step is one page: what one sees, the chart as it is, the chart of the same job after the remedy, and what changed.
"""

from __future__ import annotations

from msgspec import Struct

from gputop.diagnosis.rules.gates import COLLECTING
from gputop.model.quantity import GIB
from gputop.monitor import Frame
from gputop.paint import panes
from gputop.paint.cells import folded
from gputop.paint.line import Line, Row, heading, text_row
from gputop.paint.panes import ShownGpu
from gputop.paint.view import View

WINDOW_S = 30.0
"""The span over which both sides are compared: the window of the verdicts."""
TEXT_WIDTH = 108
"""Longer lines are hard to read."""
LEAST_BESIDE = 150
"""On a narrower screen the second chart stands below the first."""
LEAST_CHART, MOST_CHART, CHART_FRAME = 3, 24, 2
"""Rows of a chart, and of the title and the time axis around it."""
SAID_ROWS = 3
FREED_SHARE = 0.5
"""Memory is mentioned when less than this share of it is left."""


class Step(Struct, frozen=True):
    """One GPU of the tour: title, words and remedy.

    Without a ``remedy`` nothing has to be done.
    """

    verdict: str
    title: str
    explained: str
    remedy: str = ""


STEPS = (
    Step(
        "small_kernels",
        "busy, and not working",
        "By its utilisation this GPU is busy. But UTIL only says that at almost every moment some kernel "
        "ran. SM says how much of the chip had work: hardly any. The red area above the green is that gap. "
        "The main thread launches thousands of tiny kernels, one by one; the chip waits for the next launch.",
        "batch size raised from 1 to 512, and CUDA graphs",
    ),
    Step(
        "healthy",
        "what work looks like",
        "A solid block: UTIL and SM are both high, and nearly no gap is left between them. The main thread at 100 % "
        "CPU is no sign of trouble: it spins while it waits for the GPU. Nothing has to be done here.",
    ),
    Step(
        "healthy",
        "its partner in the same job",
        "Two ranks of one job do the same work and wait for each other at every step. When one of them lags behind, "
        "the other pays as well: gputop then names the straggler. These two keep pace.",
    ),
    Step(
        "dataloader_cpu",
        "the GPU waits for batches: the CPU is too slow",
        "Short blocks with empty sky between them: the GPU computes a batch and then waits for the next. All eight "
        "loaders run the whole time: they decode images as fast as they can. The process table says R8 beside them "
        "once their GPU is selected.",
        "decoding and augmentation moved from the CPU to the GPU",
    ),
    Step(
        "communication",
        "busy waiting for other GPUs",
        "UTIL is high because NCCL's kernels spin while they wait for other ranks. SM is low, tensor cores rest, and "
        "NVLink carries data both ways: the step waits for its gradients to be exchanged.",
        "gradients accumulated over 8 batches, and exchanged while the next ones are computed",
    ),
    Step(
        "memory_bandwidth",
        "working, at the limit of its memory",
        "Blue is a fact and no alarm: while kernels run, DRAM is near what it can do in practice. A server that writes "
        "one token after the other reads all weights for each. More requests at once bring more arithmetic for each "
        "byte.",
        "larger batches, and a KV cache in fp8",
    ),
    Step(
        "dataloader_io",
        "the GPU waits for batches: the disk is too slow",
        "The same empty sky as on GPU 3, but another cause: these loaders do not run, they wait for the disk (D6), "
        "which is asked for many small files one by one. Large files help most; more loaders ask for more at once.",
        "images packed into large files on the local NVMe disk",
    ),
    Step(
        "idle_holding_memory",
        "nobody uses it, and nobody else can",
        "No kernel has run for a long time, and a forgotten notebook still holds memory; gputop says whose it is. On "
        "the main screen you can try it: select the process, press F9, choose SIGTERM. That is simulated, too.",
        "the notebook was ended: the GPU is free for the next job",
    ),
)
"""GPU by GPU of the default node, in the order of their numbers."""


def tour_rows(now: Frame, after: Frame, at: int, view: View, width: int, height: int) -> list[Row]:
    """Return the page of one step.

    ``now`` and ``after`` are frames of the node before and after its remedies. ``at`` counts the steps. The charts
    get what height is left; what does not fit is scrolled to.
    """
    step = STEPS[at]
    head = Line().add(f" {at + 1} of {len(STEPS)}  GPU {at}: {step.title}", "title")
    words = [(text, "text") for text in folded(step.explained, min(TEXT_WIDTH, width - 4))]
    position = position_of(now, at)
    shown = None if position is None else now.diagnoses[position].verdict
    if shown not in (None, step.verdict, COLLECTING.id):
        words.append(("this GPU of the demo shows something else by now", "dim"))
    if step.remedy:
        words += [(text, "remedy") for text in folded(f"→ {changed(now, after, at)}", width - 4)]
    rows = [head.to(width - len("simulated ")).add("simulated ", "level.info").row(width)]
    rows += [text_row(text, width, style, 2) for text, style in words]
    sides = [(now, "as it is"), (after, f"after: {step.remedy}")][: 2 if step.remedy else 1]
    beside = len(sides) if width >= LEAST_BESIDE else 1
    room, wide = (height - len(rows)) * beside // len(sides), width // beside
    painted = [_side(frame, at, heading, view, wide, room) for frame, heading in sides]
    if beside == 1:
        return rows + [row for side in painted for row in side]
    return rows + [Line().add_all(a).add_all(b).row(width) for a, b in zip(*painted, strict=True)]


def _side(frame: Frame, at: int, words: str, view: View, width: int, room: int) -> list[Row]:
    """Return one chart with its verdict and words, below a heading."""
    position = position_of(frame, at)
    chart_rows = max(LEAST_CHART, min(MOST_CHART, room - SAID_ROWS - CHART_FRAME - 1))
    rows = [heading(words, width, "heading")]
    if position is None:
        rows.append(
            text_row(f"GPU {at} is not among those that are watched (--gpus)", width, "dim", 2)
        )
    else:
        g = ShownGpu(frame, view, position)
        rows += [*panes.chart(g, width, chart_rows), *panes.evidence_rows(g, width, SAID_ROWS)]
    return rows + [Line().row(width)] * (1 + CHART_FRAME + chart_rows + SAID_ROWS - len(rows))


def position_of(frame: Frame, at: int) -> int | None:
    """Return the position of a step's GPU, or None."""
    return next((i for i, gpu in enumerate(frame.shown.gpus) if gpu.static.index == at), None)


def changed(now: Frame, after: Frame, at: int) -> str:
    """Return the remedy's changes as means of both sides.

    Over the window of the verdicts.
    """
    position, other = position_of(now, at), after.shown.gpus[at].static.uuid
    if position is None:
        return ""
    uuid = now.shown.gpus[position].static.uuid
    parts = []
    for name, key, unit in (
        ("UTIL", "util_pct", "%"),
        ("SM", "sm_active_pct", "%"),
        ("power", "power_w", "W"),
    ):
        before, changed_to = _mean(now, uuid, key), _mean(after, other, key)
        if before is not None and changed_to is not None and round(before) + round(changed_to) > 0:
            parts.append(f"{name} {before:.0f} → {changed_to:.0f} {unit}")
    before, changed_to = _mean(now, uuid, "mem_used_bytes"), _mean(after, other, "mem_used_bytes")
    if before is not None and changed_to is not None and changed_to < FREED_SHARE * before:
        parts.append(f"memory held {before / GIB:.1f} → {changed_to / GIB:.1f} GiB")
    return f"what changes: {', '.join(parts)} ({WINDOW_S:.0f} s means)"


def _mean(frame: Frame, uuid: str, key: str) -> float | None:
    measured = [
        value for _, value in frame.history.recent(uuid, key, WINDOW_S) if value is not None
    ]
    return sum(measured) / len(measured) if measured else None
