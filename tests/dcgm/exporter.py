"""A small dcgm-exporter: answers with the text that it holds, which a test may change."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer


class SmallExporter:
    """``text`` is the body of the next answer; ``asked`` counts the answers."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.asked = 0
        self.url = ""


@contextmanager
def exporting(text: str) -> Iterator[SmallExporter]:
    """An exporter on a free port of the loopback."""
    exporter = SmallExporter(text)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            exporter.asked += 1
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"{exporter.text}# {exporter.asked}\n".encode())

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test's output clean."""

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        exporter.url = f"http://127.0.0.1:{http.server_port}/metrics"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield exporter
        http.shutdown()
