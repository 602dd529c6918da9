"""GPU time: worked, wasted by cause, idle, not judged, not recorded.

Every product shows these numbers and no others: the report as text, Markdown, page and JSON, and the diagnosis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from gputop.diagnosis.types import STATE_WORDS, STATES, Level, State
from gputop.diagnosis.verdict.catalogue import lost_roles, titles
from gputop.diagnosis.verdict.summary import LEVEL_OF_ROLE
from gputop.model.quantity import HOUR_S
from gputop.report.gpu_account import GpuReport

WORKED, UNUSED, UNJUDGED, UNRECORDED = "worked", "idle", "unmeasured", "unrecorded"
_WORDS = {
    WORKED: "worked",
    UNUSED: "idle",
    UNJUDGED: STATE_WORDS["unmeasured"],
    UNRECORDED: "not recorded",
}
_LEVELS: Mapping[str, Level] = {
    WORKED: "green",
    UNUSED: "info",
    UNJUDGED: "grey",
    UNRECORDED: "grey",
}


class TimeRow(Struct, frozen=True):
    """A part of the GPU time, in seconds.

    ``key`` is "worked", the verdict that wasted it, "idle" (nobody held the GPU), "unmeasured" (not judged) or
    "unrecorded" (in a gap). The shares are from 0 to 1.
    """

    key: str
    gpu_s: float
    of_all: float
    of_judged: float | None
    cost: float | None

    @property
    def words(self) -> str:
        """The part in words: ``wasted: small kernels``."""
        return _WORDS.get(self.key) or f"wasted: {titles()[self.key]}"

    @property
    def level(self) -> Level:
        """The level whose colour the part has."""
        return _LEVELS.get(self.key) or LEVEL_OF_ROLE[lost_roles()[self.key]]


class TimeAccount(Struct, frozen=True):
    """GPU time of all cards in seconds.

    A MIG instance counts by its share of the card. ``price`` is the user's price of a GPU-hour, None for no money.
    """

    states: Mapping[State, float]
    busy_not_working: Mapping[str, float]
    """Time of that state by verdict, the longest first."""
    lost: Mapping[str, float]
    """Wasted time by verdict, the longest first."""
    unrecorded_s: float
    """Time in gaps of the recording."""
    price: float | None

    @property
    def measured_s(self) -> float:
        """Time outside gaps."""
        return sum(self.states.values())

    @property
    def all_s(self) -> float:
        """The recording's length, times the cards."""
        return self.measured_s + self.unrecorded_s

    @property
    def unjudged_s(self) -> float:
        """Time that was not judged."""
        return self.states["unmeasured"]

    @property
    def judged_s(self) -> float:
        """Time that was judged."""
        return self.measured_s - self.unjudged_s

    @property
    def idle_s(self) -> float:
        """Time without a kernel of GPUs that nobody held."""
        return self.states["idle"]

    @property
    def lost_s(self) -> float:
        """Time that was wasted."""
        return sum(self.lost.values())

    @property
    def lost_share(self) -> float | None:
        """Wasted share of the judged time, 0 to 1, or None."""
        return self.lost_s / self.judged_s if self.judged_s > 0.0 else None

    def cost(self, gpu_s: float) -> float | None:
        """Money for so much GPU time; None without a price."""
        return None if self.price is None else self.price * gpu_s / HOUR_S

    def rows(self) -> tuple[TimeRow, ...]:
        """Parts that add up to all of the time; empty parts are left out."""
        worked_s = max(0.0, self.judged_s - self.lost_s - self.idle_s)
        parts = {
            WORKED: worked_s,
            **self.lost,
            UNUSED: self.idle_s,
            UNJUDGED: self.unjudged_s,
            UNRECORDED: self.unrecorded_s,
        }
        return tuple(
            TimeRow(
                key,
                gpu_s,
                gpu_s / self.all_s,
                None if key in (UNJUDGED, UNRECORDED) else gpu_s / self.judged_s,
                None if key == UNRECORDED else self.cost(gpu_s),
            )
            for key, gpu_s in parts.items()
            if gpu_s > 0.0
        )


def time_account(
    gpus: Iterable[GpuReport], unrecorded_s: float, price: float | None
) -> TimeAccount:
    """Add up the time of several GPUs."""
    gpus = list(gpus)
    states = {
        state: sum(gpu.card_share * gpu.seconds.get(state, 0.0) for gpu in gpus) for state in STATES
    }
    causes = _by_verdict((gpu.card_share, gpu.causes) for gpu in gpus)
    lost = _by_verdict((gpu.card_share, gpu.lost) for gpu in gpus)
    return TimeAccount(states, causes, lost, unrecorded_s, price)


def _by_verdict(parts: Iterable[tuple[float, Mapping[str, float]]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for card_share, seconds in parts:
        for verdict, of_gpu in seconds.items():
            total[verdict] = total.get(verdict, 0.0) + card_share * of_gpu
    return dict(sorted(total.items(), key=lambda row: -row[1]))
