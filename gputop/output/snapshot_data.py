"""A snapshot as JSON, CSV, lines or a table.

Unavailable is null, never NaN and never 0.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from gputop.diagnosis.summary import IN_SAMPLE, LEVEL_OF_ROLE, in_sample
from gputop.model.derived import gap_pct
from gputop.model.json_keys import DIGITS, json_keys, keys_of
from gputop.model.metrics import GPU_METRICS, GPU_STATE, GPU_STATIC, SM_PROVENANCE
from gputop.model.quantity import NOT_MEASURED, clock_time, csv_cell, number, rounded, terminal_safe, wrapped
from gputop.model.serving import server_lines
from gputop.model.snapshot import SIMULATED, GpuSample, HostSample, Snapshot, value
from gputop.model.source import UsageError
from gputop.monitor import Frame
from gputop.paint import host_rows, process_table
from gputop.paint.facts import board, buses, counters
from gputop.paint.glyphs import level_glyph
from gputop.paint.line import Line, Row, text_row
from gputop.paint.view import View
from gputop.paint.words import fields, gpu_label, memory, product, sm_provenance, step_words

SCHEMA = 1
_GPU_MEASURED = (*GPU_METRICS, *SM_PROVENANCE, *GPU_STATE)


def snapshot_data(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot as JSON in the published form, schema 1."""
    return {
        "schema": SCHEMA,
        "t": snapshot.t,
        "host": {
            "hostname": snapshot.machine.hostname,
            "driver": snapshot.machine.driver,
            "source": snapshot.machine.source,
            **json_keys(snapshot.host),
            "fabric_ports": list(map(json_keys, snapshot.fabric_ports)),
        },
        "gpus": list(map(json_keys, snapshot.gpus)),
        "processes": list(map(json_keys, snapshot.processes)),
        "step_periods": list(map(json_keys, snapshot.periods)),
        "steps": list(map(json_keys, snapshot.steps)),
        "servers": list(map(json_keys, snapshot.servers)),
        "notices": list(snapshot.notices),
        "repeats": list(snapshot.repeats),
        "stale": rounded(dict(snapshot.stale), DIGITS),
    }


def once_data(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot as JSON, with GAP and state of each GPU.

    The state in this one sample is no verdict.
    """
    data = snapshot_data(snapshot)
    for row, gpu in zip(data["gpus"], snapshot.gpus, strict=True):
        row["gap_pct"] = rounded(gap_pct(gpu), DIGITS)
        row["in_sample"], _ = in_sample(gpu, snapshot.processes)
    return data


def line_values(data: Mapping[str, Any]) -> list[dict[str, object]]:
    """Values for ``--format``, a dictionary for each GPU.

    It has the keys of the GPU, of the whole, and of the host as ``host.x``.
    """
    host = {f"host.{key}": value for key, value in data["host"].items()}
    whole = {key: value for key, value in data.items() if key not in ("host", "gpus")}
    return [{**host, **whole, **gpu} for gpu in data["gpus"]]


LINE_KEYS = (
    "schema", "t", *keys_of(GpuSample), "gap_pct", "in_sample",
    "processes", "step_periods", "steps", "servers", "notices", "repeats", "stale", "complete", "missing_gpus",
    *(f"host.{key}" for key in ("hostname", "driver", "source", *keys_of(HostSample), "fabric_ports")),
)  # fmt: skip
"""The keys of ``line_values`` for what ``gputop once --json`` prints."""


def json_text(data: Mapping[str, Any]) -> str:
    """JSON on one line.

    Raises ValueError for NaN, which is no JSON.
    """
    return json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n"


def gpu_csv(snapshot: Snapshot) -> str:
    """CSV with a row for each GPU; unavailable cells are empty."""
    out = io.StringIO()
    keys = ("t", *GPU_STATIC, *_GPU_MEASURED)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(keys)
    for gpu in snapshot.gpus:
        cells = (snapshot.t, *(rounded(value(gpu, key), DIGITS) for key in keys[1:]))
        writer.writerow(map(csv_cell, cells))
    return out.getvalue()


# ``--format``: a line a GPU with values in the place of ``{keys}``, for status lines and prompts.
#
# Has its own substitution: Python's would reach attributes of what it is given.

_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
MOST_LISTED = 3
SAME = {"gpu": "index"}
"""Two names of one thing: columns, filters and labels call a GPU's index ``gpu``."""


def checked(template: str, keys: Collection[str]) -> str:
    """Check that all names in a template are ``keys``.

    Raises UsageError with the reason.
    """
    for part in _PART.finditer(template):
        if part[0] in ("{{", "}}"):
            continue
        if part[1] is None:
            raise UsageError(f"--format: a single {part[0]} in {template!r}; write {part[0] * 2} to print one")
        if part[1] not in keys and SAME.get(part[1]) not in keys:
            from difflib import get_close_matches

            near = get_close_matches(part[1], [*keys, "gpu"], MOST_LISTED)
            hint = f": did you mean {' or '.join(near)}?" if near else ";"
            raise UsageError(f"--format: there is no {part[1]!r}{hint} `--json` shows every key")
    return template


def formatted(template: str, values: Mapping[str, object]) -> str:
    """Fill a template that was ``checked``."""

    def value(part: re.Match[str]) -> str:
        return part[0][0] if part[1] is None else _text(values.get(part[1], values.get(SAME.get(part[1], ""))))

    return _PART.sub(value, template)


def _text(value: object) -> str:
    if value is None:
        return NOT_MEASURED
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        # As much as a status line can use; whole numbers without a point.
        return f"{value:.1f}".removesuffix(".0")
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return terminal_safe("; ".join(value))
    if isinstance(value, (dict, list, tuple)):
        return terminal_safe(json.dumps(value, ensure_ascii=False))
    return terminal_safe(str(value))


# One snapshot as a table for people, plain text: what ``gputop once`` prints.

LONGEST_PROCESS_LIST = 40
_INDENT = 18
FOR_THE_WHY = "a verdict takes some seconds of samples, and says why: gputop diagnose"


def once_rows(frame: Frame, view: View, width: int) -> list[Row]:
    """A snapshot as a table in rows of ``width`` cells."""
    snapshot = frame.snapshot
    words, style = sm_provenance(snapshot.gpus)
    top = Line().add(terminal_safe(snapshot.machine.hostname)[:40], "strong")
    if snapshot.machine.is_simulated:
        top.add(SIMULATED, "level.info")
    if snapshot.machine.driver:
        top.add(f"   driver {terminal_safe(snapshot.machine.driver)}", "dim")
    lines = [top.add(f"   {words}", style)]
    for gpu in snapshot.gpus:
        lines += _gpu_lines(frame, gpu, view, width)
    served = [text for row in snapshot.servers if row.error is None for text in server_lines(row)]
    lines += [Line().add(terminal_safe(text), "text") for line in served for text in wrapped(line, max(20, width - 2))]
    if snapshot.gpus:
        lines.append(Line().add(FOR_THE_WHY, "dim"))
    rows = [line.row(width) for line in lines]
    rows.append(host_rows.load(frame, view, width, indent=0))
    if shown := process_table.shown_rows(frame, view):
        rows += [Line().row(width), process_table.head(view, width)]
        rows += [
            process_table.row(row, view, width, frame.process_history, selected=False)
            for row in shown[:LONGEST_PROCESS_LIST]
        ]
        if len(shown) > LONGEST_PROCESS_LIST:
            remainder = f"… {len(shown) - LONGEST_PROCESS_LIST} more rows; --json has them all"
            rows.append(text_row(remainder, width, "dim"))
    return rows + _notices(snapshot, width)


def _notices(snapshot: Snapshot, width: int) -> list[Row]:
    return [text_row(terminal_safe(notice)[:width], width, "level.yellow") for notice in snapshot.notices]


def line_rows(frame: Frame, view: View, width: int, *, clock: bool = False) -> list[Row]:
    """A line a GPU: what it does, memory, power, temperature and users; with ``clock`` after the time of day."""
    snapshot = frame.snapshot
    names = {gpu.static.uuid: product(gpu.static.name, gpu.mem_total_bytes) for gpu in snapshot.gpus}
    room = max(map(len, names.values()), default=0)
    samples = {gpu.static.uuid: in_sample(gpu, snapshot.processes) for gpu in snapshot.gpus}
    longest = max((len(words) for words, _ in samples.values()), default=0)
    rows = []
    for gpu in snapshot.gpus:
        line = Line()
        if clock:
            line.add(f"{clock_time(snapshot.t, view.utc_offset_s)} ", "dim")
        line.add(f"{gpu_label(gpu):>2}  {names[gpu.static.uuid]:<{room}}  ", "strong")
        if not _is_silent(gpu, line):
            words, role = samples[gpu.static.uuid]
            level = LEVEL_OF_ROLE[role]
            line.add(f"UTIL {number(gpu.util_pct, 3)}  SM {number(gpu.sm_active_pct, 3)}  {memory(gpu)}  ", "value")
            line.add(f"{level_glyph(level)} {words:<{min(longest, width - line.width - 30)}}  ", f"level.{level}")
            users = sorted({p.static.user for p in snapshot.processes if p.gpu == gpu.static.index and p.static.user})
            owner = [(terminal_safe(" ".join(users)), "dim")] if users else []
            line.add_all(fields([*owner, *board(gpu)], width - line.width, gap="  "))
        rows.append(line.row(width))
    return rows if clock else rows + _notices(snapshot, width)


def _is_silent(gpu: GpuSample, line: Line) -> bool:
    """Whether a GPU is lost or asleep; the line then says so."""
    if gpu.lost_reason is not None:
        line.add(f"LOST: {terminal_safe(gpu.lost_reason)}", "level.red")
    elif gpu.asleep:
        line.add(terminal_safe(gpu.sm_reason or "asleep"), "dim")
    return gpu.lost_reason is not None or bool(gpu.asleep)


def _gpu_lines(frame: Frame, gpu: GpuSample, view: View, width: int) -> Iterator[Line]:
    """Lines of one GPU; for a lost or sleeping one the reason."""
    line = Line().add(f"{gpu_label(gpu):>2}  {product(gpu.static.name, gpu.mem_total_bytes)}", "strong")
    line.add(" ").to(_INDENT)
    if _is_silent(gpu, line):
        yield line
        return
    sm = number(gpu.sm_active_pct, 3)
    if gpu.sm_active_pct is None:
        bound = gpu.sm_high_pct
        sm = "n/a" if bound is None else f"≤ {bound:.0f} (not measured)"
    gap = gap_pct(gpu)
    behind = "" if gap is None else f"  GAP {number(gap, 3)}"
    line.add(f"UTIL {number(gpu.util_pct, 3)}  SM {sm}{behind}   ", "value")
    yield line.add_all(fields([*counters(gpu), (memory(gpu), "text")], width - line.width))
    if useful := step_words(frame, gpu, width - _INDENT):
        yield Line().to(_INDENT).add(useful, "text")
    measured = board(gpu) + buses(gpu)
    yield Line().to(_INDENT).add_all(fields(measured, width - _INDENT))
    words, role = in_sample(gpu, frame.snapshot.processes)
    level = LEVEL_OF_ROLE[role]
    yield Line().to(_INDENT).add(f"{level_glyph(level)} {IN_SAMPLE}: {words}", f"level.{level}")
    if gpu.sm_active_pct is None and gpu.sm_reason:
        for text in wrapped(f"SM not measured: {terminal_safe(gpu.sm_reason)}", max(20, width - _INDENT)):
            yield Line().to(_INDENT).add(text, "dim")
