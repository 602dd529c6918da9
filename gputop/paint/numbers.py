"""The numbers of one GPU as fields of fixed width: utilisation, counters, buses, the board."""

from __future__ import annotations

from gputop.diagnosis.sm_remedy import power_word
from gputop.diagnosis.thresholds import WIDE_GAP
from gputop.model import quantity
from gputop.model.derived import throttle_words
from gputop.model.metrics import GPU_METRICS, Metric
from gputop.model.quantity import NOT_MEASURED, seconds, terminal_safe
from gputop.model.sm import MEASURED, SM_SOURCES
from gputop.model.snapshot import GpuSample, Snapshot, value
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row, Span, fit, gb_per_s, gib, pct, shorten, whole

Field = tuple[str, str]


def sm_text(gpu: GpuSample, glyphs: Glyphs, *, red: bool, newest: bool = False) -> Span:
    """The SM number: measured, a bound, or n/a; never one under another's name.

    Green praises, so not on a red GPU, nor at 0. ``newest`` is a single second, on which no verdict stands: dim.
    """
    if gpu.sm_active_pct is not None:
        return pct(gpu.sm_active_pct), "dim" if newest else "strong" if red or gpu.sm_active_pct < 0.5 else "value.sm"
    if gpu.sm_high_pct is not None and gpu.sm_high_pct < 99.5:
        return f"{glyphs.at_most}{gpu.sm_high_pct:.0f}"[:4].rjust(3), "dim"
    return (glyphs.more if _is_coming(gpu) else NOT_MEASURED), "dim"


def _is_coming(gpu: GpuSample) -> bool:
    """Whether SM activity is measured and only waits for its second sample."""
    lack = gpu.sm_lack
    return gpu.sm_source in MEASURED and gpu.sm_active_pct is None and lack is not None and lack.kind == "collecting"


def shown_gap(gpu: GpuSample) -> int | None:
    """UTIL − SM in points, of the two as they are shown: who subtracts them finds the same. Never below 0."""
    if gpu.util_pct is None or gpu.sm_active_pct is None:
        return None
    return max(0, int(pct(gpu.util_pct)) - int(pct(gpu.sm_active_pct)))


def gap_style(gap: float | None, *, alarm: bool) -> str:
    """How a gap in points, as shown, is drawn; ``alarm`` is that of a GPU that is busy and not working."""
    return "value.alarm" if alarm else "value.gap" if gap is not None and gap >= WIDE_GAP else "dim"


def number_labels(
    gpu: GpuSample, glyphs: Glyphs, rows: int = 3, *, alarm: bool, red: bool, newest: bool = False
) -> list[list[Span]]:
    """The first ``rows`` of UTIL, SM and GAP with their labels, one row each; those of one second are dim."""
    sm, sm_style = sm_text(gpu, glyphs, red=red, newest=newest)
    strong = "dim" if newest else "strong"
    labels: list[list[Span]] = [
        [("  UTIL ", "dim"), (pct(gpu.util_pct, 4), strong)],
        [("  SM   ", "dim"), (f"{sm:>4}", sm_style)],
    ]
    gap = shown_gap(gpu)
    style = "dim" if gap is None or newest else gap_style(gap, alarm=alarm)
    absent = glyphs.more if _is_coming(gpu) else NOT_MEASURED
    labels.append([("  GAP  ", "dim"), (f"{absent:>4}" if gap is None else f"{gap:>4}", style)])
    return labels[:rows]


def fields(parts: list[Field], width: int, gap: str = "   ") -> list[Span]:
    """As many fields as fit, from the left; a field is never cut."""
    spans: list[Span] = []
    used = 0
    for text, style in parts:
        need = len(text) + (len(gap) if spans else 0)
        if used + need > width:
            break
        if spans:
            spans.append((gap, "text"))
        spans.append((text, style))
        used += need
    return spans


def memory(gpu: GpuSample) -> str:
    """Memory in use and in all: ``58.0 / 80.0 GiB``, and whether it is the host's."""
    total = gib(gpu.mem_total_bytes).strip()
    unified = " unified" if gpu.static.unified_memory else ""
    return f"{gib(gpu.mem_used_bytes, len(total))} / {total} GiB{unified}"


def counters(gpu: GpuSample) -> list[Field]:
    """Tensor and DRAM activity as fields; left out together where neither is measured."""
    if gpu.tensor_active_pct is None and gpu.dram_active_pct is None:
        return []
    return [
        (f"TENSOR {pct(gpu.tensor_active_pct)}", "text"),
        (f"DRAM {pct(gpu.dram_active_pct)}", "text"),
    ]


def buses(gpu: GpuSample, glyphs: Glyphs) -> list[Field]:
    """PCIe and, where it exists, NVLink traffic in GB/s."""
    parts: list[Field] = []
    if gpu.pcie_rx_bytes_per_s is not None or gpu.pcie_tx_bytes_per_s is not None:
        into, out = gb_per_s(gpu.pcie_rx_bytes_per_s), gb_per_s(gpu.pcie_tx_bytes_per_s)
        parts.append((f"PCIe {glyphs.down}{into} {glyphs.up}{out} GB/s", "dim"))
    if gpu.nvlink_rx_bytes_per_s is not None or gpu.nvlink_tx_bytes_per_s is not None:
        into, out = gb_per_s(gpu.nvlink_rx_bytes_per_s, 4), gb_per_s(gpu.nvlink_tx_bytes_per_s, 4)
        parts.append((f"NVLink {glyphs.down}{into} {glyphs.up}{out} GB/s", "dim"))
    return parts


LEAST_TRAFFIC = 5e8
"""Bytes a second that would not be shown as 0 GB/s."""


def busiest_bus(gpu: GpuSample, glyphs: Glyphs) -> list[Field]:
    """The one link direction that carries most, for rows that have room for one only."""
    links = [
        (value, text)
        for value, text in (
            (gpu.pcie_rx_bytes_per_s, f"PCIe {glyphs.down}"),
            (gpu.pcie_tx_bytes_per_s, f"PCIe {glyphs.up}"),
            (gpu.nvlink_rx_bytes_per_s, f"NVLink {glyphs.down}"),
            (gpu.nvlink_tx_bytes_per_s, f"NVLink {glyphs.up}"),
        )
        if value is not None
    ]
    if not links:
        return []
    value, text = max(links, key=lambda link: link[0])
    # A bus on which nothing moves says nothing beside the other numbers.
    return [(f"{text}{gb_per_s(value, 4)} GB/s", "text")] if value >= LEAST_TRAFFIC else []


def watts(power_w: float | None, width: int = 3) -> str:
    """Power in steps of 5 W: it never stands still, and nothing rests on less."""
    return whole(None if power_w is None else 5.0 * round(power_w / 5.0), width)


def board(gpu: GpuSample, glyphs: Glyphs) -> list[Field]:
    """Power and temperature; the clock where something slows it, and memory errors where there are any."""
    limit = "" if gpu.power_limit_w is None else f" / {gpu.power_limit_w:.0f}"
    parts: list[Field] = []
    if gpu.power_w is not None:
        parts.append((f"{watts(gpu.power_w)}{limit} W", "text"))
    if gpu.temp_c is not None:
        parts.append((f"{whole(gpu.temp_c, 2)} {glyphs.degree}", "text"))
    if slowed := throttle_words(gpu.throttle_reasons or 0):
        clock = "" if gpu.sm_clock_max_mhz is None else f" / {gpu.sm_clock_max_mhz:.0f}"
        parts.append((f"{whole(gpu.sm_clock_mhz, 4)}{clock} MHz", "text"))
        parts.append((", ".join(slowed), "level.yellow"))
    lately = gpu.ecc_uncorrected_volatile
    if errors := gpu.ecc_uncorrected if lately is None else lately:
        parts.append((f"ECC {errors}{' in its life' if lately is None else ''}", "level.red"))
    return parts


# Where each value of one GPU comes from, over what time it is the mean, how old it is, or why it is missing.

PROVENANCE_ROWS = 1 + len(GPU_METRICS)
VALUE_WIDTH = 14
LABEL_WIDTH = 14
DEFINITION_AT, DEFINED_FROM = 88, 150
"""From this width on each value has its definition beside it."""


def shown_value(metric: Metric, value: float | None, glyphs: Glyphs) -> str:
    """A value with its unit."""
    if value is None:
        return NOT_MEASURED
    unit = metric.unit
    if unit == "pct":
        return quantity.pct(value)
    if unit == "bytes":
        return f"{gib(value).strip()} GiB"
    if unit == "bytes/s":
        return quantity.rate(value)
    if unit == "J":
        return f"{value / 3.6e6:.1f} kWh"
    if unit == "C":
        return f"{whole(value, 1)} {glyphs.degree}"
    if unit == "bool":
        return "yes" if value else "no"
    if unit == "flags":
        return ", ".join(throttle_words(int(value))) or "none"
    return f"{whole(value, 1)} {unit}" if unit in ("W", "MHz", "s") else whole(value, 1)


def provenance_rows(snapshot: Snapshot, gpu: GpuSample, width: int, glyphs: Glyphs) -> list[Row]:
    """One row a value, under a row of heads."""
    late = max(snapshot.stale.values(), default=0.0)
    head = Line().to(2).add("VALUE".ljust(LABEL_WIDTH), "heading").add("NOW".rjust(VALUE_WIDTH), "heading")
    rows = [head.add("   AGE      ", "heading").add("FROM, OR WHY IT IS MISSING", "heading").row(width)]
    for key, metric in GPU_METRICS.items():
        measured: float | None = value(gpu, key)
        line = Line().to(2).add(fit(metric.label, LABEL_WIDTH, glyphs.more), "text")
        line.add(
            fit(shown_value(metric, measured, glyphs).rjust(VALUE_WIDTH), VALUE_WIDTH, glyphs.more), _style(measured)
        )
        line.add("   ")
        if measured is None:
            line.add(" " * 9).add(shorten(_missing(metric, gpu), width - line.width - 1, glyphs.more), "dim")
        else:
            line.add(f"{_age(metric, gpu, late):<9}", "dim")
            line.add(shorten(_source(metric, gpu), width - line.width - 1, glyphs.more), "dim")
        if width >= DEFINED_FROM and line.width < DEFINITION_AT - 1:
            line.to(DEFINITION_AT).add(shorten(metric.definition, width - line.width - 1, glyphs.more), "dim")
        rows.append(line.row(width))
    return rows


def _style(value: float | None) -> str:
    return "dim" if value is None else "value"


def _age(metric: Metric, gpu: GpuSample, late_s: float) -> str:
    if metric.activity and gpu.sm_source in MEASURED:
        return "" if gpu.sm_age_s is None else seconds(gpu.sm_age_s + late_s)
    if metric.seldom:
        return f"0-{late_s + 5:.0f} s"
    return f"{late_s:.0f} s" if late_s else "fresh"


def _source(metric: Metric, gpu: GpuSample) -> str:
    origin = metric.origin or ""
    if not metric.activity:
        return origin
    if SM_SOURCES[gpu.sm_source].dcgm:
        origin = f"{gpu.sm_source}: {metric.dcgm or ''}"
    elif gpu.sm_source == "counters":
        origin = "hardware counters, held exclusively"
    window = "" if gpu.sm_window_s is None else f", mean of {seconds(gpu.sm_window_s)}"
    doubt = gpu.doubts.get(metric.key)
    return origin + window + ("" if doubt is None else f", {doubt}")


def _missing(metric: Metric, gpu: GpuSample) -> str:
    key = metric.key
    reason = gpu.unavailable.get(key)
    if key == "xid" and reason is None and gpu.lost_reason is None:
        return "none seen while watching"
    if reason is None and metric.activity:
        reason = gpu.sm_reason
    reason = terminal_safe(reason or gpu.lost_reason or "this GPU or driver does not report it")
    if key == "sm_active_pct" and gpu.sm_high_pct is not None:
        words = power_word(gpu)
        power = f"; {words}" if words is not None else ""
        return f"bound from UTIL: between {gpu.sm_low_pct or 0:.1f} and {gpu.sm_high_pct:.0f} %{power}; {reason}"
    return reason
