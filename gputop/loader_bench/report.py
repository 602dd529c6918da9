"""A loader benchmark's result: as data, and as a table for a terminal with a bar a setting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gputop.loader_bench.restart import Restart
from gputop.loader_bench.rows import Room, Row
from gputop.model.quantity import NOT_MEASURED, memory, seconds
from gputop.model.text import terminal_safe, wrapped

SCHEMA = 1
_BAR = 24
_WIDTH = 100
"""The width of sentences; text to be pasted stays on one line."""
_NESTED = ("rows", "best", "room", "restart")


class LoaderReport(Struct, frozen=True):
    """All settings in the order in which they were measured, the one to use, and why.

    ``best`` is the smallest setting that is fast enough, None where none could be measured. ``need_ms`` is what a batch
    may take, from ``step_ms``. ``confidence`` is ``high``, ``medium`` or ``low``.
    """

    rows: tuple[Row, ...]
    best: Row | None
    conclusion: str
    why: str
    batch_size: int | None
    step_ms: float | None
    need_ms: float | None
    room: Room
    confidence: str
    notes: tuple[str, ...]
    seconds: float
    restart: Restart | None = None
    """How long an epoch's beginning takes with the best setting; None without workers, or where a pass cannot be cut
    short."""
    epochs: int | None = None
    taking: str = ""
    """What taking a batch costs the loop, where that is a large part of its step."""

    def to_dict(self) -> Mapping[str, Any]:
        """A JSON object, schema 1."""
        plain = {key: getattr(self, key) for key in self.__struct_fields__ if key not in _NESTED}
        return {
            "schema": SCHEMA,
            **plain,
            "notes": list(self.notes),
            "room": _fields(self.room),
            "restart": None if self.restart is None else _fields(self.restart) | {"saved_s": self.restart.saved_s},
            "rows": [_row(row) for row in self.rows],
            "best": None if self.best is None else _row(self.best),
        }

    def __str__(self) -> str:
        return loader_text(self)


def _row(row: Row) -> dict[str, Any]:
    found = {key: getattr(row, key) for key in Row.__struct_fields__ if key not in ("setting", "shares")}
    shares = row.shares
    return {
        "workers": row.setting.workers,
        "prefetch": row.setting.prefetch,
        "pin_memory": row.setting.pin_memory,
        **found,
        "batches_per_s": row.batches_per_s,
        "shares": None if shares is None else _fields(shares),
        "kwargs": row.kwargs,
    }


def _fields(struct: Struct) -> dict[str, Any]:
    return {key: getattr(struct, key) for key in struct.__struct_fields__}


def loader_text(report: LoaderReport, *, ascii_only: bool = False) -> str:
    """The report: one row a setting, the answer, why, and the arguments to paste."""
    fastest = max((row.batches_per_s or 0.0 for row in report.rows), default=0.0)
    lines = [f"  {'WORKERS':<14}{'MS A BATCH':>12}  {'±':<6}{'BATCHES/S':>10}{'FIRST':>9}{'MEMORY':>10}"]
    for row in sorted(report.rows, key=lambda r: (r.setting.workers, r.setting.prefetch or 0)):
        mark = "→" if report.best is not None and row.setting.name == report.best.setting.name else " "
        lines.append(f"{mark} {row.setting.name:<14}{_figures(row, fastest)}".rstrip())
    lines += ["", *_folded(report.conclusion)]
    lines += _folded(f"↳ {report.why}") if report.why else []
    lines += _folded(f"↳ {report.taking}") if report.taking else []
    lines += _folded(f"↳ {report.restart.words(report.epochs)}") if report.restart is not None else []
    if report.best is not None:
        given = ", ".join(f"{key}={value!r}" for key, value in report.best.kwargs.items())
        lines.append(f"→ DataLoader(dataset, batch_size={report.batch_size}, {given})")
    lines += [line for note in report.notes for line in _folded(f"note: {note}")]
    lines.append(f"confidence {report.confidence}; {report.room.cores} cores; took {seconds(report.seconds)}")
    text = "\n".join(terminal_safe(line) for line in lines) + "\n"
    return _plain(text) if ascii_only else text


def _folded(text: str) -> list[str]:
    return wrapped(text, _WIDTH, further="  ", whole_words=True)


def _figures(row: Row, fastest: float) -> str:
    if row.batch_ms is None or row.batches_per_s is None:
        return f"  {row.failed}"
    error = "" if row.error_pct is None else f"{row.error_pct:.0f} %" if row.error_pct >= 0.95 else "<1 %"
    first = NOT_MEASURED if row.first_batch_s is None else seconds(row.first_batch_s)
    bar = "█" * max(1, round(_BAR * row.batches_per_s / fastest)) if fastest else ""
    return f"{row.batch_ms:>12.1f}  {error:<6}{row.batches_per_s:>10.1f}{first:>9}{memory(row.memory_bytes):>10}  {bar}"


def _plain(text: str) -> str:
    for char, plain in (("→", ">"), ("↳", ">"), ("█", "#"), ("±", "+-"), ("–", "-"), ("·", ".")):
        text = text.replace(char, plain)
    return text.encode("ascii", "replace").decode("ascii")
