"""The server of `gputop serve` with screens that hang: who gets a process, and that each one ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

aiohttp = pytest.importorskip("aiohttp", reason="needs the extra `web`")
pytest.importorskip("textual_serve", reason="needs the extra `web`")

from gputop.features.web import page_server as server_module  # noqa: E402
from gputop.features.web import viewer as viewer_module  # noqa: E402
from gputop.features.web.page_server import FILES, MOST_VIEWERS, Screen, Server  # noqa: E402
from gputop.features.web.serve_command import listening  # noqa: E402
from gputop.features.web.viewer import Size, Viewer  # noqa: E402
from gputop.system.children import ours  # noqa: E402
from tests.support.waiting import has_ended  # noqa: E402

KEY = "the key"


# -- a viewer's process ------------------------------------------------------------------------------------------------

DRAWS = r"printf '__GANGLION__\nD\000\000\000\005hello'; exec sleep 60"
"""A screen that draws once, and then neither reads nor leaves."""


async def _viewer(script: str) -> Viewer:
    return await Viewer.start(["/bin/sh", "-c", script], {"gpus": "0"}, ours())


async def _drawn(viewer: Viewer) -> bytes:
    """What it draws, until it ends."""
    seen = b""

    async def send(content: bytes) -> None:
        nonlocal seen
        seen += content

    await asyncio.wait_for(viewer.show(send), 10)
    return seen


async def test_settings_come_first_and_over_stdin() -> None:
    viewer = await _viewer(r"printf '__GANGLION__\nD\000\000\000\022'; head -c 18; printf 'M\000\000\000\017'; "
                           """printf '{"type":"exit"}'""")  # fmt: skip
    assert (await _drawn(viewer))[:5] == b"S\0\0\0\x0d"
    assert await viewer.failure() is None


async def test_a_process_that_does_not_leave_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer_module, "LEAVE_S", 0.1)
    viewer = await _viewer("trap '' TERM INT HUP; exec sleep 60")
    await viewer.leave()
    assert has_ended(viewer.pid)


async def test_a_failure_is_one_line_without_control_characters() -> None:
    viewer = await _viewer(r"printf 'Traceback\n  File\ngputop: no \033[2Jdriver\n\n' >&2; exit 3")
    assert await _drawn(viewer) == b""
    assert await viewer.failure() == "no ?[2Jdriver"
    silent = await _viewer("exit 7")
    assert await silent.failure() == "the screen ended with status 7"


async def test_keys_that_a_hanging_screen_cannot_take_are_dropped() -> None:
    viewer = await _viewer(DRAWS)
    for _ in range(200):
        viewer.type("x" * 50_000)
        viewer.resize(Size(100, 50))
        viewer.focus(True)
    assert viewer._process.stdin is not None
    assert viewer._process.stdin.transport.get_write_buffer_size() < 200_000
    await viewer.end()


# -- the server, with screens that hang --------------------------------------------------------------------------------


class Running:
    """A server in this process."""

    def __init__(self) -> None:
        self.server = Server(KEY, Screen(["/bin/sh", "-c", DRAWS], {}))
        self._listener = listening(0)
        self.base = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    async def __aenter__(self) -> Running:
        await self.server.start(self._listener)
        self.session = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop()
        await self.session.close()

    async def opened(self, query: str = "", first: object = ("key", KEY)) -> Any:
        """A socket on which the first message was sent."""
        socket = await self.session.ws_connect(f"{self.base}/ws{query}", headers={"Origin": self.base})
        if first is not None:
            await socket.send_json(first)
        return socket

    @property
    def pids(self) -> list[int]:
        return [viewer.pid for viewer in self.server._viewers]


@pytest.fixture
async def running(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    # These screens do not leave: each is waited for, and then killed.
    monkeypatch.setattr(viewer_module, "LEAVE_S", 0.1)
    async with Running() as one:
        yield one


async def _closing(socket: Any) -> tuple[int, str]:
    """Code and reason with which the server closes a socket."""
    while True:
        message = await socket.receive(timeout=60)
        if message.type is aiohttp.WSMsgType.CLOSE:
            return message.data, message.extra
        assert message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT), message


@pytest.mark.parametrize(
    "first", [["key", "wrong"], ["key", ""], ["key", "wr\u00f6ng \U0001f600"], ["stdin", "q"], [1]]
)
async def test_without_the_key_as_the_first_message_nothing_is_started(running: Running, first: object) -> None:
    socket = await running.opened(first=first)
    assert (await _closing(socket))[0] == 4403
    assert running.pids == []


async def test_the_key_has_to_come_in_time(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "KEY_S", 0.1)
    socket = await running.opened(first=None)
    assert (await _closing(socket))[0] == 4403


@pytest.mark.parametrize(
    "bad", [["nothing"], ["resize", {"width": None, "height": 1}], ["key", [KEY]], {}, "x", b"\x00\xff"]
)
async def test_a_message_that_means_nothing_ends_the_screen_without_a_word_in_the_log(
    running: Running, bad: object, capfd: pytest.CaptureFixture[str]
) -> None:
    socket = await running.opened()
    assert (await socket.receive(timeout=60)).data == b"hello"
    if isinstance(bad, bytes):
        await socket.send_bytes(bad)
    else:
        await socket.send_json(bad)
    assert (await _closing(socket))[0] == 4400
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("query", ["?width=x", "?width=-1&height=4", "?height=", "?width=" + "9" * 5000])
async def test_a_size_that_is_no_number_is_a_bad_request(running: Running, query: str) -> None:
    async with running.session.get(running.base + "/ws" + query, headers={"Origin": running.base}) as answer:
        assert answer.status == 400


async def test_a_place_is_free_when_its_browser_has_left(running: Running) -> None:
    sockets = [await running.opened() for _ in range(MOST_VIEWERS)]
    for socket in sockets:
        assert (await socket.receive(timeout=60)).data == b"hello"
    code, reason = await _closing(await running.opened())
    assert code == 1013
    assert "already" in reason
    pids = running.pids
    await sockets[0].close()
    while running.server._places == MOST_VIEWERS:
        await asyncio.sleep(0.01)
    assert any(map(has_ended, pids))
    assert (await (await running.opened()).receive(timeout=60)).data == b"hello"


async def test_of_browsers_that_come_at_the_same_moment_eight_get_a_place(running: Running) -> None:
    sockets = await asyncio.gather(*(running.opened() for _ in range(3 * MOST_VIEWERS)))
    first = [await socket.receive(timeout=60) for socket in sockets]
    assert sum(message.data == b"hello" for message in first) == MOST_VIEWERS
    assert sum(message.data == 1013 for message in first) == 2 * MOST_VIEWERS
    assert len(running.pids) == MOST_VIEWERS


async def test_a_screen_that_cannot_be_started_is_told(running: Running) -> None:
    running.server._screen = Screen(["/nowhere/sh"], {})
    assert await _closing(await running.opened()) == (1011, "the screen cannot be started: No such file or directory")


async def test_screens_that_end_while_they_are_ended_are_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    viewers = await asyncio.gather(*(_viewer(f"exec sleep 0.{n:02}") for n in range(20)))
    for viewer in viewers:
        await viewer._process.stdout.read()  # type: ignore[union-attr]
        await viewer.end()
    assert "Unknown child process" not in caplog.text


async def test_with_the_server_all_processes_end(running: Running) -> None:
    sockets = [await running.opened() for _ in range(3)]
    for socket in sockets:
        assert (await socket.receive(timeout=60)).data == b"hello"
    pids = running.pids
    assert len(pids) == 3
    stopping = asyncio.create_task(running.server.stop())
    assert (await _closing(sockets[0]))[0] == 1001
    await stopping
    assert all(map(has_ended, pids))


async def test_nothing_is_kept_in_a_cookie(running: Running) -> None:
    for path in FILES:
        async with running.session.get(running.base + path) as answer:
            assert answer.status == 200
            assert "Set-Cookie" not in answer.headers
            assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
            assert len(await answer.read()) > 500
    async with running.session.get(running.base + "/../server.py") as answer:
        assert answer.status == 404
