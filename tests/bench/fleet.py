"""What `gputop fleet` costs on a real Prometheus: ``python -m tests.bench.fleet [HOSTS]`` (1,000 hosts of 8 GPUs).

Times are of this machine, engine and client together; keys are timed as the painting of a moved cursor.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

from gputop.fleet.address import address_of
from gputop.fleet.client import Client, Query, QueryError, Row
from gputop.fleet.frame import fleet_frame
from gputop.fleet.prometheus import PrometheusFleet
from gputop.fleet.simulated import STARTED, SimulatedFleet
from gputop.paint.fleet_screen import fleet_screen
from gputop.paint.fleet_view import FleetView, moved, rows_of
from tests.support.engines import backfill, missing, prometheus
from tests.support.fleet_pages import past


class Counted(Client):
    """A client that counts questions and times the slowest."""

    asked = 0

    def ask(self, queries: list[Query]) -> list[list[Row] | QueryError]:  # type: ignore[override]
        self.asked += len(queries)
        return super().ask(queries)


def main() -> int:
    hosts = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    if reason := missing("prometheus"):
        print(reason)
        return 2
    simulated = SimulatedFleet(hosts)
    with tempfile.TemporaryDirectory() as folder:
        backfill(Path(folder), past(simulated, STARTED, 3900.0, 60.0))
        with prometheus(Path(folder)) as url:
            client = Counted(address_of(url, {}))
            fleet = PrometheusFleet(client, url, "", lambda: STARTED)
            refreshes = []
            for _ in range(5):
                begun, before = time.monotonic(), client.asked
                frame = fleet_frame(fleet.ask(STARTED))
                fleet_screen(frame, FleetView(), 160, 48)
                refreshes.append((time.monotonic() - begun, client.asked - before))
            begun = time.monotonic()
            while fleet.more(frame.t):
                pass
            hour_s = time.monotonic() - begun
            frame = fleet_frame(fleet.ask(STARTED))
            view, keys = FleetView(), []
            for _ in range(40):
                begun = time.monotonic()
                view = moved(rows_of(frame, view), view, 1, 20)
                fleet_screen(frame, view, 160, 48)
                keys.append(time.monotonic() - begun)
            fleet.close()
    found = {(one.host, one.gpu, one.kind) for one in frame.stragglers}
    wanted = fleet_frame(simulated.ask(STARTED))
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{hosts} hosts, {sum(frame.counts.values())} GPUs")
    print(f"first screen {refreshes[0][0]:.2f} s with {refreshes[0][1]} questions")
    print("refreshes " + ", ".join(f"{s:.2f} s ({n})" for s, n in refreshes[1:]))
    print(f"last hour {hour_s:.2f} s, beside the screen")
    print(f"keys: median {1000 * sorted(keys)[20]:.1f} ms, slowest {1000 * max(keys):.1f} ms")
    print(f"most resident {rss:.0f} MiB, the writing of the test's data included")
    planted = simulated.planted()
    print(f"stragglers: {len(found & planted)} of {len(planted)}, {len(found - planted)} false")
    print(f"lost in the last hour: {frame.not_work_gpu_h:.1f} GPU-h, planted {wanted.not_work_gpu_h:.1f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
