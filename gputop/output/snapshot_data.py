"""Snapshots as data for scripts: JSON and CSV with the catalogue's keys. Unavailable is null, never NaN and never 0."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import asdict

from gputop.diagnosis.hysteresis import flag_now
from gputop.diagnosis.telling import IN_SAMPLE, LEVEL_OF_ROLE, in_sample
from gputop.model.derived import gap_pct
from gputop.model.metrics import (
    GPU_METRICS,
    GPU_STATE,
    GPU_STATIC,
    HOST_METRICS,
    PROCESS_METRICS,
    PROCESS_STATIC,
    SM_PROVENANCE,
)
from gputop.model.quantity import rounded, terminal_safe, wrapped
from gputop.model.serving import row_value, server_lines
from gputop.model.snapshot import SIMULATED, AnySample, GpuSample, ProcessSample, Snapshot, value
from gputop.model.steps import period_value
from gputop.monitor import Frame
from gputop.paint import host_rows, process_table
from gputop.paint.glyphs import ascii_only
from gputop.paint.line import Line, Row, pct
from gputop.paint.numbers import board, buses, counters, fields, memory
from gputop.paint.view import View
from gputop.paint.words import gpu_label, product, sm_provenance, step_words

SCHEMA = 1
_DIGITS = 6
"""Of a number in JSON: what lies behind them is noise."""
_GPU_MEASURED = (*GPU_METRICS, *SM_PROVENANCE, *GPU_STATE)


def _fields(sample: AnySample, *tables: Iterable[str]) -> dict[str, object]:
    return {key: rounded(value(sample, key), _DIGITS) for keys in tables for key in keys}


def gpu_data(gpu: GpuSample) -> dict[str, object]:
    """Static facts, metrics and provenance of one GPU, with the reason for each that is missing or doubtful."""
    return {
        **_fields(gpu, GPU_STATIC, _GPU_MEASURED),
        "unavailable": dict(gpu.unavailable),
        **({"doubts": dict(gpu.doubts)} if gpu.doubts else {}),
    }


def process_data(process: ProcessSample) -> dict[str, object]:
    """Facts and metrics of one process by the catalogue's keys, with the reason for each that is missing."""
    return {
        **_fields(process, PROCESS_METRICS, PROCESS_STATIC),
        "unavailable": dict(process.unavailable),
    }


def snapshot_data(snapshot: Snapshot) -> dict[str, Any]:
    """The JSON object of one snapshot, in the published form (schema 1)."""
    return {
        "schema": SCHEMA,
        "t": snapshot.t,
        "host": {
            "hostname": snapshot.machine.hostname,
            "driver": snapshot.machine.driver,
            "source": snapshot.machine.source,
            **_fields(snapshot.host, HOST_METRICS),
            "unavailable": dict(snapshot.host.unavailable),
            "fabric_ports": [rounded(asdict(port), _DIGITS) for port in snapshot.fabric_ports],
        },
        "gpus": [gpu_data(gpu) for gpu in snapshot.gpus],
        "processes": [process_data(process) for process in snapshot.processes],
        "step_periods": [period_value(period) for period in snapshot.periods],
        "steps": [rounded(asdict(row), _DIGITS) for row in snapshot.steps],
        "servers": [row_value(row) for row in snapshot.servers],
        "notices": list(snapshot.notices),
        "repeats": list(snapshot.repeats),
        "stale": rounded(dict(snapshot.stale), _DIGITS),
    }


def once_data(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot with what one sample shows of each GPU: ``gap_pct``, A, B or C where this one sample lies in it,
    and its state in words.

    ``flag_now`` is not a verdict; ``busy_not_working`` is, and takes half a minute.
    """
    data = snapshot_data(snapshot)
    for row, gpu in zip(data["gpus"], snapshot.gpus, strict=True):
        row["gap_pct"] = rounded(gap_pct(gpu), _DIGITS)
        row["flag_now"] = flag_now(gpu, snapshot.processes)
        row["in_sample"], _ = in_sample(gpu, snapshot.processes)
    return data


def line_values(data: Mapping[str, Any]) -> list[dict[str, object]]:
    """For each GPU of a JSON object what a line may name: its keys, those of the whole, the host's as ``host.x``."""
    host = {f"host.{key}": value for key, value in data["host"].items()}
    whole = {key: value for key, value in data.items() if key not in ("host", "gpus")}
    return [{**host, **whole, **gpu} for gpu in data["gpus"]]


LINE_KEYS = (
    "schema", "t", *GPU_STATIC, *_GPU_MEASURED, "unavailable", "gap_pct", "flag_now", "in_sample",
    "processes", "step_periods", "steps", "servers", "notices", "repeats", "stale", "complete", "missing_gpus",
    *(f"host.{key}" for key in ("hostname", "driver", "source", *HOST_METRICS, "unavailable", "fabric_ports")),
)  # fmt: skip
"""The keys of ``line_values`` for what ``gputop once --json`` prints."""


def json_text(data: Mapping[str, Any]) -> str:
    """One JSON document; a NaN that got this far is an error, not output."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n"


def gpu_csv(snapshot: Snapshot) -> str:
    """One row a GPU under a header of catalogue keys; an empty cell is unavailable."""
    out = io.StringIO()
    keys = ("t", *GPU_STATIC, *_GPU_MEASURED)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(keys)
    for gpu in snapshot.gpus:
        row = {"t": snapshot.t, **gpu_data(gpu)}
        writer.writerow(["" if row[key] is None else row[key] for key in keys])
    return out.getvalue()


# One snapshot as a table for people, plain text: what ``gputop once`` prints.

LONGEST_PROCESS_LIST = 40
FOR_THE_WHY = "a verdict takes half a minute of samples, and says why: gputop diagnose"


def once_rows(frame: Frame, view: View, width: int) -> list[Row]:
    """A title, three lines a GPU, the host and the processes, in rows of ``width`` cells."""
    snapshot = frame.snapshot
    words, style = sm_provenance(snapshot.gpus)
    top = Line().add(terminal_safe(snapshot.machine.hostname)[:40], "strong")
    if snapshot.machine.is_simulated:
        top.add(SIMULATED, "level.info")
    if snapshot.machine.driver:
        top.add(f"   driver {terminal_safe(snapshot.machine.driver)}", "dim")
    rows = [top.add(f"   {words}", style).row(width)]
    for gpu in snapshot.gpus:
        line = (
            Line()
            .add(f"{gpu_label(gpu):>2}  {product(gpu.static.name, gpu.mem_total_bytes)}", "strong")
            .add(" ")
            .to(18)
        )
        if gpu.lost_reason is not None:
            rows.append(line.add(f"LOST: {terminal_safe(gpu.lost_reason)}", "level.red").row(width))
            continue
        if gpu.asleep:
            rows.append(line.add(terminal_safe(gpu.sm_reason or "asleep"), "dim").row(width))
            continue
        if gpu.sm_active_pct is not None:
            sm = pct(gpu.sm_active_pct)
        elif gpu.sm_high_pct is not None:
            sm = f"{view.glyphs.at_most} {gpu.sm_high_pct:.0f} (not measured)"
        else:
            sm = "n/a"
        gap = gap_pct(gpu)
        behind = "" if gap is None else f"  GAP {pct(gap)}"
        line.add(f"UTIL {pct(gpu.util_pct)}  SM {sm}{behind}   ", "value")
        line.add_all(fields([*counters(gpu), (memory(gpu), "text")], width - line.width))
        rows.append(line.row(width))
        useful = step_words(frame, gpu, width - 18)
        if useful:
            rows.append(Line().to(18).add(useful, "text").row(width))
        second = Line().to(18).add_all(fields(board(gpu, view.glyphs) + buses(gpu, view.glyphs), width - 18))
        rows.append(second.row(width))
        words, role = in_sample(gpu, snapshot.processes)
        level = LEVEL_OF_ROLE[role]
        rows.append(Line().to(18).add(f"{view.glyphs.level(level)} {IN_SAMPLE}: {words}", f"level.{level}").row(width))
        if gpu.sm_active_pct is None and gpu.sm_reason:
            why = wrapped(f"SM not measured: {terminal_safe(gpu.sm_reason)}", max(20, width - 18))
            rows.extend(Line().to(18).add(text, "dim").row(width) for text in why)
    for row in snapshot.servers:
        if row.error is None:
            texts = [text for line in server_lines(row) for text in wrapped(line, max(20, width - 2))]
            rows.extend(Line().add(terminal_safe(text), "text").row(width) for text in texts)
    if snapshot.gpus:
        rows.append(Line().add(FOR_THE_WHY, "dim").row(width))
    rows.append(host_rows.load(frame, view, width, indent=0))
    shown = process_table.shown_rows(frame, view)
    if shown:
        rows.append(Line().row(width))
        rows.append(process_table.head(view, width))
        rows.extend(
            process_table.row(row, view, width, frame.process_history, selected=False)
            for row in shown[:LONGEST_PROCESS_LIST]
        )
        if len(shown) > LONGEST_PROCESS_LIST:
            remainder = f"… {len(shown) - LONGEST_PROCESS_LIST} more rows; --json has them all"
            rows.append(Line().add(remainder, "dim").row(width))
    rows.extend(Line().add(terminal_safe(notice)[:width], "level.yellow").row(width) for notice in snapshot.notices)
    if view.glyphs.name == "ascii":
        return [tuple((ascii_only(text), name) for text, name in row) for row in rows]
    return rows
