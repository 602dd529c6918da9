"""Shares of a thread's time by wait state, from the kernel's counters to the sentence.

A share is 0 to 1 everywhere in the program. It becomes percent in one place, ``percent``: where a process is written
into a snapshot (``FeedTime``, ``MainTime``), which JSON and recordings carry. Pure data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct


class WaitShares(Struct, frozen=True, gc=False):
    """Shares of time that a thread, or several in turn, spent in each state.

    The shares of one thread add up to at most 1. ``WaitShares(run=0.2, network=0.7)`` ran for a fifth of the time and
    waited for the network for most of the rest::

        first = WaitShares(run=0.2, network=0.7)
        second = WaitShares(run=0.4, disk=0.5)
        mean = (first + second).scaled(0.5)  # run 0.3, disk 0.25, network 0.35
    """

    run: float = 0.0
    """On a core."""
    queued: float = 0.0
    """Queued for a core."""
    disk: float = 0.0
    network: float = 0.0
    lock: float = 0.0
    sleep: float = 0.0
    poll: float = 0.0
    """Waits for any of several files, such as the pipe of a queue."""
    pipe: float = 0.0
    """Reads an empty pipe. Counted of main threads alone; a worker's is part of ``other``."""
    write: float = 0.0
    """Waits for the reader of a full pipe. Counted of main threads alone; a worker's is part of ``other``."""
    other: float = 0.0
    """Other waits: for work, for a reader, for a local process."""
    unread: float = 0.0
    """Asleep in a wait that is unknown or may not be seen."""

    @property
    def cpu(self) -> float:
        """Runnable: on a core, or queued for one."""
        return self.run + self.queued

    @property
    def useful(self) -> float:
        """Share of time that goes into the next batch.

        Runnable, waiting for a disk, or waiting for the network.
        """
        return self.run + self.queued + self.disk + self.network

    def __add__(self, other: WaitShares) -> WaitShares:
        """Return the sum of each state."""
        return WaitShares(
            run=self.run + other.run,
            queued=self.queued + other.queued,
            disk=self.disk + other.disk,
            network=self.network + other.network,
            lock=self.lock + other.lock,
            sleep=self.sleep + other.sleep,
            poll=self.poll + other.poll,
            pipe=self.pipe + other.pipe,
            write=self.write + other.write,
            other=self.other + other.other,
            unread=self.unread + other.unread,
        )

    def scaled(self, factor: float) -> WaitShares:
        """Return each share times ``factor``."""
        return WaitShares(
            run=self.run * factor,
            queued=self.queued * factor,
            disk=self.disk * factor,
            network=self.network * factor,
            lock=self.lock * factor,
            sleep=self.sleep * factor,
            poll=self.poll * factor,
            pipe=self.pipe * factor,
            write=self.write * factor,
            other=self.other * factor,
            unread=self.unread * factor,
        )

    def by_state(self) -> Iterator[tuple[str, float]]:
        """Yield each state's name with its share, in the order of the fields."""
        for state in WAIT_STATES:
            yield state, getattr(self, state)


WAIT_STATES = WaitShares.__struct_fields__


def sum_of(several: Sequence[WaitShares]) -> WaitShares:
    """Return the sum of several shares.

    The same as adding them with ``+``, in 0.6 of its time: half a minute of 64 workers is 1,920 records, which take
    0.9 ms here, 1.5 ms with ``+``, and took 0.6 ms as tuples (Python 3.11, a busy core).
    """
    run = queued = disk = network = lock = sleep = poll = pipe = write = other = unread = 0.0
    for shares in several:
        run += shares.run
        queued += shares.queued
        disk += shares.disk
        network += shares.network
        lock += shares.lock
        sleep += shares.sleep
        poll += shares.poll
        pipe += shares.pipe
        write += shares.write
        other += shares.other
        unread += shares.unread
    return WaitShares(
        run=run,
        queued=queued,
        disk=disk,
        network=network,
        lock=lock,
        sleep=sleep,
        poll=poll,
        pipe=pipe,
        write=write,
        other=other,
        unread=unread,
    )


def mean_of(several: Sequence[WaitShares]) -> WaitShares:
    """Return the mean of several shares; all zero of none."""
    return sum_of(several).scaled(1.0 / max(1, len(several)))


PERCENT_DIGITS = 1
"""Digits of a percentage: a share is sampled to a few points, and recordings carry as many."""


def percent(share: float) -> float:
    """Return a share in percent, rounded: the only place where a share changes its unit to be written."""
    # Most shares are 0, and rounding takes longer than everything else of a process's sample.
    return round(100.0 * share, PERCENT_DIGITS) if share else 0.0


def share_of(percent_or_none: float | None) -> float:
    """Return a written percentage as a share; 0 where it was not measured."""
    return percent_or_none / 100.0 if percent_or_none else 0.0
