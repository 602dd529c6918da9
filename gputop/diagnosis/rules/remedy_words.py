"""Words of remedies that several rules share, and the resources that they ask for."""

from __future__ import annotations

from msgspec import Struct

from gputop.diagnosis.rules.remedy_conditions import has_pressure
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.window.sample_facts import MEMORY_FULL, memory_of, ratio, swapping

NOT_TRIED = ""
Words = tuple[str, str]
"""A remedy, whole and in short."""
NOTHING: Words = ("", "")


class Spare(Struct, frozen=True):
    """A resource in a remedy: ``{gpu_memory:larger batch, }`` is dropped where none is free.

    Badges ask for less of a resource that is used up; a remedy beside them must not ask for more of it.
    """

    is_left: bool = True

    def __format__(self, words: str) -> str:
        """The words if some is left."""
        return words if self.is_left else ""


ALL_LEFT: dict[str, object] = {
    "gpu_memory": Spare(),
    "host_memory": Spare(),
    "host": Spare(),
    "short": "no core is free",
}
"""What docs print, where nothing is used up."""


def spares(s: Signals) -> dict[str, object]:
    """Resources of this GPU's job; ``host``: cores and memory for one more process."""
    swaps = swapping(s.machine) is not None
    filled = ratio(*memory_of(s.gpu, s.machine)) or 0.0
    return {
        "gpu_memory": Spare(filled < MEMORY_FULL or s.tick.server is not None),
        "host_memory": Spare(not swaps),
        "host": Spare(not swaps and not has_pressure(s)),
        "short": "the host swaps" if swaps else "no core is free",
    }


HIDE_COMMUNICATION = (
    "overlap (bucket_cap_mb, FSDP prefetch), accumulate gradients, bf16 communication; "
    "NCCL_DEBUG=INFO"
)
LARGER_WORK_TEMPLATE, LARGER_SHORT_TEMPLATE = (
    '{gpu_memory:larger batch, }CUDA graphs, torch.compile(mode="reduce-overhead"), fused kernels'
    "{gpu_memory:; a smaller GPU, MIG}", "{gpu_memory:larger batch, }CUDA graphs",
)  # fmt: skip
LARGER_WORK = LARGER_WORK_TEMPLATE.format(**ALL_LEFT)
PINNED_TEMPLATE = (
    "pin_memory=True with non_blocking=True, send uint8{gpu_memory:, keep data on the GPU}"
)
PINNED = PINNED_TEMPLATE.format(**ALL_LEFT)
