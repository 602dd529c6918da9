"""Finds sleeping GPUs, by files of /sys alone.

Any question to a GPU wakes it. So a sleeping GPU is not asked, and where all of them sleep NVML is not opened until
another program wakes one.
"""

from __future__ import annotations

from gputop.sources.pci_cards import NVIDIA, PciCard, cards, is_asleep

ASLEEP = "asleep: the kernel has switched it off, and gputop leaves it so until it wakes"


class Sleep:
    """Sleep states of the NVIDIA cards as the kernel reports them."""

    def __init__(self, sys: str = "/sys") -> None:
        self.cards: tuple[PciCard, ...] = ()
        self.asleep: frozenset[str] = frozenset()
        """Addresses of the cards that sleep, as they were read last."""
        self._sys = sys

    def find(self) -> None:
        """Look for the cards again."""
        self.cards = tuple(card for card in cards(self._sys) if card.vendor == NVIDIA)

    def read(self) -> bool:
        """Read which cards sleep; True when that has changed."""
        before = self.asleep
        self.asleep = frozenset([card.address for card in self.cards if is_asleep(card, self._sys)])
        return self.asleep != before

    @property
    def all_sleep(self) -> bool:
        """Whether there are cards and all of them sleep."""
        return bool(self.cards) and len(self.asleep) == len(self.cards)
