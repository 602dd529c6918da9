"""GPU products: peak performance and MIG shares.

Few rows, each with its document. A card that is not listed has no figure: a guess would give a guessed utilisation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from gputop.model.snapshot import GpuStatic

SLICES, OF_FOUR = 7, ("A30", "RTX PRO 6000")
"""Compute slices of a MIG card, and cards with four slices.

NVIDIA MIG User Guide, supported profiles.
"""


def mig_share(name: str) -> float | None:
    """Share of the card's slices by a MIG instance's name.

    ``3g.40gb`` is 3 of 7; None for a name without a profile.
    """
    profile = re.search(r"(?:^|\s)(?:\dc\.)?(\d)g\.\d+gb", name)
    return (
        int(profile[1]) / (4 if any(card in name for card in OF_FOUR) else SLICES)
        if profile
        else None
    )


def card_shares(gpus: Iterable[GpuStatic]) -> dict[str, float]:
    """Share of the card of each GPU by UUID.

    1 for a whole GPU, 0 for one that MIG has split, and its slices for an instance. Without a profile in their names
    the instances of a card have equal shares.
    """
    gpus = list(gpus)
    parts = Counter(gpu.mig_parent for gpu in gpus if gpu.mig_parent is not None)
    return {
        gpu.uuid: float(not parts[gpu.uuid])
        if gpu.mig_parent is None
        else mig_share(gpu.name) or 1.0 / parts[gpu.mig_parent]
        for gpu in gpus
    }
