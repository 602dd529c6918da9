"""The scrape server: what it answers, to whom, and what clients can do to it."""

from __future__ import annotations

import gzip
import resource
import shutil
import socket
import ssl
import subprocess
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.features.export import scrape_server as serving
from gputop.features.export.listen_address import ListenAddress, listen
from gputop.features.export.page_outputs import TextFile
from gputop.features.export.scrape_server import (
    HEAD_S,
    MOST_ANSWERS,
    ScrapeServer,
    accepts_gzip,
    context,
)
from gputop.model.source import UsageError

PAGE = "a_metric 1\n" * 400


@contextmanager
def running(
    tls: ssl.SSLContext | None = None,
    *,
    local_only: bool = True,
    page: Callable[[], str] = lambda: PAGE,
) -> Iterator[int]:
    """The port of a server with a page of 4 kB."""
    server = ScrapeServer(listen(ListenAddress("127.0.0.1", 0)), page, tls, local_only=local_only)
    server.start()
    try:
        yield server.socket.getsockname()[1]
    finally:
        server.stop()


def said(port: int, request: str) -> bytes:
    """The whole answer to a request."""
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(request.encode())
        return b"".join(iter(lambda: connection.recv(65536), b""))


def get(path: str, *headers: str, method: str = "GET") -> str:
    return "\r\n".join((f"{method} {path} HTTP/1.1", *(headers or ("Host: localhost",)), "", ""))


def test_three_paths_two_methods_and_nothing_else() -> None:
    with running() as port:
        for request, status in {
            get("/metrics"): b"200", get("/metrics?x=1"): b"200", get("/healthz"): b"200", get("/"): b"404",
            get("/metrics", method="HEAD"): b"200", get("/metrics/../etc/passwd"): b"404", get("/nothing"): b"404",
            get("/metrics", method="POST"): b"501", get("/metrics", method="DELETE"): b"501",
            get("/metrics", "Host: evil.example"): b"403", get("/metrics", "X: y"): b"403",
            get("/metrics", "Host: localhost", "Host: evil.example"): b"403",
        }.items():  # fmt: skip
            assert said(port, request).split(b" ", 2)[1] == status, request
        assert said(port, get("/metrics")).endswith(PAGE.encode())
        assert said(port, get("/metrics", method="HEAD")).endswith(b"\r\n\r\n")
        packed = said(port, get("/metrics", "Host: localhost", "Accept-Encoding: gzip")).split(
            b"\r\n\r\n", 1
        )[1]
        assert gzip.decompress(packed) == PAGE.encode()


def test_what_is_no_request_gets_a_status_line_and_plain_text() -> None:
    with running() as port:
        for request in (
            "\x16\x03\x01 nonsense\r\n\r\n",
            "GET\r\n\r\n",
            "GET /metrics FTP/1.1\r\n\r\n",
            "A B C D\r\n\r\n",
        ):
            answer = said(port, request)
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.0 4") and b"text/plain" in head and b"<" not in body, (
                answer
            )


@pytest.mark.parametrize(("header", "is_packed"), [
    ("gzip", True), ("GZip", True), ("x-gzip", True), ("*", True),
    ("deflate, gzip;q=0.5", True), ("gzip ; q = 1.000", True),
    ("gzip;q=0.001", True), ("identity;q=0.5, gzip", True), ("gzip;q=0.5, identity;q=0.5", True), ("*;q=0, gzip", True),
    ("", False), ("identity", False), ("deflate", False), ("gzip;q=0", False), ("gzip;q=0.", False),
    ("GZIP;Q=0.000", False),
    ("*;q=0", False), ("gzip;q=0, *", False), ("identity, gzip;q=0.5", False), ("gzip;q=x", False), ("gzipped", False),
    ("gzip;q=-1", False), ("br;q=1;gzip", False),
])  # fmt: skip
def test_a_client_gets_gzip_only_if_it_prefers_it(header: str, is_packed: bool) -> None:
    assert accepts_gzip(header) is is_packed


def test_the_weights_of_all_lines_of_a_request_count() -> None:
    with running() as port:
        for lines in (("gzip;q=0",), ("gzip;q=0", "deflate"), ("identity", "gzip;q=0.1")):
            headers = [f"Accept-Encoding: {line}" for line in lines]
            answer = said(port, get("/metrics", "Host: localhost", *headers))
            assert b"Content-Encoding" not in answer and answer.endswith(PAGE.encode()), lines


def test_a_client_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert HEAD_S <= 5.0
    monkeypatch.setattr(serving, "HEAD_S", 0.3)
    with running() as port:
        silent = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(2 * MOST_ANSWERS)]
        silent[0].sendall(b"GET /metrics HT")
        for connection in silent:
            connection.settimeout(5.0)
            with suppress(ConnectionError):
                assert connection.recv(100) == b""
            connection.close()
        assert b" 200 " in said(port, get("/metrics"))[:20]


@pytest.mark.parametrize("clients", [16, 500, 2000])
def test_who_asks_is_answered_beside_clients_that_send_a_byte_now_and_then(clients: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    slow: deque[socket.socket] = deque()
    with running() as port:
        for _ in range(clients):
            slow.append(socket.create_connection(("127.0.0.1", port), 5))
        for _ in range(8):
            # Each that was closed comes again, as those of somebody who means ill.
            for _ in range(64):
                with suppress(OSError):
                    slow[0].sendall(b"G")
                    slow.rotate(-1)
                    continue
                slow.popleft().close()
                slow.append(socket.create_connection(("127.0.0.1", port), 5))
            assert said(port, get("/metrics")).endswith(PAGE.encode())
    for connection in slow:
        connection.close()


def test_clients_that_do_not_take_their_answers_keep_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "SLOW_READER_S", 0.1)
    page = "a_metric 1\n" * 2_000_000
    with running(page=lambda: page) as port:
        deaf = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(MOST_ANSWERS)]
        for connection in deaf:
            connection.sendall(get("/metrics").encode())
        assert b" 200 " in said(port, get("/healthz"))[:20]
        for connection in deaf:
            connection.close()


def _certificate(folder: Path, name: str, signer: str | None = None) -> None:
    """NAME.pem and NAME.key; signed by another of these, or by itself."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", f"{name}.key",
         "-out", f"{name}.pem", *(("-CA", f"{signer}.pem", "-CAkey", f"{signer}.key") if signer else ())],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_over_tls_only_a_client_of_the_authority_gets_in(tmp_path: Path) -> None:
    _certificate(tmp_path, "server")
    _certificate(tmp_path, "ca")
    _certificate(tmp_path, "client", "ca")
    files = {name: str(tmp_path / name) for name in ("server.pem", "server.key", "ca.pem")}
    with running(context(files["server.pem"], files["server.key"], files["ca.pem"])) as port:
        # Says nothing: its handshake waits on its own thread.
        with socket.create_connection(("127.0.0.1", port), 5):
            mine = ssl.create_default_context(cafile=files["server.pem"])
            mine.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key")
            with (
                socket.create_connection(("127.0.0.1", port), 5) as plain,
                mine.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
            ):
                connection.sendall(get("/metrics").encode())
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
            assert answer.endswith(PAGE.encode())
        nobody = ssl.create_default_context(cafile=files["server.pem"])
        with (
            pytest.raises((ssl.SSLError, ConnectionError)),
            socket.create_connection(("127.0.0.1", port), 5) as plain,
            nobody.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            connection.sendall(get("/metrics").encode())
            if not connection.recv(100):
                raise ConnectionError


def test_a_certificate_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("nothing of the kind")
    for files in (
        (str(tmp_path / "no.pem"), None, None),
        ("/nonexistent.pem", None, None),
        (None, "key", None),
    ):
        with pytest.raises(UsageError, match=r"^--tls-cert|^TLS needs"):
            context(*files)
    with pytest.raises(UsageError) as told:
        context(str(tmp_path / "no.pem"), None, None)
    assert "_ssl.c" not in str(told.value)


def test_an_address_that_cannot_be_had_is_one_line() -> None:
    taken = listen(ListenAddress("127.0.0.1", 0))
    with taken, pytest.raises(UsageError, match="choose another one with --listen"):
        listen(ListenAddress("127.0.0.1", taken.getsockname()[1]))
    with pytest.raises(UsageError, match="no address"):
        listen(ListenAddress("no.such.host.invalid.", 1))


def test_a_text_file_is_whole_at_every_moment_and_gone_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputop.features.export.export_command.PAST_S", 5.0)
    words: list[str] = []
    path = tmp_path / "gputop.prom"
    file = TextFile(str(path), lambda: PAGE, words.append)
    file.write()
    assert path.read_text() == PAGE and path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [path]
    file.remove()
    assert list(tmp_path.iterdir()) == [] and words == []
    assert main(["export", "demo", "healthy", "--once", "--textfile", str(path)]) == 0
    assert capsys.readouterr().out == "" and 'source="simulated"' in path.read_text()
    for wrong in (str(tmp_path / "gputop.txt"), str(tmp_path / "nowhere" / "x.prom")):
        with pytest.raises(UsageError, match="--textfile"):
            TextFile(wrong, lambda: PAGE, words.append)
