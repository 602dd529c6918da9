"""A loader benchmark's result: as data, and as a document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, to_builtins

from gputop.model.durations import seconds
from gputop.model.quantity import NOT_MEASURED, count, memory
from gputop.output.document import (
    Bar,
    Block,
    Cell,
    Code,
    Document,
    Items,
    Notes,
    Paragraph,
    Table,
    part,
)
from gputop.output.plain_document import plain


class LoaderSetting(Struct, frozen=True):
    """Workers and prefetch factor of a DataLoader; ``prefetch`` is None without workers."""

    workers: int
    prefetch: int | None = None

    @property
    def kwargs(self) -> dict[str, Any]:
        """Arguments for ``DataLoader(dataset, batch_size=…, **kwargs)``."""
        arguments: dict[str, Any] = {"num_workers": self.workers}
        if self.workers:
            arguments |= {"prefetch_factor": self.prefetch, "persistent_workers": True}
        return arguments

    @property
    def name(self) -> str:
        """Name in a table: ``4``, ``4 prefetch 4``."""
        prefetch = f" prefetch {self.prefetch}" if self.prefetch not in (None, 2) else ""
        return f"{self.workers}{prefetch}"


class Shares(Struct, frozen=True):
    """Activity of the workers during a measurement, each 0–1 of the time."""

    run: float
    queued: float
    disk: float
    network: float


class BenchRow(Struct, frozen=True):
    """Measurement of one setting.

    ``error_pct`` is half of the 95 % interval of ``batch_ms``; ``memory_bytes`` is the PSS of the loader's whole tree,
    None if unreadable. ``failed`` is the reason why there is no figure.
    """

    setting: LoaderSetting
    batch_ms: float | None = None
    error_pct: float | None = None
    first_batch_s: float | None = None
    batches: int = 0
    memory_bytes: float | None = None
    read_bytes_per_s: float | None = None
    shares: Shares | None = None
    failed: str | None = None

    @property
    def batches_per_s(self) -> float | None:
        return 1000.0 / self.batch_ms if self.batch_ms else None

    @property
    def kwargs(self) -> dict[str, Any]:
        """Arguments for DataLoader."""
        return self.setting.kwargs


class Room(Struct, frozen=True):
    """Resources of the machine; None is unknown.

    Free memory and shared memory are in bytes; ``psi_cpu_pct`` is the share of the last ten seconds in which tasks
    waited for a core.
    """

    cores: int
    free_bytes: float | None
    shm_bytes: float | None
    psi_cpu_pct: float | None

    @property
    def is_crowded(self) -> bool:
        """True if other load is so high that no figure is certain."""
        return self.psi_cpu_pct is not None and self.psi_cpu_pct > CROWDED_PCT


CROWDED_PCT = 20.0


SCHEMA = 1


class LoaderReport(Struct, frozen=True):
    """Settings in the order in which they were measured, the one to use, and why.

    ``best`` is the smallest setting that is fast enough, None if none could be measured. ``need_ms`` is the time
    that a batch may take, from ``step_ms``. ``confidence`` is ``high``, ``medium`` or ``low``. ``python`` is the
    interpreter that ran the dataset.
    """

    rows: tuple[BenchRow, ...]
    best: BenchRow | None
    conclusion: str
    why: str
    batch_size: int | None
    step_ms: float | None
    need_ms: float | None
    room: Room
    confidence: str
    notes: tuple[str, ...]
    seconds: float
    python: str = ""

    def to_dict(self) -> Mapping[str, Any]:
        """Return a JSON object, schema 1."""
        return {
            "schema": SCHEMA,
            **to_builtins(self),
            "notes": list(self.notes),
            "rows": [_row(row) for row in self.rows],
            "best": None if self.best is None else _row(self.best),
        }

    def __str__(self) -> str:
        return plain(loader_document(self))


def _row(row: BenchRow) -> dict[str, Any]:
    values: dict[str, Any] = to_builtins(row)
    return {
        **values.pop("setting"),
        **values,
        "batches_per_s": row.batches_per_s,
        "kwargs": row.kwargs,
    }


def loader_document(report: LoaderReport) -> Document:
    """Return a document: one row per setting, the answer, why, and arguments to paste."""
    fastest = max((row.batches_per_s or 0.0 for row in report.rows), default=0.0)
    rows = sorted(report.rows, key=lambda r: (r.setting.workers, r.setting.prefetch or 0))
    best = None if report.best is None else report.best.setting.name
    cells = tuple(_cells(row, fastest, "→ " if row.setting.name == best else "") for row in rows)
    head = ("workers", "ms a batch", "±", "batches/s", "first batch", "memory", "")
    blocks: list[Block] = [
        Table(head, cells, "<>>>>>=", tuple(row.failed or "" for row in rows)),
        *part("Why", Items(tuple(filter(None, (report.why,))))),
    ]
    if report.best is not None:
        arguments = ", ".join(f"{key}={value!r}" for key, value in report.best.kwargs.items())
        blocks.append(
            Code((f"→ DataLoader(dataset, batch_size={report.batch_size}, {arguments})",))
        )
    facts = [
        f"confidence {report.confidence}",
        count(report.room.cores, "core"),
        f"took {seconds(report.seconds)}",
    ]
    if report.python:
        facts.append(f"Python: {report.python}")
    took = "; ".join(facts)
    return Document(report.conclusion, (*blocks, Notes(report.notes), Paragraph(took)))


def _cells(row: BenchRow, fastest: float, mark: str) -> tuple[Cell, ...]:
    name = f"{mark}{row.setting.name}"
    if row.batch_ms is None or row.batches_per_s is None:
        return (name, *[""] * 6)
    error = (
        ""
        if row.error_pct is None
        else f"{row.error_pct:.0f} %"
        if row.error_pct >= 0.95
        else "<1 %"
    )
    first = NOT_MEASURED if row.first_batch_s is None else seconds(row.first_batch_s)
    bar = Bar((("compute", name, 100.0 * row.batches_per_s / fastest),))
    figures = (
        f"{row.batch_ms:.1f}",
        error,
        f"{row.batches_per_s:.1f}",
        first,
        memory(row.memory_bytes),
    )
    return (name, *figures, bar)
