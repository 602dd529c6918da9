"""What `gputop fleet` costs on a real Prometheus: ``python -m tests.bench.fleet [HOSTS] [SCRAPE_S]`` (1,000 hosts of 8
GPUs, a minute between scrapes).

Wall times are of this machine, engine and client together; CPU times of each are told apart. Keys are timed as the
painting of a moved cursor while a refresh goes on in the background, and alone.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from gputop.features.fleet.address import address_of
from gputop.features.fleet.client import Answer, Client, Query, QueryError
from gputop.features.fleet.fleet_frame import FleetFrame, fleet_frame
from gputop.features.fleet.fleet_screen import fleet_screen
from gputop.features.fleet.fleet_view import FleetView, moved, rows_of
from gputop.features.fleet.prometheus import PrometheusFleet
from gputop.features.fleet.simulated_fleet import STARTED, SimulatedFleet
from tests.support.engines import backfill, missing, prometheus
from tests.support.fleet_pages import past

REFRESHES, KEYS = 8, 40
"""Two rounds of what is asked at every fourth refresh."""


class Counted(Client):
    """A client that counts questions and times the slowest."""

    asked, slowest_s = 0, 0.0

    def ask(self, queries: Sequence[Query]) -> list[Answer | QueryError]:
        self.asked += len(queries)
        return super().ask(queries)

    def names(self, series: str, begin: float | None = None, end: float | None = None) -> list[str]:
        self.asked += 1
        return super().names(series, begin, end)

    def _answer(self, query: Query) -> Answer | QueryError:
        begun = time.monotonic()
        found = super()._answer(query)
        self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
        return found


def written(folder: Path, hosts: int, scrape_s: float) -> None:
    """An hour of the fleet as blocks; in a process of its own, whose memory is not ours."""
    backfill(folder, past(SimulatedFleet(hosts), STARTED, 3900.0, scrape_s))


def keys(frame: FleetFrame) -> list[float]:
    """Seconds that each of some presses of a key takes, in order of size."""
    view, found = FleetView(), []
    for _ in range(KEYS):
        begun = time.monotonic()
        view = moved(rows_of(frame, view), view, 1, 20)
        fleet_screen(frame, view, 160, 48)
        found.append(time.monotonic() - begun)
        time.sleep(0.01)
    return sorted(found)


def told(name: str, found: Sequence[float]) -> None:
    """Milliseconds of keys."""
    print(f"keys {name}: median {1000 * found[len(found) // 2]:.1f} ms, slowest {1000 * found[-1]:.1f} ms")


def main() -> int:
    hosts = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    scrape_s = float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
    if reason := missing("prometheus"):
        print(reason)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        writer = multiprocessing.Process(target=written, args=(Path(folder), hosts, scrape_s))
        writer.start()
        writer.join()
        with prometheus(Path(folder)) as url:
            engine = next(child for child in psutil.Process().children() if child.name() == "prometheus")
            measured(hosts, url, engine)
    return 0


def measured(hosts: int, url: str, engine: psutil.Process) -> None:
    """Refreshes, the last hour, keys; and whether what was planted is found."""
    client = Counted(address_of(url, {}))
    fleet = PrometheusFleet(client, url, "", lambda: STARTED)

    def refresh() -> FleetFrame:
        begun, own, others, before = time.monotonic(), time.process_time(), engine.cpu_times(), client.asked
        frame = fleet_frame(fleet.ask(STARTED))
        fleet_screen(frame, FleetView(), 160, 48)
        now = engine.cpu_times()
        print(
            f"{time.monotonic() - begun:.2f} s with {client.asked - before} questions; CPU: gputop "
            f"{time.process_time() - own:.2f} s, engine {now.user + now.system - others.user - others.system:.2f} s"
        )
        return frame

    print(f"{hosts} hosts; the first screen, then refreshes:")
    frame = refresh()
    for _ in range(REFRESHES):
        frame = refresh()
    print(f"slowest question of these {client.slowest_s:.2f} s")
    begun, own = time.monotonic(), time.process_time()
    while fleet.more(frame.t):
        pass
    print(f"last hour {time.monotonic() - begun:.2f} s beside the screen, CPU {time.process_time() - own:.2f} s")
    frame = refresh()
    told("alone", keys(frame))
    thread = threading.Thread(target=lambda: [fleet_frame(fleet.ask(STARTED)) for _ in range(4)])
    thread.start()
    told("during refreshes", keys(frame))
    thread.join()
    fleet.close()
    print(f"most resident {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    simulated = SimulatedFleet(hosts)
    found = {(one.host, one.gpu, one.kind) for one in frame.stragglers}
    planted, wanted = simulated.planted(), fleet_frame(simulated.ask(STARTED))
    print(f"stragglers: {len(found & planted)} of {len(planted)}, {len(found - planted)} false")
    print(f"counts as planted: {frame.counts == wanted.counts}")
    print(f"lost in the last hour: {frame.not_work_gpu_h:.1f} GPU-h, planted {wanted.not_work_gpu_h:.1f}")


if __name__ == "__main__":
    raise SystemExit(main())
