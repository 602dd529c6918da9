"""Whatever a host answers, its fault stands on its row, the other hosts stay, and nothing is lost."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gputop.features.fleet.judge.fleet_frame import FleetFrame, fleet_frame
from gputop.features.fleet.read.direct_fleet import DirectFleet
from gputop.features.fleet.read.host_link import HostLink, SshOptions, scraped
from gputop.features.fleet.read.scraped_host import CUT, ScrapedHost
from gputop.features.fleet.show.fleet_screen import fleet_screen
from gputop.features.fleet.show.fleet_view import FleetView
from tests.features.fleet.conftest import text_of
from tests.features.fleet.test_fleet_hosts import UP, own, page
from tests.support.exporter_pages import PAGES

NOW = 1_000_000.0
STAMP = "gputop_last_sample_timestamp_seconds"
STRANGE = (
    "\\\\",
    '\\"',
    "\\n",
    "\x1b[2J",
    "\u202e",
    "\u2066",
    "\x00",
    "\x85",
    "\u2028",
    "é",
    "漢",
    "🔥",
    "{",
    "}",
    ",",
    "=",
)
"""Characters as a page writes them."""


class Fleet:
    """Hosts whose pages the test gives, at a clock that the test sets."""

    def __init__(self, *names: str) -> None:
        self.now = [NOW]
        self.links = {name: HostLink(name, lambda link: None) for name in names}
        self.fleet = DirectFleet(
            (), SshOptions("/f"), links=[*self.links.values()], clock=lambda: self.now[0]
        )

    def frame(self, later_s: float = 5.0, **pages: str) -> FleetFrame:
        """The frame after some seconds, with new pages of some hosts."""
        self.now[0] += later_s
        for name, text in pages.items():
            self.links[name].put_page(text)
        return fleet_frame(self.fleet.ask())


@contextmanager
def hosts(*names: str) -> Iterator[Fleet]:
    found = Fleet(*names)
    try:
        yield found
    finally:
        found.fleet.close()


def good(number: int, *more: str) -> str:
    """A page of two GPUs of a host of this number."""
    lines = (*own(2 * number), *own(2 * number + 1))
    return page(UP, *lines, *more)


@pytest.mark.parametrize(("text", "says"), [
    ("<!DOCTYPE html><title>Sign in</title>", "a web page, not with metrics"),
    ("  \n<html></html>", "a web page, not with metrics"),
    ("", "its page is empty"),
    ("go_threads 7\n", "its page has no GPU"),
    ("\x00\x01\ufffd" * 100, "its page has no GPU"),
])  # fmt: skip
def test_a_host_that_answers_something_else_is_down_with_its_last_values(
    text: str, says: str
) -> None:
    with hosts("a", "b") as fleet:
        before = fleet.frame(a=good(0), b=good(1))
        assert [host.verdict.text for host in before.hosts] == ["2 working", "2 working"]
        frame = fleet.frame(later_s=90.0, a=text, b=good(1))
        first, second = frame.hosts
        assert first.verdict.text.startswith("down 90 s: ") and says in first.verdict.text
        assert len(first.gpus) == 2 and first.gpus[0].read.util_pct == 97.0
        assert second.verdict.text == "2 working"
        back = fleet.frame(a=good(0), b=good(1))
        assert [host.verdict.text for host in back.hosts] == ["2 working", "2 working"]


def test_a_page_that_breaks_off_loses_no_gpu() -> None:
    whole = good(0)
    with hosts("a", "b") as fleet:
        fleet.frame(a=whole, b=good(1))
        for end in range(len(UP) + 1, len(whole) - 1, 7):
            if whole[end - 1] == "\n":
                continue
            host, other = fleet.frame(a=whole[:end], b=good(1)).hosts
            assert not host.counts["lost"] and host.size == 2, whole[:end][-40:]
            assert host.down is not None or host.faults == (CUT,)
            assert other.verdict.text == "2 working"
        host, _ = fleet.frame(a=whole, b=good(1)).hosts
        assert not host.faults
        one = page(UP, *own(0))
        assert fleet.frame(a=one, b=good(1)).hosts[0].counts["lost"] == 1, "a whole page tells"


def test_a_host_that_answers_late_is_down_and_comes_back() -> None:
    with hosts("a", "b") as fleet:
        fleet.frame(a=good(0), b=good(1))
        fleet.links["a"].page_at = time.monotonic() - 25.0
        frame = fleet.frame(b=good(1))
        assert frame.hosts[0].verdict.text == "down 25 s: no page for 25 s"
        assert frame.hosts[1].verdict.text == "2 working"
        assert fleet.frame(a=good(0)).hosts[0].verdict.text == "2 working"


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("after", ["dcgm-exporter, old names", "gputop", "all-smi"])
def test_another_exporter_after_a_restart_keeps_the_gpus_and_the_hour(
    name: str, after: str
) -> None:
    with hosts("a", "b") as fleet:
        first = fleet.frame(a=PAGES[name], b=good(1))
        second = fleet.frame(a=PAGES[after], b=good(1))
        ids = [[gpu.read.uuid for gpu in frame.hosts[0].gpus] for frame in (first, second)]
        assert ids[0] == ids[1] and second.hosts[0].down is None
        assert not second.counts["lost"] and second.total == 4
        columns = fleet.fleet.history("a", fleet.now[0])
        assert set(columns) <= {"0", "1"} or name == "nvidia_gpu_exporter, old"


def test_numbers_that_cannot_be_are_not_believed() -> None:
    port = 'gputop_fabric_port_drops_total{port="p"}'
    seconds = "gputop_gpu_lost_seconds_total"
    numbers = ("-1e308", "1e308", "1e400", "-5", "NaN", "+Inf", "0x10", "1_000", "", "1e12")
    for number in numbers:
        with hosts("a") as fleet:
            lines = [line.rpartition(" ")[0] for line in own(0, "busy_not_working", **{seconds: 1})]
            wild = page(UP, *(f"{line} {number}" for line in lines), f"{port} {number}", *own(1))
            for text in (good(0, f"{port} 0"), wild, good(0, f"{port} 5"), wild):
                frame = fleet.frame(a=text)
            for gpu in frame.gpus:
                assert gpu.read.util_pct is None or 0.0 <= gpu.read.util_pct <= 100.0
            lost = sum(row.gpu_h for row in frame.read.hour.lost or ())
            assert 0.0 <= lost <= 2 * 20.0 / 3600.0 + 1e-9, (number, lost)
            assert all(len(text) < 100 for host in frame.hosts for text in host.faults)
            assert len(fleet_screen(frame, FleetView(), 120, 40).rows) == 40


def test_a_card_has_no_share_beyond_itself() -> None:
    share = 'gputop_gpu_share{gpu="0",uuid="GPU-0"} '
    text = page(UP, *own(0, "busy_not_working")).replace(f"{share}1", f"{share}1e12")
    host = ScrapedHost("a")
    for t in (1.0, 6.0):
        assert host.take(text, t) is None
    (lost,) = host.lost(6.0)
    assert lost.gpu_h == pytest.approx(5.0 / 3600.0)


@pytest.mark.parametrize(
    "label", ["gpu", "uuid", "user", "job_id", "scheduler", "hostname", "port"]
)
def test_a_label_may_hold_any_character(label: str) -> None:
    more = ('gputop_host_info{hostname="h"} 1', 'gputop_fabric_port_fault{port="p",fault="down"} 1')
    text = good(0, *more)
    with hosts("a", "b") as fleet:
        for strange in STRANGE:
            spoiled = text.replace(f'{label}="', f'{label}="{strange}')
            frame = fleet.frame(a=spoiled, b=good(1))
            assert [host.size for host in frame.hosts] >= [2, 2]
            for panel in ("hosts", "jobs", "users", "host"):
                view = FleetView(panel=panel, host="a")
                shown = text_of(fleet_screen(frame, view, 120, 40).rows)
                assert not any(char in shown for char in "\x1b\x00\x85\u202e\u2066\u2028")


@pytest.mark.parametrize(("ahead_s", "says"), [
    (7200.0, "its clock is 2 h ahead of this machine's"),
    (-7200.0, "its clock is 2 h behind this machine's"),
    (-NOW + 1.0, "its clock is 278 h behind this machine's"),
    (59.0, ""), (-59.0, ""),
])  # fmt: skip
def test_a_clock_that_is_hours_off_is_told_and_does_no_harm(ahead_s: float, says: str) -> None:
    with hosts("a", "b") as fleet:
        for _ in range(3):
            stamp = f"{STAMP} {fleet.now[0] + 5.0 + ahead_s}"
            frame = fleet.frame(a=good(0, stamp), b=good(1))
        first, second = frame.hosts
        assert list(first.faults) == [says] * bool(says) and first.counts["working"] == 2
        assert not second.faults and first.down is None


def test_the_hour_stays_when_this_machine_s_clock_is_set_back() -> None:
    waste = page(UP, *own(0, "busy_not_working"))
    with hosts("a") as fleet:
        for _ in range(25):
            frame = fleet.frame(a=waste)
        spent = sum(row.gpu_h for row in frame.read.hour.lost or ())
        frame = fleet.frame(later_s=-7200.0, a=waste)
        kept = sum(row.gpu_h for row in frame.read.hour.lost or ())
        assert spent > 0.03 and kept == pytest.approx(spent)
        for _ in range(12):
            frame = fleet.frame(a=waste)
        after = sum(row.gpu_h for row in frame.read.hour.lost or ())
        assert after == pytest.approx(spent + 60.0 / 3600.0, abs=1e-6)
        assert 180.0 <= frame.read.hour.span_s <= 190.0
        values = [value for value in fleet.fleet.history("a", frame.t)["0"][0] if value is not None]
        assert len(values) in (3, 4, 5) and all(value == pytest.approx(97.0) for value in values)


@contextmanager
def answering_once(answer: bytes) -> Iterator[str]:
    """The URL of a server that sends these bytes and closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/metrics"
        thread.join(10.0)


def _read_once(answer: bytes) -> FleetFrame:
    with answering_once(answer) as url:
        fleet = DirectFleet((), SshOptions(), links=[HostLink(url, scraped(url))])
        fleet.settle()
        frame = fleet_frame(fleet.ask())
        fleet.close()
    return frame


def test_half_an_answer_is_the_fault_of_its_host() -> None:
    half = good(0)[:-200].encode()
    (host,) = _read_once(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + half).hosts
    assert host.verdict.text == "down: the connection broke off within the answer"
    # Without a length only the last line tells.
    (host,) = _read_once(b"HTTP/1.0 200 OK\r\n\r\n" + half).hosts
    assert host.down is None and host.faults == (CUT,)
