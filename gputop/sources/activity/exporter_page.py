"""Parses an answer of dcgm-exporter.

Read line by line, so that a damaged one takes no other with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite

from msgspec import Struct

from gputop.model.exposition import Labels, PageLimitError, parse_page
from gputop.model.metrics import ROUNDED_PCT

BLANK = 2.0**47
"""DCGM's blank values, which mean that there is none, begin here (DCGM_FP64_BLANK in dcgm_structs.h)."""
PERCENT_ABOVE = 1.5
"""Ratios are 0 to 1, but some builds print percent: a value above this, and not above 100, gives such a build away."""

NAMES = {
    "DCGM_FI_PROF_SM_ACTIVE": "sm_active_pct",
    "DCGM_FI_PROF_SM_UTIL_RATIO": "sm_active_pct",
    "DCGM_FI_PROF_SM_OCCUPANCY": "sm_occupancy_pct",
    "DCGM_FI_PROF_SM_OCCUPANCY_RATIO": "sm_occupancy_pct",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "tensor_active_pct",
    "DCGM_FI_PROF_TENSOR_UTIL_RATIO": "tensor_active_pct",
    "DCGM_FI_PROF_DRAM_ACTIVE": "dram_active_pct",
    "DCGM_FI_PROF_DRAM_UTIL_RATIO": "dram_active_pct",
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": "fp64_active_pct",
    "DCGM_FI_PROF_FP64_UTIL_RATIO": "fp64_active_pct",
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": "fp32_active_pct",
    "DCGM_FI_PROF_FP32_UTIL_RATIO": "fp32_active_pct",
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": "fp16_active_pct",
    "DCGM_FI_PROF_FP16_UTIL_RATIO": "fp16_active_pct",
    "DCGM_FI_PROF_PIPE_INT_ACTIVE": "int_active_pct",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "graphics_active_pct",
    "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": "graphics_active_pct",
}
"""Exporter names of both generations (dcgm_fields.h renamed them, the numbers stayed) → catalogue key."""

Entity = tuple[str, int | None]
"""UUID of a physical GPU, and NVML's id of the GPU instance where it is one of a MIG GPU."""

_PREFIX, _PROFILING = "DCGM_FI_", "DCGM_FI_PROF_"
_INSTANCE = re.compile(r"[0-9]{1,3}")


class Exported(Struct, frozen=True):
    """One answer of an exporter.

    ``rows`` are ratios as printed, by entity and catalogue key; a blank is None. ``uuids`` are all GPUs that any row
    names. ``mark`` is a number that changes with any value of a GPU; the exporter's own figures and the order of rows
    do not count. ``only_ratios`` where there are only profiling rows. ``faults`` name what was left out for a limit.
    """

    rows: Mapping[Entity, Mapping[str, float | None]]
    uuids: frozenset[str]
    mark: int
    only_ratios: bool
    faults: tuple[str, ...] = ()

    def prints_percent(self) -> bool:
        """Whether a value shows that this build prints percent, not ratios."""
        return any(
            PERCENT_ABOVE < (v or 0.0) <= ROUNDED_PCT
            for row in self.rows.values()
            for v in row.values()
        )


def parse(text: str) -> Exported:
    """Parse an answer.

    A last line without its newline was cut off and is left out.
    """
    try:
        page = parse_page(text, _is_dcgm)
    except PageLimitError as error:
        return Exported({}, frozenset(), 0, only_ratios=False, faults=(str(error),))
    rows: dict[Entity, dict[str, float | None]] = {}
    uuids: set[str] = set()
    marks: set[str] = set()
    only_ratios = True
    for sample in page.samples:
        uuid = _label(sample.labels, "UUID")
        if not uuid:
            continue
        uuids.add(uuid)
        marks.add(sample.line)
        if not sample.name.startswith(_PROFILING):
            # Only whether they differ, and whose they are, matters.
            only_ratios = False
            continue
        key, entity = NAMES.get(sample.name), _entity(uuid, sample.labels)
        if key is not None and entity is not None:
            rows.setdefault(entity, {})[key] = _believable(sample.value)
    return Exported(
        rows, frozenset(uuids), hash(frozenset(marks)), only_ratios, tuple(map(str, page.left_out))
    )


def _is_dcgm(name: str) -> bool:
    return name.startswith(_PREFIX)


def _entity(uuid: str, labels: Labels) -> Entity | None:
    """Return the owner of a row.

    None for a MIG instance without its number, which cannot be assigned.
    """
    instance = _label(labels, "GPU_I_ID")
    if not instance:
        return None if _label(labels, "GPU_I_PROFILE") else (uuid, None)
    return (uuid, int(instance)) if _INSTANCE.fullmatch(instance) else None


def _label(labels: Labels, name: str) -> str:
    """Return a label that some builds write in small letters."""
    return labels.get(name, labels.get(name.lower(), ""))


def _believable(value: float) -> float | None:
    """Return a ratio; None for DCGM's blanks and what no ratio is."""
    return value if isfinite(value) and 0.0 <= value < BLANK else None
