"""A fleet read from its Prometheus: queries, remembers what seldom changes, and gives readings.

Live queries carry no time, so that a wrong clock here does no harm; going back in time queries everything at that
time. At most ten queries per refresh.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from gputop.fleet import one_host
from gputop.fleet.client import Client
from gputop.fleet.engine import Engine
from gputop.fleet.history import History
from gputop.fleet.inventory import Inventory
from gputop.fleet.last_hour import LastHour
from gputop.fleet.present import Present
from gputop.fleet.reading import FleetReading, Lost

IDENTITIES_EVERY, DISCOVERY_EVERY = 4, 40
"""Refreshes between two looks for new GPUs and jobs, and for new metric names."""
FORGETS_EVERY = 8
"""Refreshes after which labels of vanished series are forgotten."""
LEAST_INTERVAL_S = 10.0
MOST_SKEW_S = 60.0


class PrometheusFleet:
    """One engine. Not for several threads at once. Every method blocks."""

    def __init__(self, client: Client, source: str, select: str, clock: Callable[[], float]) -> None:
        """``clock`` is Unix time, and only compared with the engine's."""
        self.source = source
        self._clock = clock
        self._engine = Engine(client, select)
        self._inventory = Inventory(self._engine)
        self._present = Present(self._engine, self._inventory)
        self._hour = LastHour(self._engine, self._inventory)
        self._refreshes = 0
        self._past: float | None = None

    @property
    def interval_s(self) -> float:
        """How often a query is worthwhile: never faster than exporters are scraped."""
        return max(LEAST_INTERVAL_S, self._inventory.scrape_s)

    def close(self) -> None:
        """Close the connections."""
        self._engine.client.close()

    def ask(self, at: float | None = None) -> FleetReading:
        """The fleet now, or at a Unix time. Raises FleetError where nothing can be shown."""
        if at != self._past:
            self._past, self._refreshes = at, 0
            self._present = Present(self._engine, self._inventory)
        problems: list[str] = []
        if self._inventory.known is None or self._refreshes % DISCOVERY_EVERY == 0:
            self._inventory.discover(at, self._clock())
        if self._refreshes % IDENTITIES_EVERY == 0:
            problems += self._inventory.identify(at, self._clock(), anew=self._refreshes == 0)
        if self._refreshes % FORGETS_EVERY == 0:
            self._inventory.turn()
            self._present.turn()
        self._refreshes += 1
        reading, t = self._present.ask(at, self.source, self._clock())
        ahead = 0.0 if t is None else t - self._clock()
        if at is None and abs(ahead) > MOST_SKEW_S:
            side = "ahead of" if ahead > 0 else "behind"
            problems.append(f"the engine's clock is {abs(ahead):.0f} s {side} this machine's")
        told = tuple(dict.fromkeys((*reading.problems, *problems)))
        return replace(reading, lost=self._hour.lost(reading.t), problems=told)

    def hour(self, t: float) -> list[Lost] | None:
        """The GPU time lost in the hour before ``t``, None until ``more`` has read it."""
        return self._hour.lost(t)

    def more(self, t: float) -> bool:
        """Read the next part of the hour before ``t``; whether there was one. At most five questions."""
        return self._hour.more(t)

    def history(self, host: str, t: float, span_s: float, columns: int) -> History:
        """Utilisation and SM activity of a host's GPUs over the time before ``t``. Raises FleetError."""
        return one_host.history(self._engine, self._inventory, host, t, span_s, columns)

    def details(self, hosts: Sequence[str], at: float | None) -> Mapping[tuple[str, str], Mapping[str, float]]:
        """What is queried only for the hosts on screen, by host and GPU. Raises FleetError."""
        return one_host.details(self._engine, self._inventory, hosts, at)
