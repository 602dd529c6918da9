"""The server of `gputop serve` with children that hang: who gets one, and that each one ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

aiohttp = pytest.importorskip("aiohttp", reason="needs the extra `web`")
pytest.importorskip("textual_serve", reason="needs the extra `web`")

from gputop.features.web import screen_server  # noqa: E402
from gputop.features.web.screen_server import LOCAL_HOST, MOST_VIEWERS, ScreenServer  # noqa: E402
from gputop.features.web.serve_command import listening  # noqa: E402
from tests.support.waiting import has_ended  # noqa: E402

TOKEN = "a-token"
DRAWS = (
    r"echo $$ >>$PIDS; printf '__GANGLION__\nD\000\000\000\005hello'; trap '' TERM INT HUP; exec "
    r"sleep 60"
)
"""A screen that draws once, and then neither reads nor leaves."""


class Running:
    """A server in this process; ``pids`` are the children that it has started."""

    def __init__(self, folder: Any, script: str = DRAWS) -> None:
        self._pids = folder / "pids"
        self.server = ScreenServer(TOKEN, ["/bin/sh", "-c", script], {"PIDS": str(self._pids)})
        self._listener = listening(0)
        self.origin = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.base = f"{self.origin}/{TOKEN}"

    async def __aenter__(self) -> Running:
        runner = aiohttp.web.AppRunner(
            await self.server.application(), access_log=None, shutdown_timeout=1.0
        )
        self.runner = runner
        await runner.setup()
        await aiohttp.web.SockSite(runner, self._listener).start()
        self.session = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()
        await self.runner.cleanup()

    async def opened(self, query: str = "") -> Any:
        return await self.session.ws_connect(f"{self.base}/ws{query}")

    @property
    def pids(self) -> list[int]:
        return [int(line) for line in self._pids.read_text().split()] if self._pids.exists() else []


@pytest.fixture
async def running(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> AsyncIterator[Running]:
    # These children do not leave: each is waited for, and then killed.
    monkeypatch.setattr(screen_server, "LEAVE_S", 0.1)
    async with Running(tmp_path) as one:
        yield one


async def all_ended(pids: list[int]) -> None:
    async def wait() -> None:
        while not all(map(has_ended, pids)):
            await asyncio.sleep(0.01)

    await asyncio.wait_for(wait(), 30)


async def closing(socket: Any) -> tuple[int, str]:
    """Code and reason with which the server closes a socket."""
    while True:
        message = await socket.receive(timeout=60)
        if message.type is aiohttp.WSMsgType.CLOSE:
            return message.data, message.extra
        assert message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT), message


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:1", "localhost:65535", "LOCALHOST", "[::1]:8000"]
)
def test_names_of_loopback_are_answered(host: str) -> None:
    assert LOCAL_HOST.fullmatch(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1:",
        "127.0.0.1:80\n",
        "0.0.0.0",
        "127.0.0.1:٣",
    ],
)
async def test_any_other_host_is_refused_whatever_is_asked_for(running: Running, host: str) -> None:
    assert not LOCAL_HOST.fullmatch(host)
    if host.isascii() and "\n" not in host:
        for path in ("/", "/ws", "/static/js/textual.js", "/nothing"):
            async with running.session.get(running.base + path, headers={"Host": host}) as answer:
                assert answer.status == 403, path
    assert running.pids == []


@pytest.mark.parametrize(
    "path", ["/", "/ws", "/wrong/", "/wrong/ws", "/a-toke/", "/A-TOKEN/", "/../a-toke/", "/static/"]
)
async def test_without_the_token_there_is_nothing(running: Running, path: str) -> None:
    async with running.session.get(running.origin + path) as answer:
        assert answer.status == 404
    assert running.pids == []


async def test_the_page_loads_nothing_from_elsewhere_and_sets_no_cookie(running: Running) -> None:
    for path in ("/", "/page/page.js", "/static/js/textual.js", "/static/css/xterm.css"):
        async with running.session.get(running.base + path) as answer:
            text = await answer.text()
            assert answer.status == 200 and len(text) > 500, path
            assert (
                "Set-Cookie" not in answer.headers
                and answer.headers["Referrer-Policy"] == "no-referrer"
            )
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert "/static/" in path or "https:" not in text, path
    async with running.session.get(running.base + "/page/../screen_server.py") as answer:
        assert answer.status == 404


@pytest.mark.parametrize(
    "bad",
    [
        "{", "[]", "{}", '["nothing"', '["resize", {"width": null, "height": 1}]', '["stdin", 3]',
        pytest.param("[" * 9000, id="deep"),
    ],
)  # fmt: skip
async def test_garbage_on_the_socket_closes_it_in_one_line(
    running: Running, bad: str, capfd: pytest.CaptureFixture[str]
) -> None:
    socket = await running.opened()
    assert (await socket.receive(timeout=60)).data == b"hello"
    await socket.send_str(bad)
    assert await closing(socket) == (4400, "not a message of this page")
    await all_ended(running.pids)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("query", ["?width=x", "?height=", "?width=" + "9" * 5000])
async def test_a_size_that_is_no_number_starts_nothing(running: Running, query: str) -> None:
    assert (await closing(await running.opened(query)))[0] == 4400
    assert running.pids == []


async def test_a_child_that_reads_nothing_costs_no_memory_and_ends_with_its_browser(
    running: Running,
) -> None:
    socket = await running.opened()
    assert (await socket.receive(timeout=60)).data == b"hello"
    for _ in range(200):
        await socket.send_json(["stdin", "x" * 50_000])
        await socket.send_json(["resize", {"width": 10**9, "height": 10**9}])
    await socket.close()
    await all_ended(running.pids)


async def test_eight_browsers_get_a_place_and_one_is_free_when_a_browser_has_left(
    running: Running,
) -> None:
    sockets = await asyncio.gather(*(running.opened() for _ in range(3 * MOST_VIEWERS)))
    first = [await socket.receive(timeout=60) for socket in sockets]
    assert sum(message.data == b"hello" for message in first) == MOST_VIEWERS
    full = [message for message in first if message.data == 1013]
    assert len(full) == 2 * MOST_VIEWERS and "already" in str(full[0].extra)
    assert len(running.pids) == MOST_VIEWERS
    await next(
        socket for socket, message in zip(sockets, first, strict=True) if message.data == b"hello"
    ).close()
    while running.server._viewers == MOST_VIEWERS:
        await asyncio.sleep(0.01)
    assert (await (await running.opened()).receive(timeout=60)).data == b"hello"
