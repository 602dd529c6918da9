"""What the fabric's counters mean for a job, and how they are shown live and in a replay."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.diagnosis.window.fabric_window import FabricSignals
from gputop.model.snapshot import FabricPort, HostSample, Snapshot
from gputop.monitor import Monitor
from gputop.output.snapshot_data import snapshot_data
from gputop.paint import host_rows
from gputop.paint.glyphs import COLOUR
from gputop.paint.line import Row
from gputop.paint.view import View
from tests.support.scenes import HOST, MACHINE, T0, gpu, train

GB = 1e9


def text_of(rows: list[Row]) -> str:
    return "\n".join("".join(text for text, _ in row) for row in rows)


FABRIC = replace(
    HOST, fabric_rx_bytes_per_s=1.5 * GB, fabric_tx_bytes_per_s=1.5 * GB, fabric_peak_bytes_per_s=50 * GB,
    fabric_drops=100, fabric_retransmits=0, fabric_link_errors=0, fabric_ports_down=0, fabric_ports_degraded=0,
    tcp_retransmits=0,
)  # fmt: skip
WAITING = {
    "sm": 16.0,
    "tensor_active_pct": 4.0,
    "dram": 6.0,
    "power_w": 250.0,
    "nvlink_rx_bytes_per_s": 150 * GB,
}


def _watched(
    seconds: int, host: HostSample, drops_per_s: float = 0.0, *, nccl: bool = True
) -> Monitor:
    monitor = Monitor(1.0)
    for second in range(seconds):
        grown = None if host.fabric_drops is None else host.fabric_drops + int(drops_per_s * second)
        here = replace(host, fabric_drops=grown)
        processes = (train(nccl=nccl),)
        monitor.feed(Snapshot(T0 + second, MACHINE, (gpu(**WAITING),), processes, here))
    return monitor


def test_communication_says_how_busy_the_fabric_is_and_what_it_lost() -> None:
    frame = _watched(75, FABRIC, drops_per_s=40.0).latest
    assert frame is not None
    (d,) = frame.diagnoses
    assert d.verdict == "communication"
    assert "fabric ↓ 3 % ↑ 3 % of 400 Gb/s, 1,200 drops in 30 s" in d.evidence
    (badge,) = [badge for badge in d.badges if badge.id == "fabric_errors"]
    assert (badge.level, badge.evidence) == ("yellow", "the fabric had 1,200 drops in 30 s")


def test_a_link_in_trouble_is_red_and_only_for_those_who_talk_over_it() -> None:
    broken = replace(FABRIC, fabric_ports_down=1, fabric_ports_degraded=2)
    frame = _watched(45, broken).latest
    assert frame is not None
    (badge,) = [badge for badge in frame.diagnoses[0].badges if badge.id == "fabric_errors"]
    assert (badge.level, badge.evidence) == ("red", "1 link down, 2 links slower than usual")
    alone = _watched(45, broken, nccl=False).latest
    assert alone is not None
    assert not [badge for badge in alone.diagnoses[0].badges if badge.id == "fabric_errors"]


def test_old_counts_and_a_few_losses_are_no_finding() -> None:
    frame = _watched(
        45, replace(FABRIC, fabric_drops=10**9, fabric_link_errors=5000), drops_per_s=0.5
    ).latest
    assert frame is not None
    assert not [badge for badge in frame.diagnoses[0].badges if badge.id == "fabric_errors"]


def test_a_few_losses_are_noise() -> None:
    quiet = FabricSignals(None, None, None, 29, 29, 9, 99, 30.0, 0, 0)
    assert not quiet.has_losses and quiet.evidence() == ()
    assert all(
        replace(quiet, **lost).has_losses
        for lost in ({"drops": 30}, {"retransmits": 30}, {"link_errors": 10})
    )
    assert replace(quiet, tcp_retransmits=100).evidence() == (
        "no fabric here; TCP sent 100 segments again in 30 s",
    )


def test_where_there_is_no_fabric_nothing_of_it_is_shown() -> None:
    frame = _watched(45, HOST).latest
    assert frame is not None and frame.fabric is None
    assert "fabric" not in text_of([host_rows.load(frame, View(COLOUR), 240)])


def test_traffic_is_shown_beside_the_host_and_ports_in_json() -> None:
    port = FabricPort(
        "mlx5_0/1",
        "InfiniBand",
        "active",
        True,
        False,
        "4X NDR",
        50 * GB,
        GB,
        2 * GB,
        1204,
        0,
        None,
    )
    frame = _watched(45, FABRIC, drops_per_s=40.0).latest
    assert frame is not None
    row = text_of([host_rows.load(frame, View(COLOUR), 240)])
    assert "fabric ↓  2" in row and "1,200 drops in 30 s" in row
    snapshot = replace(frame.snapshot, fabric_ports=(port,))
    assert snapshot_data(snapshot)["host"]["fabric_ports"][0]["drops"] == 1204
