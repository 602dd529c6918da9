"""Training steps: announced by jobs, or found from outside.

A job announces its steps by ``gputop.watch``; from outside only the length of a step can be found. The claims of a
datagram or a recording are checked here. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import replace

from gputop.model.bounds import Text
from gputop.model.clean_text import clean_text
from gputop.model.secrets import masked_text

MOST_STEP_ROWS = 8192
DIGITS = 16
"""Hex digits of a run's name on the wire.

The name is a hash, so that no address travels.
"""
MOST_NAME = 64
"""Characters of the name of a run."""
_LEEWAY = 1e-3
"""Rounding of sums against minimum and maximum, as a share."""
MOST_MFU_PCT = 100.0
"""Highest possible MFU; higher figures are rejected with a reason."""
MFU_REMEDY = (
    "check what work() is told: tokens, parameters or flops are of one step of this process, "
    "peak_flops of one GPU"
)
Pid = Annotated[int, Meta(ge=1, lt=2**31)]
Index = Annotated[int, Meta(ge=0, lt=2**31)]
_Seconds = Annotated[float, Meta(ge=0.0, le=1e7)]
_Amount = Annotated[float, Meta(gt=0.0, le=1e15)]


Phase = Literal["forward", "backward", "optimizer", "between"]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""The phases of a step, in the order of a step but for the time between two, which is last."""


class StepRow(Struct, frozen=True, omit_defaults=True):
    """Steps of one process in about a second.

    ``pid`` is as this machine sees it. ``rank`` is the job's, ``gpu`` an index if the job knows it; both may be None.
    ``count`` steps took ``sum_s`` seconds together; the shortest, the longest, the median and the 99th percentile
    follow. Fields up to here have the order of the rows in a recording. ``samples`` and ``tokens`` are totals of these
    steps. ``wait_s`` is the seconds that the process waited for others, ``data_wait_s`` for its own batches.
    ``mfu_pct`` is the job's own figure of model FLOPs utilisation in percent, which may exceed the possible. Each is
    None if the job does not announce it. ``forward_s``, ``backward_s``, ``optimizer_s`` and ``between_s`` are the host
    time of a step by phase, in seconds: means of the steps that the job has measured. ``run`` is shared by the ranks of
    one run only (``run_of``); None if a program other than gputop announces its steps without one.
    """

    pid: Pid
    rank: Index | None
    gpu: Index | None
    name: Text
    count: Annotated[int, Meta(ge=1, lt=10_000_000)]
    sum_s: float
    min_s: _Seconds
    max_s: _Seconds
    p50_s: _Seconds
    p99_s: _Seconds
    samples: _Amount | None = None
    wait_s: _Seconds | None = None
    data_wait_s: _Seconds | None = None
    tokens: _Amount | None = None
    mfu_pct: Annotated[float, Meta(gt=0.0, le=1e6)] | None = None
    forward_s: _Seconds | None = None
    backward_s: _Seconds | None = None
    optimizer_s: _Seconds | None = None
    between_s: _Seconds | None = None
    run: Annotated[str, Meta(pattern=f"^[0-9a-f]{{1,{DIGITS}}}\\Z")] | None = None

    @property
    def phases(self) -> dict[Phase, float]:
        """Seconds of host time a step, by known phase."""
        seconds_of_phases = (self.forward_s, self.backward_s, self.optimizer_s, self.between_s)
        return {
            phase: seconds
            for phase, seconds in zip(PHASES, seconds_of_phases, strict=True)
            if seconds is not None
        }


BESIDE = (
    "samples",
    "wait_s",
    "data_wait_s",
    "tokens",
    "mfu_pct",
    *(f"{phase}_s" for phase in PHASES),
    "run",
)
COLUMNS = StepRow.__struct_fields__[: -len(BESIDE)]
"""The fields of a row in a recording; what is ``BESIDE`` stands beside the rows."""


def step_row(values: Sequence[object], **beside: object) -> StepRow | None:
    """Convert values in the order of the fields to a row.

    None if they cannot be true.
    """
    if len(values) != len(COLUMNS):
        return None
    try:
        row = convert({**dict(zip(COLUMNS, values, strict=True)), **beside}, StepRow)
    except ValidationError:
        return None
    return checked_steps(row)


def checked_steps(row: StepRow) -> StepRow | None:
    """Return a row with a harmless name.

    None if its times cannot belong to the same steps.
    """
    return (
        replace(row, name=masked_text(clean_text(row.name))[:MOST_NAME]) if _adds_up(row) else None
    )


def _adds_up(row: StepRow) -> bool:
    """Whether its times can belong to the same steps."""
    above, below = 1.0 + _LEEWAY, 1.0 - _LEEWAY
    return (
        row.min_s * below <= row.p50_s <= row.max_s * above
        and row.p50_s * below <= row.p99_s <= row.max_s * above
        and row.count * row.min_s * below <= row.sum_s <= row.count * row.max_s * above
        and max(row.wait_s or 0.0, row.data_wait_s or 0.0) <= row.sum_s * above
    )
