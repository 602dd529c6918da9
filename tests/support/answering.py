"""An HTTP server on a free port of the loopback that answers what a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = tuple[int, bytes, dict[str, str]]
"""Status, body and headers beside the body's length."""


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler, bytes], Answer]) -> Iterator[int]:
    """The port of one that gives each request, with its body, to ``answer``."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            status, body, headers = answer(
                self, self.rfile.read(int(self.headers.get("Content-Length") or 0))
            )
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body)

        do_GET = do_PATCH = do_POST = _answer

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield http.server_port
        finally:
            http.shutdown()
