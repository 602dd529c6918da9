"""Services of this host for which a job waits: real processes, found by the socket that they listen on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gputop.sources.processes.resolve.host_services import KEPT_S, HostServices
from gputop.sources.processes.resolve.socket_tables import PeerLookup
from gputop.sources.processes.tree.process_table import ProcessTable
from gputop.sources.processes.tree.process_tree import ProcessPlace
from tests.proc_trees.fake_proc import FakeProc

SERVER = """
import json, socket, sys, threading, time
server = socket.create_server(("127.0.0.1", 0))
print(json.dumps(server.getsockname()[1]), flush=True)
connection, _ = server.accept()
while sys.argv[1] == "computes": pass
time.sleep(1000)
"""
ADDRESS = b"\x7f\x00\x00\x01"


@contextmanager
def served(does: str) -> Iterator[tuple[int, int]]:
    """A server's pid, and its port."""
    with subprocess.Popen([sys.executable, "-c", SERVER, does], stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            yield server.pid, json.loads(server.stdout.readline())
        finally:
            server.kill()


@pytest.mark.parametrize("does", ["computes", pytest.param("rests", marks=pytest.mark.slow)])
def test_a_service_is_named_while_it_computes(does: str) -> None:
    import socket

    table, ends, services = ProcessTable("/proc"), PeerLookup(), HostServices("/proc")
    with served(does) as (pid, port), socket.create_connection(("127.0.0.1", port)) as mine:
        table.refresh(0.0)
        found = None
        while found is None or found[1] is None:
            ends.dump(0.0)
            found = ends.tcp(0.0, os.fstat(mine.fileno()).st_ino)
            time.sleep(0.05)
        root = table.get(os.getpid())
        assert root is not None
        placed = {os.getpid(): ProcessPlace(root, os.getpid(), 3, "gpu", None, "")}
        begun = time.monotonic()
        services.note_wait(begun, (ADDRESS, port), found[1], os.getpid())
        seen: dict[int, ProcessPlace] = {}
        # A machine that others crowd leaves it a part of a core.
        while not seen and time.monotonic() - begun < (20.0 if does == "computes" else 3.0):
            seen = services.computing(time.monotonic(), table, placed, ends)
            time.sleep(0.3)
        assert list(seen) == ([pid] if does == "computes" else [])
        if seen:
            assert (seen[pid].root, seen[pid].gpu, seen[pid].rule, seen[pid].may_feed) == (
                os.getpid(),
                3,
                "R6",
                True,
            )
            # Who is a part of a job already is not placed again, and whom nobody asks is forgotten.
            assert services.computing(time.monotonic(), table, {**placed, **seen}, ends) == {}
            services.note_wait_again(begun + KEPT_S, (ADDRESS, port))
            services.computing(begun + KEPT_S + 5.0, table, placed, ends)
            assert list(services._services) == [(ADDRESS, port)]
            services.computing(begun + 2.0 * KEPT_S + 5.0, table, placed, ends)
            assert not services._services


class Listening(PeerLookup):
    """One listener, whose socket has the inode 77."""

    def listener(self, port: int) -> int | None:
        return 77


@pytest.mark.parametrize(
    ("run_ms", "queued_ms", "is_named"),
    [(1, 25, False), (1, 400, False), (20, 0, True), (11, 11, True), (11, 0, False)],
)
def test_a_service_that_rests_is_not_named_however_long_its_threads_queue(
    tmp_path: Path, run_ms: int, queued_ms: int, is_named: bool
) -> None:
    """29 threads each a second: together they must run, or be kept from running, for half a core."""
    fake, service, root = FakeProc(tmp_path), 500, 400
    fake.process(root)
    fake.process(service, threads={})
    (fake.proc / f"{service}/fd").mkdir()
    (fake.proc / f"{service}/fd/3").symlink_to("socket:[77]")
    table, services = ProcessTable(str(fake.proc)), HostServices(str(fake.proc))
    table.refresh(0.0)
    stat = table.get(root)
    assert stat is not None
    placed = {root: ProcessPlace(stat, root, 0, "gpu", None, "")}
    services.note_wait(0.0, (ADDRESS, 80), 77, root)
    for second in range(3):
        for tid in range(501, 530):
            times = f"{second * run_ms * 10**6} {second * queued_ms * 10**6} {second + 1}\n"
            fake.write(f"proc/{service}/task/{tid}/schedstat", times)
        seen = services.computing(float(second), table, placed, Listening())
    assert (list(seen) == [service]) is is_named
