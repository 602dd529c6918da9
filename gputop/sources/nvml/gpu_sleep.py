"""Finds sleeping GPUs, and decides when to release NVML so that they can sleep.

Any question to a GPU wakes it, and an open NVML may keep it awake. So a sleeping GPU is not asked, and where all of
them sleep NVML is not opened until another program wakes one. Reads files of /sys alone.
"""

from __future__ import annotations

from gputop.sources.pci_cards import NVIDIA, PciCard, cards, is_asleep

RELEASED_AFTER_S = 300.0
"""So long no program was on any GPU before NVML is let go [judged]."""
FALLS_ASLEEP_S = 60.0
"""How long the kernel is given to switch the GPUs off then; the driver itself waits some ten seconds [judged]. Where
something else keeps them awake they are measured again."""
ASLEEP = "asleep: the kernel has switched it off, and gputop leaves it so until it wakes"
RELEASED = "released: no program was on it for five minutes, and gputop lets it fall asleep"


class Sleep:
    """Sleep states of the NVIDIA cards as the kernel reports them.

    Times are monotonic seconds.
    """

    def __init__(self, sys: str = "/sys", *, lets_go: bool = False) -> None:
        """``lets_go`` allows to release NVML for unused GPUs."""
        self.cards: tuple[PciCard, ...] = ()
        self.asleep: frozenset[str] = frozenset()
        """Addresses of the cards that sleep, as they were read last."""
        self.released_at: float | None = None
        """Since when NVML is let go; None while it is not."""
        self._sys = sys
        self._lets_go = lets_go
        self._used_at: float | None = None

    def find(self) -> None:
        """Look for the cards again."""
        self.cards = tuple(card for card in cards(self._sys) if card.vendor == NVIDIA)

    def read(self) -> bool:
        """Read which cards sleep; True when that has changed."""
        before = self.asleep
        self.asleep = frozenset([card.address for card in self.cards if is_asleep(card, self._sys)])
        return self.asleep != before

    @property
    def falls_asleep(self) -> bool:
        """Whether NVML was released and the cards have not slept since."""
        return self.released_at is not None and self.released_at > float("-inf")

    @property
    def all_sleep(self) -> bool:
        """Whether there are cards and all of them sleep."""
        return bool(self.cards) and len(self.asleep) == len(self.cards)

    def is_time_to_let_go(self, now: float, *, used: bool) -> bool:
        """Whether NVML can be released.

        True when no program was on any GPU for long enough, and the cards can sleep at all.
        """
        if used or self._used_at is None:
            self._used_at = now
        can_sleep = bool(self.cards) and all(card.may_sleep for card in self.cards)
        return self._lets_go and can_sleep and now - self._used_at >= RELEASED_AFTER_S

    def let_go(self, now: float) -> None:
        """Note that NVML was closed to let the GPUs sleep."""
        self.released_at, self._used_at = now, None

    def waits(self, now: float) -> bool:
        """Whether NVML is to stay closed.

        True while the GPUs sleep, or are given time to fall asleep.
        """
        if self.all_sleep:
            # Once they have slept, the first that wakes was woken by a program.
            self.released_at = None if self.released_at is None else float("-inf")
            return True
        if self.released_at is not None and now - self.released_at < FALLS_ASLEEP_S:
            return True
        self.released_at = None
        return False
