"""The data of a loader benchmark: settings, their measurements, and the machine."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Setting(Struct, frozen=True):
    """Arguments of a DataLoader. ``prefetch`` is None without workers, which have nothing to prefetch."""

    workers: int
    prefetch: int | None = None
    pin_memory: bool = False
    persistent: bool = True

    @property
    def kwargs(self) -> dict[str, Any]:
        """As ``DataLoader(dataset, batch_size=…, **kwargs)`` takes them."""
        given: dict[str, Any] = {"num_workers": self.workers}
        if self.workers:
            given |= {"prefetch_factor": self.prefetch, "persistent_workers": self.persistent}
        return given | ({"pin_memory": True} if self.pin_memory else {})

    @property
    def name(self) -> str:
        """As a table has it: ``4``, ``4 prefetch 4``."""
        more = f" prefetch {self.prefetch}" if self.prefetch not in (None, 2) else ""
        return f"{self.workers}{more}{' pinned' if self.pin_memory else ''}"


class Shares(Struct, frozen=True):
    """What the workers did while they were measured, each 0–1 of the time, as gputop's collector saw it."""

    run: float
    queued: float
    disk: float
    network: float


class Row(Struct, frozen=True):
    """One setting. ``error_pct`` is half of the 95 % interval of ``batch_ms``; ``memory_bytes`` is the PSS of the
    loader's whole tree, None where it cannot be read. ``take_ms`` is what the loop waits for a batch that is ready,
    None without workers and for batches too slow to measure it. ``failed`` says why there is no figure, in words."""

    setting: Setting
    batch_ms: float | None = None
    error_pct: float | None = None
    first_batch_s: float | None = None
    batches: int = 0
    memory_bytes: float | None = None
    read_bytes_per_s: float | None = None
    shares: Shares | None = None
    failed: str | None = None
    take_ms: float | None = None

    @property
    def batches_per_s(self) -> float | None:
        return 1000.0 / self.batch_ms if self.batch_ms else None

    @property
    def kwargs(self) -> dict[str, Any]:
        """Arguments for DataLoader."""
        return self.setting.kwargs


class Room(Struct, frozen=True):
    """What the machine offers: cores, free memory and shared memory in bytes, and the share of the last ten seconds in
    which tasks waited for a core, in percent. None is unknown."""

    cores: int
    free_bytes: float | None
    shm_bytes: float | None
    psi_cpu_pct: float | None

    @property
    def is_crowded(self) -> bool:
        """Whether other load is so high that no figure here is certain."""
        return self.psi_cpu_pct is not None and self.psi_cpu_pct > CROWDED_PCT


CROWDED_PCT = 20.0
