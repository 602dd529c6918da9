"""InfiniBand, RoCE and EFA ports: files as the drivers lay them out, rates, gaps, links in trouble, what is said."""

from __future__ import annotations

import shutil
from pathlib import Path
from threading import Event

import pytest

from gputop.model.snapshot import FabricPort
from gputop.sources import fabric as files
from gputop.sources import fabric as watching
from gputop.sources.fabric import FABRIC_KEYS, LOOK_S, NO_FABRIC, FabricCollector, FabricReading, FabricWatch
from gputop.sources.host import tcp_retransmits
from tests.support.fabric_tree import FabricTree

GB = 1e9


@pytest.fixture
def tree(tmp_path: Path) -> FabricTree:
    return FabricTree(tmp_path)


def _read(tree: FabricTree) -> tuple[FabricCollector, FabricReading]:
    collector = FabricCollector(str(tree.sys))
    return collector, collector.read(0.0)


def _port(reading: FabricReading, name: str) -> FabricPort:
    return next(port for port in reading.ports if port.name == name)


def test_infiniband_counts_words_of_four_bytes(tree: FabricTree) -> None:
    port = tree.mlx5(0)
    tree.count(port, port_rcv_data=1000, port_xmit_data=500)
    collector, first = _read(tree)
    assert first.missing["fabric_rx_bytes_per_s"] == "needs two readings"
    assert first.values["fabric_peak_bytes_per_s"] == 50 * GB
    tree.count(port, port_rcv_data=1000 + 3_000_000, port_xmit_data=500 + 1_000_000)
    reading = collector.read(2.0)
    assert reading.values["fabric_rx_bytes_per_s"] == 6e6
    assert reading.values["fabric_tx_bytes_per_s"] == 2e6
    assert (reading.ports[0].kind, reading.ports[0].width) == ("InfiniBand", "4X NDR")


def test_efa_counts_bytes_and_its_drops(tree: FabricTree) -> None:
    port = tree.efa(0)
    tree.count(port, rx_drops=5)
    collector, first = _read(tree)
    assert first.values["fabric_drops"] == 5
    tree.count(port, rx_bytes=4000, tx_bytes=2000, rx_drops=12, retrans_pkts=3)
    reading = collector.read(2.0)
    assert (reading.values["fabric_rx_bytes_per_s"], reading.values["fabric_tx_bytes_per_s"]) == (2000.0, 1000.0)
    assert (reading.values["fabric_drops"], reading.values["fabric_retransmits"]) == (12, 3)
    assert reading.values["fabric_link_errors"] is None
    assert reading.missing["fabric_link_errors"] == "the ports do not count this"
    assert reading.ports[0].kind == "EFA"


def test_irdma_adds_up_both_families_of_addresses(tree: FabricTree) -> None:
    port = tree.irdma(0)
    collector, _ = _read(tree)
    tree.count(port, ip4InOctets=1000, ip6InOctets=200, ip4OutOctets=40, ip4InDiscards=2, tcpRetransSegs=1)
    reading = collector.read(1.0)
    assert (reading.values["fabric_rx_bytes_per_s"], reading.values["fabric_tx_bytes_per_s"]) == (1200.0, 40.0)
    assert (reading.values["fabric_drops"], reading.values["fabric_retransmits"]) == (2, 1)
    assert reading.ports[0].kind == "RoCE"
    tree.irdma(1, iwarp=True)
    assert _port(collector.read(LOOK_S + 1.0), "irdma1/1").kind == "iWARP"


def test_values_are_sums_over_all_ports(tree: FabricTree) -> None:
    ports = [tree.mlx5(0), tree.mlx5(1, ethernet=True), tree.efa(2)]
    collector, _ = _read(tree)
    tree.count(ports[0], port_rcv_data=100, symbol_error=4, packet_seq_err=2)
    tree.count(ports[1], port_rcv_data=100, out_of_buffer=7, link_downed=1)
    tree.count(ports[2], rx_bytes=200)
    for moment in range(1, 6):
        reading = collector.read(float(moment))
        if moment == 1:
            assert reading.values["fabric_rx_bytes_per_s"] == 400 + 400 + 200
    assert (reading.values["fabric_link_errors"], reading.values["fabric_retransmits"]) == (5, 2)
    assert reading.values["fabric_drops"] == 7
    assert reading.values["fabric_peak_bytes_per_s"] == 50 * GB + 50 * GB + 12.5 * GB
    assert [port.kind for port in reading.ports] == ["InfiniBand", "RoCE", "EFA"]


def test_a_counter_that_falls_is_a_gap_and_no_traffic(tree: FabricTree) -> None:
    port = tree.mlx5(0)
    tree.count(port, port_rcv_data=10_000, out_of_buffer=900)
    collector, _ = _read(tree)
    tree.count(port, port_rcv_data=100, out_of_buffer=10)
    reading = collector.read(2.0)
    assert reading.values["fabric_rx_bytes_per_s"] is None
    assert reading.missing["fabric_rx_bytes_per_s"] == "a counter was reset"
    assert reading.values["fabric_drops"] == 900
    tree.count(port, port_rcv_data=200, out_of_buffer=15)
    reading = collector.read(4.0)
    assert reading.values["fabric_rx_bytes_per_s"] == 200.0
    assert reading.values["fabric_drops"] == 905


def test_a_full_32_bit_counter_is_not_called_silence(tree: FabricTree) -> None:
    port = tree.mlx5(0)
    tree.count(port, port_rcv_data=files.FULL_32, port_xmit_data=8)
    collector, _ = _read(tree)
    reading = collector.read(2.0)
    assert reading.values["fabric_rx_bytes_per_s"] is None
    assert "32-bit" in reading.missing["fabric_rx_bytes_per_s"]
    assert reading.values["fabric_tx_bytes_per_s"] == 0.0


def test_kernels_that_keep_the_wide_counters_apart_are_read_there(tree: FabricTree) -> None:
    port = tree.mlx5(0)
    wide = {f"counters_ext/port_{way}_data_64": 2**33 for way in ("rcv", "xmit")}
    tree.set(port, **wide)
    tree.count(port, port_rcv_data=files.FULL_32, port_xmit_data=files.FULL_32)
    collector, _ = _read(tree)
    tree.set(port, **dict.fromkeys(wide, 2**33 + 10))
    assert collector.read(2.0).values["fabric_rx_bytes_per_s"] == 20.0


def test_an_adapter_that_does_not_count_says_so(tree: FabricTree) -> None:
    port = tree.mlx5(0)
    tree.set(port, **{f"counters/port_{way}_data": "N/A (no PMA)" for way in ("rcv", "xmit")})
    collector, _ = _read(tree)
    reading = collector.read(2.0)
    assert reading.values["fabric_rx_bytes_per_s"] is None
    assert reading.missing["fabric_rx_bytes_per_s"] == "the ports do not count bytes"


def test_a_link_that_was_up_and_is_down_is_told_and_a_port_never_used_is_not(tree: FabricTree) -> None:
    used, spare, off = tree.mlx5(0), tree.mlx5(1), tree.mlx5(2)
    tree.count(used, port_rcv_data=7)
    tree.set(spare, state="1: DOWN", phys_state="2: Polling", rate="10 Gb/sec (4X SDR)")
    tree.count(off, port_rcv_data=7)
    tree.set(off, state="1: DOWN", phys_state="3: Disabled")
    collector, reading = _read(tree)
    assert reading.values["fabric_ports_down"] == 0
    tree.set(used, state="1: DOWN", phys_state="2: Polling", rate="10 Gb/sec (4X SDR)")
    reading = collector.read(2.0)
    assert reading.values["fabric_ports_down"] == 1
    assert _port(reading, used).trouble == "link down"
    assert _port(reading, spare).trouble == _port(reading, off).trouble == ""
    assert reading.values["fabric_peak_bytes_per_s"] is None
    # One that carried something since boot was connected, also before anybody watched.
    assert FabricCollector(str(tree.sys)).read(0.0).values["fabric_ports_down"] == 1


def test_a_link_is_slow_against_itself_and_against_most_of_its_like(tree: FabricTree) -> None:
    tree.mlx5(9, rate="200 Gb/sec (4X HDR)", board="MT_0007")
    slow = tree.mlx5(0, rate="200 Gb/sec (2X NDR)")
    others = [tree.mlx5(number) for number in (1, 2, 3)]
    collector, reading = _read(tree)
    assert _port(reading, slow).trouble == "200 instead of 400 Gb/s"
    assert reading.values["fabric_ports_degraded"] == 1
    tree.set(slow, rate="400 Gb/sec (4X NDR)")
    for port in others:
        tree.set(port, rate="100 Gb/sec (1X NDR)")
    readings = [collector.read(float(moment)) for moment in range(2, 8)]
    assert readings[-1].values["fabric_ports_degraded"] == 3
    assert _port(readings[-1], others[0]).trouble == "100 instead of 400 Gb/s"


def test_a_port_that_goes_and_comes_back_adds_nothing_of_its_past(tree: FabricTree, tmp_path: Path) -> None:
    stays, goes = tree.mlx5(0), tree.efa(1)
    tree.count(goes, rx_drops=500)
    collector, first = _read(tree)
    assert first.values["fabric_drops"] == 500
    aside = tmp_path / "aside"
    shutil.move(tree.ports / "rdmap1s0", aside)
    reading = collector.read(2.0)
    assert _port(reading, goes).trouble == "the adapter is gone"
    assert reading.values["fabric_ports_down"] == 1
    shutil.move(aside, tree.ports / "rdmap1s0")
    tree.count(goes, rx_drops=800)
    tree.count(stays, out_of_buffer=1)
    assert collector.read(4.0).values["fabric_drops"] == 501


def test_virtual_functions_beside_their_adapter_are_not_counted_twice(tree: FabricTree) -> None:
    tree.mlx5(0)
    tree.mlx5(1)
    (tree.ports / "mlx5_1/device/physfn").mkdir(parents=True)
    assert [port.name for port in _read(tree)[1].ports] == ["mlx5_0/1"]


def test_without_a_fabric_one_folder_is_looked_at_once_a_minute(
    tree: FabricTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def listed(path: str) -> list[str]:
        looked.append(path)
        raise FileNotFoundError

    monkeypatch.setattr(watching.os, "listdir", listed)
    watch = FabricWatch(str(tree.sys))
    for second in range(120):
        reading = watch.newest(float(second))
    assert len(looked) == 2
    assert set(reading.missing) == set(FABRIC_KEYS)
    assert set(reading.missing.values()) == {NO_FABRIC}


def test_an_adapter_that_hangs_holds_nobody_up_and_is_not_shown_as_if_it_answered(
    tree: FabricTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.mlx5(0)
    hangs, goes_on = Event(), Event()

    def read(self: FabricCollector, now: float) -> FabricReading:
        hangs.set()
        goes_on.wait(60.0)
        raise OSError

    monkeypatch.setattr(FabricCollector, "read", read)
    watch = FabricWatch(str(tree.sys))
    assert watch.newest(0.0).missing["fabric_drops"] == "the ports have not answered yet"
    assert hangs.wait(60.0)
    monkeypatch.setattr(watching, "HUNG_S", 0.0)
    assert watch.newest(1.0).missing["fabric_drops"].startswith("the ports have not answered for")
    watch.close()
    goes_on.set()


def test_tcp_counts_in_the_machines_namespace_where_it_may(tmp_path: Path) -> None:
    def written(pid: str, count: int) -> None:
        folder = tmp_path / pid / "net"
        folder.mkdir(parents=True)
        lines = f"Ip: Forwarding\nIp: 1\nTcp: RtoMin OutSegs RetransSegs InErrs\nTcp: 200 5000 {count} 0\n"
        (folder / "snmp").write_text(lines)

    assert tcp_retransmits(str(tmp_path)) == "cannot read /proc/net/snmp"
    written("self", 3)
    assert tcp_retransmits(str(tmp_path)) == 3
    written("1", 41)
    assert tcp_retransmits(str(tmp_path)) == 41
