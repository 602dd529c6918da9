"""The port of the fabric that is down, drops or retransmits is named in the fleet."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.features.export.exposition import TextPage
from gputop.features.export.metrics_page import _fabric_ports
from gputop.features.fleet.judge.fleet_frame import fleet_frame
from gputop.features.fleet.judge.group_verdict import FleetVerdict, with_faults
from gputop.features.fleet.read.address import address_of
from gputop.features.fleet.read.direct_fleet import DirectFleet
from gputop.features.fleet.read.engine import Client
from gputop.features.fleet.read.host_link import HostLink, SshOptions
from gputop.features.fleet.read.prometheus_fleet import PrometheusFleet
from gputop.features.fleet.read.redacted_fleet import RedactedFleet
from gputop.features.fleet.read.scraped_host import ScrapedHost
from gputop.features.fleet.show.fleet_data import fleet_data
from gputop.features.fleet.show.fleet_screen import fleet_screen
from gputop.features.fleet.show.fleet_view import FleetView, rows_of
from gputop.model.redaction import Redactor
from gputop.model.snapshot import FabricPort
from tests.features.fleet.conftest import text_of
from tests.features.fleet.test_fleet_histories import END, host, lines, merged, own
from tests.support.engines import backfill, missing, prometheus

GPU = 'gputop_up 1\ngputop_gpu_utilization_ratio{gpu="0",uuid="GPU-0"} 0.9\n'


def ports(drops: int, retransmits: int = 0) -> tuple[FabricPort, ...]:
    """A port that is down, one that loses as told, and one without a fault."""
    return (
        FabricPort("mlx5_0/1", "InfiniBand", "down", up=False, trouble="link down"),
        FabricPort("mlx5_1/1", "RoCE", "active", up=True, drops=drops, retransmits=retransmits),
        FabricPort("mlx5_2/1", "RoCE", "active", up=True, drops=5, retransmits=0, link_errors=0),
    )


def page_of(*given: FabricPort) -> str:
    page = TextPage()
    _fabric_ports(page, given)
    return GPU + page.text()


def test_the_exporter_names_ports_with_their_faults_and_counters() -> None:
    text = page_of(*ports(1204))
    assert (
        'gputop_fabric_port_fault{port="mlx5_0/1",kind="InfiniBand",fault="link down"} 1\n' in text
    )
    assert 'gputop_fabric_port_drops_total{port="mlx5_1/1",kind="RoCE"} 1204\n' in text
    assert "# TYPE gputop_fabric_port_drops_total counter" in text
    assert 'fault="' not in page_of(*ports(0)[1:]), "a port without a fault has no series of one"


def test_a_host_s_pages_name_its_ports() -> None:
    box = ScrapedHost("box")
    for number in range(31):
        assert box.take(page_of(*ports(40 * number, number)), 1000.0 + 10.0 * number) is None
    assert box.port_lines == (
        "port mlx5_0/1: link down",
        "port mlx5_1/1: 1,200 packets dropped in 5 min",
    )
    box.take(page_of(*ports(1200, 30)[1:]), 1700.0)
    assert box.port_lines == (), "what was lost before five minutes is past"


def test_a_port_that_is_down_stands_on_the_row_of_its_host() -> None:
    pages = {"a": GPU, "faulty": page_of(*ports(0)).replace("GPU-0", "GPU-1")}
    links = [HostLink(name, lambda link: link.put_page(pages[link.host])) for name in pages]
    fleet = DirectFleet((), SshOptions("/f"), links=links, clock=lambda: 1000.0)
    fleet.settle()
    frame = fleet_frame(fleet.ask())
    hidden = fleet_frame(RedactedFleet(fleet, Redactor()).ask())
    fleet.close()
    texts = {host.name: (host.verdict.text, host.verdict.level) for host in frame.hosts}
    assert texts["faulty"] == ("port mlx5_0/1: link down · 1 not judged: "
                            "SM activity is not exported", "yellow")  # fmt: skip
    assert "mlx5" not in texts["a"][0]
    assert rows_of(frame, FleetView())[0] == "faulty", "a fault comes before hosts without one"
    for width in (80, 120, 160):
        lines = text_of(fleet_screen(frame, FleetView(), width, 40).rows).split("\n")
        row = next(line for line in lines if line.startswith(" faulty "))
        assert "port mlx5_0/1" in row
    (told,) = [host for host in fleet_data(frame)["hosts"] if host["faults"]]
    assert (told["host"], told["faults"]) == ("faulty", ["port mlx5_0/1: link down"])
    assert any("link down" in host.verdict.text for host in hidden.hosts)
    assert not any("faulty" in text for text in hidden.problems)


def test_a_fault_takes_no_place_from_a_worse_state() -> None:
    red = FleetVerdict("busy_not_working", "red", "8 busy, not working")
    assert with_faults(red, ("port a: link down",)).text == (
        "8 busy, not working; port a: link down"
    )
    two = with_faults(FleetVerdict("working", "green", "8 working"), ("one", "two"))
    assert (two.text, two.level) == ("one (and 1 more) · 8 working", "yellow")
    absent = FleetVerdict("down", "yellow", "down")
    assert with_faults(absent, ("one",)) is absent
    assert with_faults(red, ()) is red


@pytest.mark.slow
@pytest.mark.skipif(bool(missing("prometheus")), reason="no prometheus")
def test_prometheus_names_the_ports_of_its_hosts(tmp_path: Path) -> None:
    target = 'instance="n1:9401",job="gputop"'
    series = merged(own("n1", 0), host("n1"), {
        f'gputop_fabric_port_fault{{port="mlx5_0/1",kind="InfiniBand",fault="link down",{target}}}': lambda back: 1.0,
        f'gputop_fabric_port_drops_total{{port="mlx5_1/1",kind="RoCE",{target}}}': lambda back: 9000.0 - 4.0 * back,
        f'gputop_fabric_port_drops_total{{port="mlx5_2/1",kind="RoCE",{target}}}': lambda back: 5.0,
    })  # fmt: skip
    backfill(tmp_path, lines(series, 900.0))
    with prometheus(tmp_path) as url:
        fleet = PrometheusFleet(Client(address_of(url, {})), "x", "", lambda: END)
        problems = fleet_frame(fleet.ask(END)).problems
        hidden = fleet_frame(RedactedFleet(fleet, Redactor()).ask(END)).problems
        fleet.close()
    assert "n1: port mlx5_0/1: link down" in problems
    assert "n1: port mlx5_1/1: 1,200 packets dropped in 5 min" in problems
    assert not any("mlx5_2" in text for text in problems)
    assert any("mlx5_0/1: link down" in text for text in hidden) and not any(
        "n1" in text for text in hidden
    )
