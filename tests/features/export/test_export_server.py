"""The scrape server: what it answers, to whom, and what clients can do to it."""

from __future__ import annotations

import gzip
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.features.export import scrape_server as serving
from gputop.features.export.listen_address import ListenAddress, listen
from gputop.features.export.page_outputs import TextFile
from gputop.features.export.scrape_server import MOST_CONNECTIONS, ScrapeServer, context
from gputop.model.source import UsageError

PAGE = "a_metric 1\n" * 400


@contextmanager
def running(tls: ssl.SSLContext | None = None, *, local_only: bool = True) -> Iterator[int]:
    """The port of a server with a page of 4 kB."""
    server = ScrapeServer(
        listen(ListenAddress("127.0.0.1", 0)), lambda: PAGE, tls, local_only=local_only
    )
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


def test_a_client_that_sits_there_is_cut_off_and_too_many_are_closed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "LONGEST_S", 0.3)
    with running() as port:
        silent = [
            socket.create_connection(("127.0.0.1", port), 5) for _ in range(2 * MOST_CONNECTIONS)
        ]
        silent[0].sendall(b"GET /metrics HT")
        for connection in silent:
            connection.settimeout(5.0)
            with suppress(ConnectionError):
                assert connection.recv(100) == b""
            connection.close()
        assert b" 200 " in said(port, get("/metrics"))[:20]


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
