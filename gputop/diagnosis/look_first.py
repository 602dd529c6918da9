"""Which GPU to look at first: the worst one, kept until it is no longer so, so that no screen jumps.

Pure: time enters with the diagnoses.
"""

from __future__ import annotations

from collections.abc import Sequence

from gputop.diagnosis.rules.badges import STRAGGLER
from gputop.diagnosis.telling import is_lost, telling
from gputop.diagnosis.types import GpuDiagnosis

MORE_LOST, FOR_S = 1.5, 30.0
"""Another GPU of the same kind of trouble takes over once it has lost so many times as much, for so many seconds."""
_KINDS = ("not_working", "waiting")


def trouble(d: GpuDiagnosis) -> int | None:
    """How bad a GPU's trouble is, 0 the worst: lost, not working, waiting, waiting for another GPU; None without."""
    if is_lost(d):
        return 0
    if d.about is not None or any(badge.id == STRAGGLER.id and badge.about is not None for badge in d.badges):
        return 1 + len(_KINDS)
    role = telling(d).role
    return 1 + _KINDS.index(role) if role in _KINDS else None


class LookFirst:
    """Holds the GPU to look at first while snapshots pass."""

    def __init__(self) -> None:
        self._chosen: tuple[str, str] | None = None
        """UUID and verdict."""
        self._exceeded_since: float | None = None

    def observe(self, t: float, diagnoses: Sequence[GpuDiagnosis]) -> str | None:
        """The UUID of that GPU at Unix time ``t``; None where no GPU is in trouble."""
        ranked = {(d.uuid, d.verdict): (kind, d) for d in diagnoses if (kind := trouble(d)) is not None}
        if not ranked:
            self._chosen = None
            return None
        worst = min(ranked, key=lambda place: (ranked[place][0], -ranked[place][1].charged_s, ranked[place][1].index))
        kind, first = ranked.get(self._chosen or worst, ranked[worst])
        if ranked[worst][0] == kind and ranked[worst][1].charged_s < MORE_LOST * first.charged_s:
            self._exceeded_since = None
        elif self._exceeded_since is None:
            self._exceeded_since = t
        has_taken_over = self._exceeded_since is not None and t - self._exceeded_since >= FOR_S
        if self._chosen not in ranked or ranked[worst][0] < kind or has_taken_over:
            self._chosen, self._exceeded_since = worst, None
        return self._chosen[0]
