"""A snapshot in words: product names, where SM comes from, a verdict's headline, evidence and remedy, the counts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec.structs import replace

from gputop.diagnosis.types import HOLDING_MEMORY, NOT_WORKING_ALARM, STATE_WORDS, GpuDiagnosis, Level, State
from gputop.model.derived import lacks_sm, power_word
from gputop.model.sm import MEASURED, SM_SOURCES, SmSource
from gputop.model.snapshot import GpuSample, Snapshot
from gputop.model.text import terminal_safe, wrapped
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Span
from gputop.paint.text import cells, fit

LONGEST_NAME = 24
"""Cells of a product's name: a longer one is not NVIDIA's, and must not push the verdict aside."""


@lru_cache(maxsize=64)
def model_name(name: str) -> str:
    """A product name as people say it: ``NVIDIA A100-SXM4-40GB`` is an A100."""
    text = terminal_safe(name)
    mig = re.search(r"\b\d+c?\.?\d*g\.\d+gb\S*", text, re.IGNORECASE) if "g." in text.lower() else None
    for word in ("NVIDIA", "GeForce", "Tesla", "Quadro"):
        text = text.replace(word + " ", "")
    text = re.split(r"-(?:SXM|PCI)|\s+(?:MIG|HBM|PCIe|SXM|NVL|Blackwell|Workstation|Server|Laptop|\d+\s?GB)", text)[0]
    name = fit(text.strip() or "GPU", LONGEST_NAME).rstrip()
    return f"{name} {fit(mig[0], LONGEST_NAME).rstrip()}" if mig else name


@lru_cache(maxsize=64)
def product(name: str, mem_total_bytes: float | None) -> str:
    """Model and memory size as sold: ``H100 80GB``. The size is read off the name, else rounded from the total."""
    size = re.search(r"(\d+)\s?GB", terminal_safe(name))
    if "MIG" in name:
        return model_name(name)
    if size:
        return f"{model_name(name)} {size[1]}GB"
    if mem_total_bytes is None:
        return model_name(name)
    return f"{model_name(name)} {mem_total_bytes / 2**30:.0f}GiB"


def gpu_label(gpu: GpuSample) -> str:
    """A GPU's number, for people; a MIG instance is named after its parent and instance."""
    static = gpu.static
    return f"{static.index}/{static.mig_instance}" if static.mig_instance else str(static.index)


def is_measured(gpu: GpuSample) -> bool:
    """Whether SM activity is measured on this GPU at present."""
    return gpu.sm_source in MEASURED and gpu.sm_active_pct is not None


def counts_truly(d: GpuDiagnosis) -> bool:
    """Whether the GPU's counters can be trusted: a broken one measures nothing, whatever it reads."""
    return not any(badge.id == "counter_fault" for badge in d.badges)


def believed(gpu: GpuSample, d: GpuDiagnosis) -> GpuSample:
    """The sample without a broken counter's values, so that its 0 is not shown as a measurement."""
    if counts_truly(d):
        return gpu
    return replace(
        gpu,
        sm_active_pct=None,
        sm_occupancy_pct=None,
        tensor_active_pct=None,
        dram_active_pct=None,
        fp64_active_pct=None,
        fp32_active_pct=None,
        fp16_active_pct=None,
    )


def sm_provenance(gpus: Sequence[GpuSample]) -> tuple[str, str]:
    """(words, style) for the header: where SM activity comes from, over all GPUs."""
    live = [gpu for gpu in gpus if gpu.lost_reason is None]
    measured = [gpu for gpu in live if gpu.sm_source in MEASURED and not lacks_sm(gpu)]
    if not measured:
        partly = next((SM_SOURCES[gpu.sm_source].label for gpu in live if lacks_sm(gpu)), None)
        return "SM not measured" if partly is None else f"SM not measured · {partly} lacks SM_ACTIVE", "level.yellow"
    names = " + ".join(_source_words(source, measured) for source in dict.fromkeys(gpu.sm_source for gpu in measured))
    if len(measured) == len(live):
        return f"SM measured · {names}", "level.green"
    return f"SM measured · {names} on {len(measured)} of {len(live)}", "level.yellow"


def _source_words(source: SmSource, gpus: Sequence[GpuSample]) -> str:
    """A source's name, and of a slow one also over what time its values are means and how old they are."""
    words = SM_SOURCES[source].label
    if not SM_SOURCES[source].slow:
        return words
    windows = [gpu.sm_window_s for gpu in gpus if gpu.sm_source == source and gpu.sm_window_s is not None]
    ages = [gpu.sm_age_s for gpu in gpus if gpu.sm_source == source and gpu.sm_age_s is not None]
    words += f", {max(windows):.0f} s avg" if windows else ""
    return words + (f", {max(ages):.0f} s old" if ages else "")


def headline(d: GpuDiagnosis, glyphs: Glyphs) -> tuple[str, str]:
    """(text, style) of a verdict: its glyph and its word; busy-not-working leads with the flag."""
    if d.busy_not_working:
        return f"{glyphs.red} {NOT_WORKING_ALARM}", "level.red"
    return f"{glyphs.level(d.level)} {d.title}", f"level.{d.level}"


def is_red(d: GpuDiagnosis) -> bool:
    """Whether a GPU is an alarm: nothing on it may look like praise then."""
    return d.level == "red" or d.busy_not_working is not None


def group_of(gpu: GpuSample, d: GpuDiagnosis) -> str:
    """The word under which the summary counts a GPU."""
    if gpu.lost_reason is not None:
        return "LOST"
    if d.busy_not_working is not None:
        return NOT_WORKING_ALARM
    if d.state == "idle_allocated":
        return HOLDING_MEMORY
    return STATE_WORDS[d.state]


COUNTED = (
    STATE_WORDS["working"], NOT_WORKING_ALARM, STATE_WORDS["starved"], HOLDING_MEMORY, STATE_WORDS["idle"],
    STATE_WORDS["unmeasured"], "LOST",
)  # fmt: skip
"""The summary's groups, in the order in which they stand."""


def counted_groups(snapshot: Snapshot, diagnoses: Sequence[GpuDiagnosis]) -> dict[str, int]:
    """How many GPUs each group has, in the order of the summary; without the empty ones."""
    groups = [group_of(gpu, d) for gpu, d in zip(snapshot.gpus, diagnoses, strict=True)]
    return {word: n for word in COUNTED if (n := groups.count(word))}


def count_words(snapshot: Snapshot, diagnoses: Sequence[GpuDiagnosis], glyphs: Glyphs) -> list[tuple[str, str]]:
    """The summary's counts as (text, style), in the order in which they matter; empty groups are left out."""
    groups = counted_groups(snapshot, diagnoses)
    starved, holding = (_worst(diagnoses, state) for state in ("starved", "idle_allocated"))
    glyph_and_style = {
        "working": (glyphs.green, "level.green"),
        NOT_WORKING_ALARM: (glyphs.red, "level.red"),
        "starved": (glyphs.level(starved), f"level.{starved}"),
        HOLDING_MEMORY: (glyphs.level(holding), f"level.{holding}"),
        "idle": (glyphs.grey, "level.grey"),
        STATE_WORDS["unmeasured"]: (glyphs.grey, "level.grey"),
        "LOST": (glyphs.red, "level.red"),
    }
    return [(f"{glyph_and_style[word][0]} {n} {word}", glyph_and_style[word][1]) for word, n in groups.items()]


def _worst(diagnoses: Sequence[GpuDiagnosis], state: State) -> Level:
    """The worst level among the GPUs of a state."""
    levels = {d.level for d in diagnoses if d.state == state}
    return next((level for level in ("red", "yellow", "info", "grey") if level in levels), "yellow")


def because(d: GpuDiagnosis, gpu: GpuSample) -> tuple[str, str]:
    """(evidence, style): what proves the verdict, or why nothing can be said."""
    if gpu.lost_reason is not None:
        return terminal_safe(gpu.lost_reason), "evidence"
    if d.evidence:
        return terminal_safe(d.evidence[0]), "evidence" if d.level in ("red", "yellow", "info") else "dim"
    if gpu.sm_reason and not is_measured(gpu):
        words = power_word(gpu)
        beside = f"{words}; " if words is not None else ""
        return f"{beside}SM not measured: {terminal_safe(gpu.sm_reason)}", "dim"
    return (d.notes[0] if d.notes else ""), "dim"


def first_rows(lines: list[list[Span]], rows: int, width: int, glyphs: Glyphs) -> list[list[Span]]:
    """The first rows of wrapped words; a sentence that is cut off by it ends in an ellipsis."""
    if not 0 < rows < len(lines) or not lines[rows][0][0].isspace():
        return lines[: max(0, rows)]
    *before, (text, style) = lines[rows - 1]
    room = width - sum(cells(part) for part, _ in before)
    return [*lines[: rows - 1], [*before, (text[: room - len(glyphs.more)] + glyphs.more, style)]]


def spoken(
    d: GpuDiagnosis, glyphs: Glyphs, said: list[list[Span]], remedy: list[list[Span]], width: int, rows: int
) -> list[list[Span]]:
    """Evidence and remedy in at most ``rows`` rows: if need be with the short remedy, then with less evidence."""
    if len(said) + len(remedy) > rows and d.remedy_short:
        remedy = _wrapped(glyphs.remedy, d.remedy_short, "", width, "remedy")[:1]
    return first_rows(said, max(1, rows - len(remedy)), width, glyphs) + remedy


def words_for(
    gpu: GpuSample, d: GpuDiagnosis, glyphs: Glyphs, width: int
) -> tuple[list[list[Span]], list[list[Span]], list[list[Span]]]:
    """Evidence, remedy, and then badges and notes, each wrapped to ``width``."""
    evidence, style = because(d, gpu)
    if gpu.lost_reason is not None and d.evidence:
        # What to do follows with the badge: here only what is wrong.
        evidence = terminal_safe(d.evidence[0])
    suffix = f"  {d.window_s:.0f} s, n={d.n}" if d.evidence and d.n else ""
    said = _wrapped(glyphs.because, evidence, suffix, width, style)
    for more in d.evidence[1:]:
        said += _wrapped(glyphs.because, more, "", width, style)
    remedy = _wrapped(glyphs.remedy, d.remedy, "", width, "remedy")
    extra: list[list[Span]] = []
    for badge in d.badges:
        if badge.evidence != evidence:
            extra += _wrapped(glyphs.level(badge.level), badge.evidence, "", width, "text")
        extra += _wrapped(glyphs.remedy, badge.remedy, "", width, "remedy")
    for note in d.notes:
        if note != evidence:
            extra += _wrapped(glyphs.dot, note, "", width, "dim")
    return said, remedy, extra


@lru_cache(maxsize=64)
def _lines(text: str, width: int) -> Sequence[str]:
    """Remembered: a verdict's remedy stays the same for minutes, and is wrapped at every paint."""
    safe = terminal_safe(text)
    if len(safe) <= width and safe == " ".join(safe.split()):
        return [safe]
    return wrapped(safe, width) or [""]


def _wrapped(glyph: str, text: str, suffix: str, width: int, style: str) -> list[list[Span]]:
    if not text:
        return []
    lines = _lines(text, max(8, width - 2))
    lead = len(glyph) + 1
    spans: list[list[Span]] = [
        [(f"{glyph} " if i == 0 else " " * lead, style), (line, style)] for i, line in enumerate(lines)
    ]
    if suffix and len(lines[-1]) + lead + len(suffix) <= width:
        spans[-1].append((suffix, "dim"))
    return spans
