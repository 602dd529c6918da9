"""Slow sources that the jobs read from, and a visitor for those that serve. Threads of the test, ended with it."""

from __future__ import annotations

import os
import select
import socket
import threading
import time

from tests.e2e.loads import BATCH_BYTES

FEED_EVERY_S = 0.4
"""Each reader gets one batch in this time."""
VISITS_S = (2.0, 1.0)
"""A visitor asks for so long, then is silent for so long: bursts, as a server has them."""


class SlowServer:
    """Sends one batch after the other to whoever connects, at its pace."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        try:
            while not self._stop.is_set():
                if select.select([self._listener], [], [], 0.2)[0]:
                    connection, _ = self._listener.accept()
                    threading.Thread(target=self._feed, args=(connection,), daemon=True).start()
        except (OSError, ValueError):
            # Closed while it was waiting: the test is over.
            return

    def _feed(self, connection: socket.socket) -> None:
        try:
            with connection:
                while not self._stop.wait(FEED_EVERY_S):
                    connection.sendall(bytes(BATCH_BYTES))
        except OSError:
            return


def feed_fifos(paths: list[str], stop: threading.Event) -> None:
    """Write batches into FIFOs at the pace of a slow source."""
    # Opened for both directions, a FIFO needs no reader yet.
    writers = [os.open(path, os.O_RDWR | os.O_NONBLOCK) for path in paths]
    while not stop.wait(FEED_EVERY_S):
        for writer in select.select([], writers, [], 0.0)[1]:
            os.write(writer, bytes(BATCH_BYTES))
    for writer in writers:
        os.close(writer)


def visit(port: int, stop: threading.Event) -> None:
    """Ask a job that serves, in bursts."""
    begun = time.monotonic()
    while not stop.wait(0.1):
        if (time.monotonic() - begun) % sum(VISITS_S) > VISITS_S[0]:
            continue
        try:
            with socket.create_connection(("127.0.0.1", port), 2.0) as connection:
                connection.sendall(b"?")
                connection.recv(1)
        except OSError:
            continue
