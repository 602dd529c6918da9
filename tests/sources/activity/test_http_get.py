"""One GET against a true server on the loopback: what is sent, what is refused, and that nothing takes for ever."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gputop.sources.activity import http_get
from gputop.sources.activity.http_get import MOST_BYTES, get, trouble

TEXT = "DCGM_FI_PROF_SM_ACTIVE 0.5\n"


LENGTH = {"Content-Length": len(TEXT)}
CHUNKS = [f"{len(piece):x}\r\n{piece}\r\n" for piece in (TEXT[:9], TEXT[9:], "")]
ANSWERS: dict[str, tuple[int, str | None, dict[str, object], list[str]]] = {
    "metrics": (200, None, LENGTH, [TEXT]), "endless": (200, None, {}, [TEXT]),
    "chunked": (200, None, {"Transfer-Encoding": "chunked"}, CHUNKS),
    "torn": (200, None, {"Content-Length": len(TEXT) + 10}, [TEXT]),
    "huge": (200, None, {}, ["x" * (MOST_BYTES + 10)]), "drips": (200, None, LENGTH, list(TEXT)),
    "zipped": (200, None, {"Content-Encoding": "gzip", "Content-Length": 1}, ["x"]),
    "elsewhere": (302, None, {"Location": "/metrics", "Content-Length": 0}, []),
    "absent": (404, "Not\x1b[2JFound", {}, []),
}  # fmt: skip
"""Status, reason, headers and the pieces of the body by path."""


class Server:
    """Where it listens, and the headers that it was sent."""

    def __init__(self, http: ThreadingHTTPServer) -> None:
        self.url = f"http://127.0.0.1:{http.server_port}"
        self.asked: list[tuple[str, dict[str, str]]] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_has: Server

    def do_GET(self) -> None:
        self.server_has.asked.append((self.path, dict(self.headers)))
        self.close_connection = True
        path = self.path[1:].partition("?")[0]
        if path == "garbage":
            self.wfile.write(b"no HTTP at all\r\n\r\n")
            return
        status, reason, headers, pieces = ANSWERS[path]
        self.send_response(status, reason)
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()
        with suppress(OSError):
            for piece in pieces:
                self.wfile.write(piece.encode())
                time.sleep(0.5 if path == "drips" else 0.0)

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def server() -> Iterator[Server]:
    class Asked(Handler):
        pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Asked) as http:
        server = Asked.server_has = Server(http)
        threading.Thread(
            target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()
        yield server
        http.shutdown()


def failure(url: str, timeout_s: float = 1.0) -> str:
    with pytest.raises((OSError, ValueError)) as error:
        get(url, timeout_s)
    assert isinstance(error.value, OSError | ValueError)
    return trouble(error.value)


@pytest.mark.parametrize("path", ["metrics", "endless", "chunked", "metrics?a=b"])
def test_a_body_is_read_however_it_is_sent(server: Server, path: str) -> None:
    assert get(f"{server.url}/{path}", 20.0) == TEXT
    ((asked, headers),) = server.asked
    assert asked == f"/{path}"
    assert headers["Accept-Encoding"] == "identity"
    assert "Authorization" not in headers


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("absent", "answers 404 Not?[2JFound"),
        ("torn", "breaks off in the middle of its answer"),
        ("huge", "answers with more than 4 MiB"),
        ("zipped", "answers in gzip, which was not asked for"),
        ("elsewhere", "answers 302 Found, and redirects are not followed"),
        ("garbage", "does not speak HTTP (BadStatusLine)"),
    ],
)
def test_what_cannot_be_metrics_is_refused_in_printable_words(
    server: Server, path: str, why: str
) -> None:
    assert failure(f"{server.url}/{path}") == why
    assert len(server.asked) == 1


def test_neither_one_wait_nor_all_together_take_long(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert failure(f"{server.url}/drips", 0.1) == "timed out"
    monkeypatch.setattr(http_get, "LONGEST_S", 0.2)
    begun = time.monotonic()
    assert "for one answer" in failure(f"{server.url}/drips", 20.0)
    assert time.monotonic() - begun < 10.0, "all of it takes 13 s"


def test_a_port_at_which_nobody_listens_is_said_in_words() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert failure(f"http://127.0.0.1:{port}/metrics") == "Connection refused"


def test_no_proxy_of_the_environment_is_asked(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert get(f"{server.url}/metrics", 20.0) == TEXT


def test_user_and_password_are_sent_as_basic_authentication(server: Server) -> None:
    get(server.url.replace("//", "//Aladdin:open%20sesame@") + "/metrics", 20.0)
    assert server.asked[0][1]["Authorization"] == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
