"""The result of a command that reads once, with missing GPUs."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from gputop.model.quantity import numbers
from gputop.model.snapshot import Snapshot
from gputop.sources.nvml.gpu_device import GpusReading

WAIT_S = 10.0
"""How long a command that reads once waits for the first complete reading."""
SLOW_S = 1.0
"""After this time it says what it is waiting for."""


class MissingGpu(Struct, frozen=True):
    """A requested GPU that was not read, and why."""

    index: int
    uuid: str
    name: str
    reason: str


class OneReading(Struct, frozen=True):
    """A snapshot for a command that reads once.

    Complete when every GPU was read twice, as rates and SM activity need.
    """

    snapshot: Snapshot
    complete: bool = True
    missing: tuple[MissingGpu, ...] = ()

    @property
    def has_measured(self) -> bool:
        """Whether any GPU was read, or all were deliberately left out."""
        gpus = self.snapshot.gpus
        return any(gpu.lost_reason is None for gpu in gpus) or (self.complete and not gpus)

    def data(self) -> dict[str, Any]:
        """Return the reading's own keys of a JSON object."""
        return {"complete": self.complete, "missing_gpus": to_builtins(self.missing)}


def incomplete(
    snapshot: Snapshot, progress: GpusReading, wait_s: float, read_once: bool
) -> OneReading:
    """Return the reading after a timeout, with a notice of missing GPUs.

    ``read_once`` says that every GPU was read once already, so that only the second reading is missing.
    """
    sample_of_uuid = {gpu.static.uuid: gpu for gpu in snapshot.gpus}
    missing, late = [], []
    for static in progress.chosen:
        sample = sample_of_uuid.get(static.uuid)
        if sample is None:
            late.append(static.index)
            why = f"not read within {wait_s:g} s"
        elif static.index in progress.hung:
            why = sample.lost_reason or "its call does not return"
        else:
            continue
        missing.append(MissingGpu(static.index, static.uuid, static.name, why))
    notices = list(snapshot.notices)
    if late:
        notices.append(
            f"GPU {numbers(late)}: not read within {wait_s:g} s, the driver answers slowly; --wait gives it longer"
        )
    elif read_once and not missing:
        notices.append(
            f"rates and SM activity need a second reading, which did not come within {wait_s:g} s; "
            "--wait gives the driver longer"
        )
    return OneReading(replace(snapshot, notices=tuple(notices)), False, tuple(missing))


def waiting_for(progress: GpusReading, wait_s: float, read_once: bool) -> str:
    """Describe what a command that reads once is waiting for."""
    limit = f"at most {wait_s:g} s"
    if progress.hung:
        return (
            f"waiting for GPU {numbers(progress.hung)}, where a driver call has not returned; "
            f"{limit}"
        )
    if read_once:
        return f"waiting for the driver's second reading; {limit}"
    if progress.chosen:
        return (
            f"waiting for the driver: {len(progress.gpus)} of {len(progress.chosen)} GPUs read so "
            f"far; {limit}"
        )
    return f"waiting for the driver to list its GPUs; {limit}"
