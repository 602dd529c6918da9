"""The TCP sockets of one process: what they receive, by the port that they lead to, and how that is shown."""

from __future__ import annotations

import os
import socket

import pytest

from gputop.model.inspection import SocketGroup, SocketList
from gputop.output.ansi import plain_text
from gputop.paint.process_page import MOST_GROUPS, add_sockets
from gputop.sources.processes import requested_looks
from gputop.sources.processes.open_files import DENIED_FDS
from gputop.sources.processes.requested_looks import read_sockets
from gputop.sources.processes.socket_tables import SocketTables, tcp_tables
from tests.support.frames import demo_frame, detail_page


def _shown(sockets: SocketList | None) -> str:
    page = detail_page(demo_frame(), 100)
    add_sockets(page, sockets)
    return plain_text(page.rows).strip("\n")


def test_a_real_connection_is_seen_with_the_rate_at_which_it_receives() -> None:
    if tcp_tables().reason:
        pytest.skip("this kernel shows nobody its socket table")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as end:
            first = read_sockets(os.getpid(), None, 100.0)
            end.sendall(bytes(50_000))
            left = 50_000
            while left:
                left -= len(client.recv(left))
            second = read_sockets(os.getpid(), first, 102.0)
    listening, to_server = (
        next(g for g in second.groups if g.port == port and g.listens is listens) for listens in (True, False)
    )
    assert (listening.count, listening.rx_bytes_per_s) == (1, None)
    assert to_server == SocketGroup(port, False, True, 1, 25_000.0)
    assert all(group.rx_bytes_per_s is None for group in first.groups)


def test_what_may_not_be_seen_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_sockets(2**22 + 1, None, 1.0).reason == DENIED_FDS
    monkeypatch.setattr(requested_looks, "tcp_tables", lambda: SocketTables({}, "the table cannot be read: no"))
    with socket.create_server(("127.0.0.1", 0)):
        refused = read_sockets(os.getpid(), None, 1.0)
    assert refused.reason == "the table cannot be read: no"
    assert "the table cannot be read: no" in _shown(refused)


def test_sockets_are_shown_by_port_and_a_process_without_any_has_no_heading() -> None:
    groups = (SocketGroup(443, False, False, 4, 9.4e6), SocketGroup(29500, True, True, 1))
    shown = _shown(SocketList(1.0, groups))
    assert "5 TCP sockets, receiving 9.4 MB/s in all" in shown
    assert "  443       elsewhere             4     9.4 MB/s" in shown
    assert "  29500     listens               1            –" in shown
    assert _shown(SocketList(1.0)) == _shown(None) == ""
    many = SocketList(1.0, tuple(SocketGroup(port, False, False, 1) for port in range(1, MOST_GROUPS + 3)))
    assert "and 2 ports more that receive less" in _shown(many)
