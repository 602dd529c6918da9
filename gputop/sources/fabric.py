"""Reads the ports of the fabric: InfiniBand, RoCE, EFA."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from gputop.model.clean_text import clean_text
from gputop.model.snapshot import NOTHING_MISSING, FabricPort
from gputop.sources.fabric_port import (
    COUNT_FILES,
    DEGRADED,
    DOWN,
    DROPS,
    LINK_ERRORS,
    MOST_PORTS,
    NO_BYTES,
    NO_COUNT,
    PEAK,
    RETRANSMITS,
    RX,
    TX,
    Port,
    count_sum,
)
from gputop.sources.procfs import names_in
from gputop.system.worker import Worker

FABRIC_KEYS = (RX, TX, PEAK, DROPS, RETRANSMITS, LINK_ERRORS, DOWN, DEGRADED)
NO_FABRIC = "no InfiniBand, RoCE or EFA port"


class FabricReading(Struct, frozen=True):
    """Values by key of ``HOST_METRICS``, missing reasons, and ports."""

    values: Mapping[str, float | int | None]
    missing: Mapping[str, str] = NOTHING_MISSING
    ports: tuple[FabricPort, ...] = ()


def without(reason: str) -> FabricReading:
    """Return a reading without values, with the reason."""
    return FabricReading(dict.fromkeys(FABRIC_KEYS), dict.fromkeys(FABRIC_KEYS, reason))


LOOK_S = 60.0
"""How often new ports are looked for."""
SELDOM = 5
"""Link errors and speeds are read at every fifth reading: each of these files queries the adapter."""
LEAST_ALIKE = 3
"""With so many equal adapters, one that is slower than most of them is reported [judged]."""


class FabricCollector:
    """Reads all ports; an adapter may block ``read``."""

    def __init__(self, sys: str = "/sys") -> None:
        self._sys = sys
        self._ports: dict[str, Port] = {}
        self._totals: dict[str, int] = {}
        self._looked_at: float | None = None
        self._readings = 0

    def read(self, now: float) -> FabricReading:
        """Read all ports; rates are over the time since the last call.

        ``now`` is monotonic, in seconds.
        """
        self._look(now)
        seldom, first = self._readings % SELDOM == 0, self._readings == 0
        self._readings += 1
        for name, port in list(self._ports.items()):
            port.read(now, seldom=seldom)
            if port.gone and not port.has_been_up:
                del self._ports[name]
            for key, grown in port.grown.items():
                begun = (count_sum(port.counts[key]) or 0) if first else 0
                self._totals[key] = self._totals.get(key, 0) + begun + grown
        if not self._ports:
            return without(NO_FABRIC)
        return self._reading()

    def _look(self, now: float) -> None:
        if self._looked_at is not None and now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        root = f"{self._sys}/class/infiniband"
        for device in names_in(root):
            folder = f"{root}/{device}"
            # The adapter's own counters include what its virtual functions carry.
            if not os.path.exists(f"{folder}/device/physfn"):
                for port in names_in(f"{folder}/ports"):
                    if (
                        len(self._ports) < MOST_PORTS
                        and clean_text(f"{device}/{port}") not in self._ports
                    ):
                        self._ports[clean_text(f"{device}/{port}")] = Port(folder, device, port)

    def _reading(self) -> FabricReading:
        ports = list(self._ports.values())
        usual = _usual(ports)
        shown = tuple(port.shown(usual.get((port.model, port.kind))) for port in ports)
        values: dict[str, float | int | None] = {}
        missing: dict[str, str] = {}
        # A software port counts no bytes, so it is left out of the sums.
        counted = [port for port in ports if port.received and (port.up or not port.gone)]
        for key, flows in ((RX, [p.rx for p in counted]), (TX, [p.tx for p in counted])):
            reason = None if flows else NO_BYTES
            total = 0.0
            for flow in flows:
                if flow.rate is None:
                    reason = reason or flow.reason
                else:
                    total += flow.rate
            values[key] = None if reason else total
            if reason:
                missing[key] = reason
        values[PEAK] = (
            sum(port.rate.bytes_per_s for port in counted if port.up and port.rate) or None
        )
        if values[PEAK] is None:
            missing[PEAK] = "no port has a link"
        for key in COUNT_FILES:
            has_counter = any(port.counts[key] for port in ports)
            values[key] = self._totals[key] if has_counter else None
            if not has_counter:
                missing[key] = NO_COUNT
        down = degraded = 0
        for port in shown:
            down += not port.up and not port.spare
            degraded += port.up and bool(port.trouble)
        values[DOWN], values[DEGRADED] = down, degraded
        return FabricReading(values, missing, shown)


def _usual(ports: list[Port]) -> dict[tuple[str, str], float]:
    """Return the speed of most equal adapters, by model and kind.

    More than half of at least three must have it.
    """
    alike: dict[tuple[str, str], list[float]] = {}
    for port in ports:
        if port.up and port.rate and port.model:
            alike.setdefault((port.model, port.kind), []).append(port.rate.bytes_per_s)
    usual = {}
    for key, rates in alike.items():
        rate, times = Counter(rates).most_common(1)[0]
        if len(rates) >= LEAST_ALIKE and 2 * times > len(rates):
            usual[key] = rate
    return usual


EVERY_S = 2.0
HUNG_S = 10.0
"""An answer that takes longer is given up: older values must not be shown as if they were new."""
_NOT_YET = "the ports have not answered yet"


class FabricWatch:
    """Reads the fabric on a thread of its own; an adapter may hang.

    Until there is an adapter only the names in one folder are read, once a minute.
    """

    def __init__(self, sys: str = "/sys") -> None:
        self._sys = sys
        self._worker: Worker[FabricReading] | None = None
        self._looked_at: float | None = None
        self._asked_at = 0.0

    def newest(self, now: float) -> FabricReading:
        """Return the newest reading and start the next if due; never blocks.

        ``now`` is monotonic, in seconds.
        """
        worker = self._worker
        if worker is None:
            if (worker := self._begin(now)) is None:
                return without(NO_FABRIC)
        elif not 0.0 <= now - self._asked_at < EVERY_S:
            self._asked_at = now
            if worker.busy_since is None:
                worker.ask()
        busy = worker.busy_since
        late = 0.0 if busy is None else time.monotonic() - busy
        if late > HUNG_S:
            return without(f"the ports have not answered for {late:.0f} s")
        if worker.error is not None:
            return without(f"cannot read the ports: {type(worker.error).__name__}")
        return worker.latest or without(_NOT_YET)

    def close(self) -> None:
        """Let the thread end."""
        if self._worker is not None:
            self._worker.stop()

    def _begin(self, now: float) -> Worker[FabricReading] | None:
        if self._looked_at is not None and 0.0 <= now - self._looked_at < LOOK_S:
            return None
        self._looked_at = self._asked_at = now
        if names_in(f"{self._sys}/class/infiniband"):
            collector = FabricCollector(self._sys)
            self._worker = Worker("fabric", lambda: collector.read(time.monotonic()))
            self._worker.ask()
        return self._worker
