"""The host's rows: load, and activity during idle time."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.diagnosis.rules.bandwidth import COMMUNICATION
from gputop.diagnosis.types import NO_HOST, Attribution
from gputop.diagnosis.window.fabric_window import FabricSignals
from gputop.diagnosis.window.host_activity import serving_on
from gputop.model.clean_text import terminal_safe
from gputop.model.durations import age
from gputop.model.quantity import GIB, NOT_MEASURED, gb_per_s, number
from gputop.model.server_words import server_forms
from gputop.model.snapshot import GpuSample, HostSample
from gputop.monitor import HOST, Frame
from gputop.paint.cells import shorten
from gputop.paint.charts import bar, lane
from gputop.paint.facts import totals
from gputop.paint.gpu_fields import fields
from gputop.paint.line import Line, Row, text_row
from gputop.paint.step_words import longest_that_fits
from gputop.paint.time_axis import axis_for
from gputop.paint.view import View, selected_gpu
from gputop.paint.words import Field, gpu_label


def trouble_fields(fabric: FabricSignals | None) -> list[Field]:
    """Links in trouble and packets lost; empty where nothing is wrong."""
    if fabric is None:
        return []
    fields: list[Field] = []
    if fabric.links:
        fields.append((f"fabric {fabric.links}", "level.red"))
    if fabric.has_losses:
        fields.append((f"fabric {fabric.losses}", "level.yellow"))
    return fields


def traffic_fields(fabric: FabricSignals | None) -> list[Field]:
    """Return the fabric's traffic each way; empty without one."""
    if fabric is None or not fabric.has_fabric:
        return []
    both = (("↓", fabric.rx_bytes_per_s), ("↑", fabric.tx_bytes_per_s))
    return [
        (
            "fabric " + " ".join(f"{arrow}{gb_per_s(value, 3)}" for arrow, value in both) + " GB/s",
            "text",
        )
    ]


BAR_WIDTH = 10
LEAST_TOTALS, LEAST_HISTORY, HISTORY = 120, 150, 24
"""Cells of a screen with totals over all GPUs, and with the host's CPU over time; and the cells of that."""


def title(frame: Frame, width: int, gpus: Sequence[GpuSample]) -> Row:
    """The heading of the host's rows, with its size and the totals."""
    host = frame.snapshot.host
    line = Line().add("─ ", "rule").add("host", "title").add(" ", "rule")
    if width >= LEAST_TOTALS and len(gpus) > 1 and (sums := fields(totals(gpus), width - 40)):
        line.add("─── ", "rule").add(f"{len(gpus)} GPUs   ", "dim").add_all(sums).add(" ", "rule")
    size = []
    if host.cpu_count is not None:
        size.append(f"{host.cpu_count:g} core{'s' * (host.cpu_count != 1)}")
    if host.mem_total_bytes is not None:
        size.append(f"{host.mem_total_bytes / 2**30:.0f} GiB")
    text = "   ".join(size)
    if width >= 60 and text:
        line.rule(width - len(text) - 3).add(f" {text} ", "dim")
    return line.rule(width).row(width)


def _served_elsewhere(frame: Frame, room: int) -> str:
    """Return the work of servers without a known GPU.

    The first is shown, the others are counted.
    """
    snapshot = frame.snapshot
    apart = [row for row in snapshot.servers if row.error is None and not serving_on(snapshot, row)]
    if not apart:
        return ""
    others = f", {len(apart) - 1} more in `gputop once`" if len(apart) > 1 else ""
    # A figure without its server would mean nothing.
    forms = [f"{form}{others}" for form in server_forms(apart[0]) if apart[0].place in form]
    return terminal_safe(longest_that_fits(forms, room))


def _steps(percent: float | None) -> str:
    """A share of the host's time."""
    return f"{NOT_MEASURED:>5}" if percent is None else f"{number(percent, 3)} %"


def _mb_per_s(value: float | None) -> str:
    """Return a rate in whole MB/s."""
    return f"{number(None if value is None else value / 1e6, 5)} MB/s"


def _memory(host: HostSample) -> str:
    """Memory in use, and of how much where that is known."""
    used = number(None if host.mem_used_bytes is None else host.mem_used_bytes / GIB, 4)
    return used if host.mem_total_bytes is None else f"{used} / {host.mem_total_bytes / GIB:.0f}"


def load_fields(frame: Frame) -> list[Field]:
    """Return the host's pressure and memory as fields.

    Their width is fixed; traffic is added where a verdict speaks of it.
    """
    host = frame.snapshot.host
    causes = {d.cause for d in frame.diagnoses}
    fields: list[Field] = [
        *trouble_fields(frame.fabric),
        (f"waiting for a core {_steps(host.psi_cpu_pct)}", "text"),
        (f"for I/O {_steps(host.psi_io_pct)}", "text"),
        (f"mem {_memory(host)} GiB", "text"),
    ]
    if any(d.verdict == COMMUNICATION.id for d in frame.diagnoses):
        fields += traffic_fields(frame.fabric)
    if causes & {"network", "fetch"}:
        fields.append((f"net ↓{_mb_per_s(host.net_rx_bytes_per_s)}", "text"))
    if "disk" in causes:
        fields.append((f"disk ↓{_mb_per_s(host.disk_read_bytes_per_s)}", "text"))
    return fields + _load_fields(host)


def _load_fields(host: HostSample) -> list[Field]:
    """Return load average, used swap and uptime, which give way first."""
    fields: list[Field] = []
    if host.load1 is not None:
        averages = (host.load1, host.load5, host.load15)
        text = " ".join(f"{value:.0f}" for value in averages if value is not None)
        fields.append((f"load {text}", "text"))
    if host.swap_used_bytes and host.swap_total_bytes:
        used, total = host.swap_used_bytes / GIB, host.swap_total_bytes / GIB
        fields.append((f"swap {used:.1f} / {total:.0f} GiB", "level.yellow"))
    if host.uptime_s is not None:
        fields.append((f"up {age(host.uptime_s, 0).strip()}", "dim"))
    return fields


def load(frame: Frame, view: View, width: int, indent: int = 2) -> Row:
    """CPU as a bar and the host's fields."""
    line = Line().to(indent).add("cpu ", "dim")
    line.add(_steps(frame.snapshot.host.cpu_pct), "text").add("   ")
    if width >= LEAST_HISTORY:
        axis = axis_for(
            frame.history.latest_t or frame.snapshot.t, view.span_s, HISTORY, HISTORY // 8
        )
        values = frame.history.columns(HOST, "cpu_pct", axis.width_s, HISTORY - (axis.ahead or 0))
        line.add(*lane(values, "lane.run")).to(line.width + (axis.ahead or 0)).add("   ")
    served = _served_elsewhere(frame, width - line.width - 4)
    if served:
        line.add(served, "text").add("   ")
    return line.add_all(fields(load_fields(frame), width - line.width - 1)).row(width)


def attribution_rows(frame: Frame, view: View, width: int) -> list[Row]:
    """Return the host's activity during a GPU's idle time.

    Shares and, below, facts: of the selected GPU, else of the most idle one that is explained, or a row that says why
    nothing is known. None where no GPU waits for the host.
    """
    explained = _explained(frame, view)
    if explained is None:
        unknown = _unknown(frame, view)
        return [text_row(shorten(unknown, width - 3), width, "dim", 2)] if unknown else []
    label, attribution = explained
    line = Line().to(2).add(idle_words(label, attribution, width), "evidence")
    for name, words in _shares(attribution, width):
        line.add(f"   {name} ", "dim")
        if name == LOADERS and width >= LEAST_TOTALS:
            line.add_all(bar(attribution.running_pct, 100.0, BAR_WIDTH, view.glyphs, "bar.used"))
        line.add(f" {words}", "text")
    rows = [line.row(width)]
    facts: list[Field] = [(terminal_safe(fact), "text") for fact in attribution.facts]
    if attribution.taken_by:
        taken = terminal_safe(f"taken by others: {attribution.taken_by}")
        facts.insert(1, (taken, "level.yellow"))
    if facts:
        rows.append(Line().to(2).add_all(fields(facts, width - 3)).row(width))
    return rows


LOADERS = "loaders"
LEAST_SPOKEN = 130
"""Cells of a screen on which a sentence says what the shares below are about."""


def idle_words(label: str, attribution: Attribution, width: int) -> str:
    """Return ``while GPU 2 idled (62 %):``, or less where there is no room."""
    idle = f"{attribution.idle_pct:.0f} %"
    return (
        f"while GPU {label} idled ({idle}):"
        if width >= LEAST_SPOKEN
        else f"GPU {label} idle {idle}:"
    )


def _shares(attribution: Attribution, width: int) -> list[tuple[str, str]]:
    """Return what loaders and main thread did meanwhile, each with its share in words."""
    parts: list[tuple[str, str]] = []
    if attribution.loaders:
        parts = [
            (LOADERS, _steps(attribution.running_pct)),
            ("queued", _steps(attribution.queued_pct)),
            ("disk", _steps(attribution.disk_pct)),
            ("network", _steps(attribution.network_pct)),
        ]
    is_unclear = attribution.main_busy_pct is not None
    share = _steps(attribution.main_busy_pct if is_unclear else attribution.main_pct)
    if width < LEAST_SPOKEN:
        parts.append(("main", share))
    else:
        parts.append(("main thread", f"{share} busy{', spins or computes' * is_unclear}"))
    return parts


def _unknown(frame: Frame, view: View) -> str:
    """Return why the host's activity is not known.

    Empty where no GPU starves.
    """
    starved = [d for d in frame.diagnoses if d.state == "starved"]
    if not starved:
        return ""
    chosen = frame.diagnoses[selected_gpu(frame, view)]
    d = chosen if chosen in starved else starved[0]
    reason = NO_HOST if d.host_reason is None else f"{NO_HOST}: {d.host_reason}"
    return f"what the host did while GPU {d.index} was idle is unknown: {reason}"


def _explained(frame: Frame, view: View) -> tuple[str, Attribution] | None:
    if not frame.diagnoses:
        return None
    chosen = frame.diagnoses[selected_gpu(frame, view)]
    if chosen.attribution is None:
        starved = [d for d in frame.diagnoses if d.attribution is not None]
        if not starved:
            return None
        chosen = max(
            starved,
            key=lambda d: (d.state == "starved", d.attribution.idle_pct if d.attribution else 0.0),
        )
    gpu = next(g for g in frame.shown.gpus if g.static.uuid == chosen.uuid)
    return (gpu_label(gpu), chosen.attribution) if chosen.attribution is not None else None
