"""A snapshot in words and numbers.

Product names, the source of SM, a verdict's evidence and remedy, the counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from gputop.diagnosis.rules.device_badges import MEMORY_LEAK
from gputop.diagnosis.rules.heat_badges import POWER_BRAKE, THERMAL
from gputop.diagnosis.rules.xid_badges import ECC
from gputop.diagnosis.sm_remedy import power_word
from gputop.diagnosis.types import (
    HALF_WORKING,
    HOLDING_MEMORY,
    NOT_WORKING_ALARM,
    STATE_WORDS,
    GpuDiagnosis,
    Level,
)
from gputop.diagnosis.verdict.summary import (
    GROUPS,
    LOST_TITLE,
    WORKING_POORLY,
    GpuSummary,
    group_of,
    summarize,
)
from gputop.model.clean_text import terminal_safe, wrapped
from gputop.model.derived import lacks_sm
from gputop.model.sm import MEASURED, SM_SOURCES, SmSource
from gputop.model.snapshot import GpuSample, Snapshot
from gputop.paint.cells import cells, fit
from gputop.paint.glyphs import level_glyph
from gputop.paint.line import Span

Field = tuple[str, str]
"""Text and style of what is shown whole or not at all."""
LONGEST_NAME = 24
"""Cells of a product's name: a longer one is not NVIDIA's, and must not push the verdict aside."""


@lru_cache(maxsize=64)
def model_name(name: str) -> str:
    """Return a short product name.

    ``NVIDIA A100-SXM4-40GB`` is an A100.
    """
    text = terminal_safe(name)
    mig = (
        re.search(r"\b\d+c?\.?\d*g\.\d+gb\S*", text, re.IGNORECASE)
        if "g." in text.lower()
        else None
    )
    for word in ("NVIDIA", "GeForce", "Tesla", "Quadro"):
        text = text.replace(word + " ", "")
    text = re.split(
        r"-(?:SXM|PCI)|\s+(?:MIG|HBM|PCIe|SXM|NVL|Blackwell|Workstation|Server|Laptop|\d+\s?GB)",
        text,
    )[0]
    name = fit(text.strip() or "GPU", LONGEST_NAME).rstrip()
    return f"{name} {fit(mig[0], LONGEST_NAME).rstrip()}" if mig else name


@lru_cache(maxsize=64)
def product(name: str, mem_total_bytes: float | None) -> str:
    """Return model and memory size: ``H100 80GB``.

    The size is read off the name, else rounded from the total.
    """
    size = re.search(r"(\d+)\s?GB", terminal_safe(name))
    if "MIG" in name:
        return model_name(name)
    if size:
        return f"{model_name(name)} {size[1]}GB"
    if mem_total_bytes is None:
        return model_name(name)
    return f"{model_name(name)} {mem_total_bytes / 2**30:.0f}GiB"


def gpu_label(gpu: GpuSample) -> str:
    """Return a GPU's number for people.

    A MIG instance is named after its parent and instance.
    """
    static = gpu.static
    return f"{static.index}/{static.mig_instance}" if static.mig_instance else str(static.index)


def is_measured(gpu: GpuSample) -> bool:
    """Whether SM activity is measured on this GPU at present."""
    return gpu.sm_source in MEASURED and gpu.sm_active_pct is not None


def sm_provenance(gpus: Sequence[GpuSample]) -> tuple[str, str]:
    """Return SM's source over all GPUs as (words, style).

    It is called measured only where it is on every one of them; a GPU in MIG mode is its instances.
    """
    split = {gpu.static.mig_parent for gpu in gpus}
    live = [
        gpu
        for gpu in gpus
        if gpu.lost_reason is None and not gpu.asleep and gpu.static.uuid not in split
    ]
    if gpus and not live and any(gpu.asleep for gpu in gpus):
        return "asleep, and left asleep", "dim"
    measured = [gpu for gpu in live if gpu.sm_source in MEASURED and not lacks_sm(gpu)]
    if not measured:
        partly = next((SM_SOURCES[gpu.sm_source].label for gpu in live if lacks_sm(gpu)), None)
        return (
            "SM not measured" if partly is None else f"SM not measured · {partly} lacks SM_ACTIVE",
            "level.yellow",
        )
    names = " + ".join(
        _source_words(source, measured)
        for source in dict.fromkeys(gpu.sm_source for gpu in measured)
    )
    if len(measured) == len(live):
        return f"SM measured · {names}", "level.green"
    return f"SM on {len(measured)} of {len(live)} GPUs · {names}", "level.yellow"


def _source_words(source: SmSource, gpus: Sequence[GpuSample]) -> str:
    """Return a source's name.

    For a slow one also the span of its means and their age.
    """
    words = SM_SOURCES[source].label
    if not SM_SOURCES[source].slow:
        return words
    windows = [
        gpu.sm_window_s for gpu in gpus if gpu.sm_source == source and gpu.sm_window_s is not None
    ]
    ages = [gpu.sm_age_s for gpu in gpus if gpu.sm_source == source and gpu.sm_age_s is not None]
    words += f", {max(windows):.0f} s avg" if windows else ""
    return words + (f", {max(ages):.0f} s old" if ages else "")


def is_red(d: GpuDiagnosis) -> bool:
    """Return whether a GPU is in trouble.

    Nothing on it may look like praise then.
    """
    return summarize(d).role in ("not_working", "waiting")


def split_gpus(snapshot: Snapshot) -> frozenset[str]:
    """Return the GPUs that MIG has split.

    Their listed instances are counted in their place.
    """
    return frozenset(
        gpu.static.mig_parent for gpu in snapshot.gpus if gpu.static.mig_parent is not None
    )


def counted_groups(snapshot: Snapshot, diagnoses: Sequence[GpuDiagnosis]) -> dict[str, int]:
    """Return the number of GPUs in each group.

    In the order of the summary, without the empty ones. Of a lost GPU that MIG has split the instances are one.
    """
    split = split_gpus(snapshot)
    members: dict[str, set[str]] = {}
    for gpu, d in zip(snapshot.gpus, diagnoses, strict=True):
        if d.uuid not in split:
            word = group_of(d)
            lost_whole = word == LOST_TITLE and gpu.static.mig_parent
            members.setdefault(word, set()).add(lost_whole or d.uuid)
    counts = {word: len(members[word]) for word in GROUPS if word in members}
    # The other groups are titles of red badges.
    return counts | {word: len(members[word]) for word in members if word not in counts}


SHORT_COUNTS = {
    STATE_WORDS["working"]: "work", HALF_WORKING: "half", WORKING_POORLY: "poor", NOT_WORKING_ALARM: "BUSY",
    HOLDING_MEMORY: "hold", STATE_WORDS["unmeasured"]: "n/j", ECC.title: "error", THERMAL.title: "hot",
    POWER_BRAKE.title: "brake", MEMORY_LEAK.title: "leak",
}  # fmt: skip
"""Words of counts where there is no room for them in full."""
_LEVELS: dict[str, Level] = {
    STATE_WORDS["working"]: "green", NOT_WORKING_ALARM: "red", LOST_TITLE: "red", STATE_WORDS["idle"]: "info",
    STATE_WORDS["unmeasured"]: "grey",
}  # fmt: skip
"""The levels of the counts; of the other groups those in ``GROUPS`` are warnings, and red badges are red."""


def _level_of_group(word: str) -> Level:
    if word not in GROUPS:
        return "red"
    return _LEVELS.get(word, "yellow")


def count_words(
    snapshot: Snapshot, diagnoses: Sequence[GpuDiagnosis], width: int
) -> list[tuple[str, str, str]]:
    """Return the counts as (text, style, group).

    In the order in which they matter; empty groups are left out. Each text begins with its distance from the one
    before. Where ``width`` is too narrow all are shortened, so that none is hidden.
    """
    groups = counted_groups(snapshot, diagnoses)
    texts: list[tuple[str, str, str]] = []
    for apart, short in (("   ", False), (" ", True)):
        texts.clear()
        for word, n in groups.items():
            level = _level_of_group(word)
            words = f"{level_glyph(level)} {n} {SHORT_COUNTS.get(word, word) if short else word}"
            texts.append((f"{apart if texts else ''}{words}", f"level.{level}", word))
        if sum(len(text) for text, _, _ in texts) <= width:
            break
    return texts


def because(d: GpuDiagnosis, gpu: GpuSample) -> tuple[str, str]:
    """Return the first evidence as (text, style).

    Without evidence, why nothing can be said.
    """
    told = summarize(d)
    if told.evidence:
        return terminal_safe(told.evidence[0]), "dim" if told.role in (
            "work",
            "unknown",
        ) else "evidence"
    if gpu.sm_reason and not is_measured(gpu):
        words = power_word(gpu)
        power = f"{words}; " if words is not None else ""
        return f"{power}SM not measured: {terminal_safe(gpu.sm_reason)}", "dim"
    return (told.notes[0] if told.notes else ""), "dim"


def first_rows(lines: list[list[Span]], rows: int, width: int) -> list[list[Span]]:
    """Return the first rows of wrapped words.

    A sentence that is cut ends in an ellipsis.
    """
    if not 0 < rows < len(lines) or not lines[rows][0][0].isspace():
        return lines[: max(0, rows)]
    *before, (text, style) = lines[rows - 1]
    room = width - sum(cells(part) for part, _ in before)
    return [*lines[: rows - 1], [*before, (text[: room - 1] + "…", style)]]


def badge_lines(told: GpuSummary, width: int) -> list[list[Span]]:
    """Return the badges that a title does not say, each with its remedy."""
    lines: list[list[Span]] = []
    for badge in told.other_badges:
        lines += wrapped_lines(level_glyph(badge.level), badge.evidence, width, "text")
        lines += wrapped_lines("→", badge.remedy, width, "remedy")
    return lines


def badge_rows(told: GpuSummary, width: int) -> int:
    """Return the rows that badges need beside the verdict's words.

    None where no badge has a remedy.
    """
    if not any(badge.remedy for badge in told.other_badges):
        return 0
    return len(badge_lines(told, width))


def verdict_lines(
    gpu: GpuSample, d: GpuDiagnosis, width: int, rows: int, above: Sequence[list[Span]] = ()
) -> list[list[Span]]:
    """Return evidence, remedy, badges and notes in lines.

    Wrapped to ``width``, in at most ``rows`` rows. If need be with less evidence, then with the short remedy. Words
    matter more than the rows ``above`` them but for the first, and a badge's remedy more than further evidence.
    """
    told = summarize(d)
    first, style = because(d, gpu)
    evidence = wrapped_lines("↳", first, width, style)
    least = len(evidence)
    for line in told.evidence[1:]:
        evidence += wrapped_lines("↳", line, width, style)
    remedy, bound = wrapped_lines("→", told.remedy, width, "remedy"), told.worth.words()
    kept = badge_rows(told, width)
    lines = [*above[: max(1, rows - len(evidence) - len(remedy) - kept)]]
    room = rows - len(lines)
    is_short = least + len(remedy) > room and bool(told.remedy_short)
    text = told.remedy_short if is_short else told.remedy
    remedy = wrapped_lines("→", text, width, "remedy")[: 1 if is_short else None]
    bounded = wrapped_lines("→", f"{text} · {bound}", width, "remedy") if bound else remedy
    remedy = bounded if len(evidence) + len(bounded) + kept <= room else remedy
    most_evidence = room - len(remedy)
    evidence_rows = max(1, min(least, most_evidence), most_evidence - kept)
    lines += first_rows(evidence, evidence_rows, width) + remedy + badge_lines(told, width)
    for note in told.notes:
        if note != first:
            lines += wrapped_lines("·", note, width, "dim")
    return first_rows(lines, rows, width)


@lru_cache(maxsize=64)
def _lines(text: str, width: int) -> Sequence[str]:
    """Wrap a text, and remember the result.

    A verdict's remedy stays the same for minutes, and is wrapped at every paint.
    """
    safe = terminal_safe(text)
    if len(safe) <= width and safe == " ".join(safe.split()):
        return [safe]
    return wrapped(safe, width) or [""]


def wrapped_lines(glyph: str, text: str, width: int, style: str) -> list[list[Span]]:
    """Wrap a text behind a glyph.

    An empty text has no lines.
    """
    lines = _lines(text, max(8, width - 2)) if text else ()
    lead = len(glyph) + 1
    return [
        [(f"{glyph} " if i == 0 else " " * lead, style), (line, style)]
        for i, line in enumerate(lines)
    ]
