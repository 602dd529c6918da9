"""The numbers of one GPU as fields of fixed width: utilisation, counters, buses, the board."""

from __future__ import annotations

from gputop.model.derived import gap_pct, work
from gputop.model.quantity import NOT_MEASURED
from gputop.model.sm import MEASURED
from gputop.model.snapshot import GpuSample
from gputop.model.throttle import throttle_words
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Span
from gputop.paint.text import gb_per_s, gib, pct, whole

Field = tuple[str, str]


def sm_text(gpu: GpuSample, glyphs: Glyphs, *, red: bool) -> Span:
    """The SM number: measured, a bound, or n/a; never one under another's name. Green praises, so not on a red GPU."""
    if gpu.sm_active_pct is not None:
        return pct(gpu.sm_active_pct), "strong" if red else "value.sm"
    if gpu.sm_high_pct is not None and gpu.sm_high_pct < 99.5:
        return f"{glyphs.at_most}{gpu.sm_high_pct:.0f}"[:4].rjust(3), "dim"
    return (glyphs.more if _is_coming(gpu) else NOT_MEASURED), "dim"


def _is_coming(gpu: GpuSample) -> bool:
    """Whether SM activity is measured and only waits for its second sample."""
    return gpu.sm_source in MEASURED and gpu.sm_active_pct is None and (gpu.sm_reason or "").startswith("collecting")


def number_labels(gpu: GpuSample, glyphs: Glyphs, rows: int = 4, *, alarm: bool, red: bool) -> list[list[Span]]:
    """The first ``rows`` of UTIL, SM, GAP and WORK with their labels, one row each."""
    sm, sm_style = sm_text(gpu, glyphs, red=red)
    labels: list[list[Span]] = [
        [("  UTIL ", "dim"), (pct(gpu.util_pct, 4), "strong")],
        [("  SM   ", "dim"), (f"{sm:>4}", sm_style)],
    ]
    if rows <= len(labels):
        return labels[:rows]
    gap, effort = gap_pct(gpu), work(gpu)
    gap_style = "dim" if gap is None else "value.alarm" if alarm else "value.gap" if gap >= 10 else "dim"
    absent = glyphs.more if _is_coming(gpu) else NOT_MEASURED
    labels += [
        [("  GAP  ", "dim"), (f"{absent:>4}" if gap is None else pct(gap, 4), gap_style)],
        [
            ("  WORK ", "dim"),
            (f"{effort.pct:2.0f} {effort.kind}" if effort else f"{absent:>4}", "strong" if effort else "dim"),
        ],
    ]
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
    """Memory in use and in all: ``58.0 / 80.0 GiB``."""
    total = gib(gpu.mem_total_bytes).strip()
    return f"{gib(gpu.mem_used_bytes, len(total))} / {total} GiB"


def counters(gpu: GpuSample) -> list[Field]:
    """Occupancy, tensor, DRAM (and FP32 where it leads) as fields; left out together where nothing is measured."""
    if gpu.sm_occupancy_pct is None and gpu.tensor_active_pct is None and gpu.dram_active_pct is None:
        return []
    return [
        (f"OCC {pct(gpu.sm_occupancy_pct)}", "text"),
        (f"TENSOR {pct(gpu.tensor_active_pct)}", "text"),
        (f"DRAM {pct(gpu.dram_active_pct)}", "text"),
    ]


def buses(gpu: GpuSample, glyphs: Glyphs) -> list[Field]:
    """PCIe and, where it exists, NVLink traffic in GB/s."""
    parts: list[Field] = []
    if gpu.pcie_rx_bytes_per_s is not None or gpu.pcie_tx_bytes_per_s is not None:
        into, out = gb_per_s(gpu.pcie_rx_bytes_per_s, 4), gb_per_s(gpu.pcie_tx_bytes_per_s, 4)
        parts.append((f"PCIe {glyphs.down}{into} {glyphs.up}{out} GB/s", "dim"))
    if gpu.nvlink_rx_bytes_per_s is not None or gpu.nvlink_tx_bytes_per_s is not None:
        into, out = gb_per_s(gpu.nvlink_rx_bytes_per_s), gb_per_s(gpu.nvlink_tx_bytes_per_s)
        parts.append((f"NVLink {glyphs.down}{into} {glyphs.up}{out} GB/s", "dim"))
    return parts


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
    return [(f"{text}{gb_per_s(value)} GB/s", "text")]


def board(gpu: GpuSample, glyphs: Glyphs) -> list[Field]:
    """Power, temperature, clocks, throttling and memory errors."""
    limit = "" if gpu.power_limit_w is None else f" / {gpu.power_limit_w:.0f}"
    clock = "" if gpu.sm_clock_max_mhz is None else f" / {gpu.sm_clock_max_mhz:.0f}"
    parts: list[Field] = [
        (f"{whole(gpu.power_w, 3)}{limit} W", "text"),
        (f"{whole(gpu.temp_c, 2)} {glyphs.degree}", "text"),
        (f"{whole(gpu.sm_clock_mhz, 4)}{clock} MHz", "text"),
    ]
    if gpu.throttle_reasons is None:
        parts.append(("throttle n/a", "dim"))
    else:
        slowed = throttle_words(gpu.throttle_reasons)
        parts.append((", ".join(slowed), "level.yellow") if slowed else ("no throttle", "dim"))
    if gpu.ecc_uncorrected_volatile is not None:
        parts.append((f"ECC {gpu.ecc_uncorrected_volatile}", "dim"))
    elif gpu.ecc_uncorrected is not None:
        # No error in its lifetime means none since the driver was loaded.
        parts.append((f"ECC {gpu.ecc_uncorrected}{' in its life' if gpu.ecc_uncorrected else ''}", "dim"))
    return parts
