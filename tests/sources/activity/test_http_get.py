"""One GET against a true server on the loopback: what is sent, what is refused, and that nothing takes for ever."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gputop.sources.activity import http_get
from gputop.sources.activity.http_get import MOST_BYTES, get, trouble

TEXT = "DCGM_FI_PROF_SM_ACTIVE 0.5\n"


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
        answer = getattr(self, "answer_" + self.path.strip("/").partition("?")[0], None)
        if answer is None:
            self.head(404, reason="Not\x1b[2JFound")
        else:
            answer()

    def head(self, status: int, reason: str | None = None, **headers: object) -> None:
        self.send_response(status, reason)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def answer_metrics(self) -> None:
        self.head(200, Content_Length=len(TEXT))
        self.wfile.write(TEXT.encode())

    def answer_endless(self) -> None:
        """No length: the body ends where the connection does."""
        self.head(200)
        self.wfile.write(TEXT.encode())

    def answer_chunked(self) -> None:
        self.head(200, Transfer_Encoding="chunked")
        for piece in (TEXT[:9], TEXT[9:], ""):
            self.wfile.write(f"{len(piece):x}\r\n{piece}\r\n".encode())

    def answer_torn(self) -> None:
        self.head(200, Content_Length=len(TEXT) + 10)
        self.wfile.write(TEXT.encode())

    def answer_huge(self) -> None:
        self.head(200)
        self.wfile.write(b"x" * (MOST_BYTES + 10))

    def answer_zipped(self) -> None:
        self.head(200, Content_Encoding="gzip", Content_Length=4)
        self.wfile.write(b"\x1f\x8b\x08\x00")

    def answer_elsewhere(self) -> None:
        self.head(302, Location="/metrics", Content_Length=0)

    def answer_stalls(self) -> None:
        self.head(200, Content_Length=len(TEXT))
        self.wfile.write(TEXT[:5].encode())
        self.wfile.flush()
        time.sleep(0.6)

    def answer_drips(self) -> None:
        self.head(200, Content_Length=len(TEXT))
        for char in TEXT:
            try:
                self.wfile.write(char.encode())
                self.wfile.flush()
            except OSError:
                return
            time.sleep(0.5)

    def answer_garbage(self) -> None:
        self.wfile.write(b"no HTTP at all\r\n\r\n")

    def answer_bytes(self) -> None:
        self.head(200, Content_Length=3)
        self.wfile.write(b"\xff\xfe\n")

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def server() -> Iterator[Server]:
    class Asked(Handler):
        pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Asked) as http:
        server = Asked.server_has = Server(http)
        threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
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
def test_what_cannot_be_metrics_is_refused_in_printable_words(server: Server, path: str, why: str) -> None:
    assert failure(f"{server.url}/{path}") == why
    assert len(server.asked) == 1


def test_neither_one_wait_nor_all_together_take_long(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    assert failure(f"{server.url}/stalls", 0.1) == "timed out"
    monkeypatch.setattr(http_get, "LONGEST_S", 0.2)
    begun = time.monotonic()
    assert "for one answer" in failure(f"{server.url}/drips", 20.0)
    assert time.monotonic() - begun < 10.0, "all of it takes 13 s"


def test_a_port_at_which_nobody_listens_is_said_in_words() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert failure(f"http://127.0.0.1:{port}/metrics") == "Connection refused"


def test_no_proxy_of_the_environment_is_asked(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert get(f"{server.url}/metrics", 20.0) == TEXT


def test_user_and_password_are_sent_as_basic_authentication(server: Server) -> None:
    get(server.url.replace("//", "//Aladdin:open%20sesame@") + "/metrics", 20.0)
    assert server.asked[0][1]["Authorization"] == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
