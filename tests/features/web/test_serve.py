"""The screen in a browser: who gets in, what a viewer can do, what the page loads, and that nothing stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.config import Settings
from gputop.features.web.served import WITHHELD, ServedApp, browser
from gputop.model.extras import install
from gputop.paint.keys import KEYS
from gputop.paint.view import View
from tests.support.command import is_one_line
from tests.support.fake_app import playback_on
from tests.support.frames import demo_frame
from tests.support.hostile import recording
from tests.support.serving import Serving, environment, frame, gone, peak_mib
from tests.support.steady_pilot import shown

ROOT = Path(__file__).parents[3]
HAS_WEB = importlib.util.find_spec("textual_serve") is not None


def served(test: Callable[..., object]) -> Callable[..., object]:
    """A test with a real server and real screens."""
    needs = pytest.mark.skipif(not HAS_WEB, reason="needs the extra `web` (textual-serve)")
    return pytest.mark.slow(needs(test))


async def test_a_viewer_writes_no_file_and_moves_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = ServedApp(View(), "dark", playback_on(demo_frame()))
    async with shown(app, (120, 40)) as pilot:
        before = app.view.gpu
        for key in ("R", "f8", "ctrl+z", "f9", "e", "d"):
            await pilot.press(key)
            await pilot.pause()
            assert len(app.screen_stack) == 1, key
            assert "read-only" in (app.view.message or ""), key
            await pilot.press("escape")
        await pilot.press("right_square_bracket")
        await pilot.pause()
        assert app.view.gpu != before
    assert list(tmp_path.iterdir()) == []


def test_what_a_viewer_does_not_get_are_actions_that_exist() -> None:
    assert {key.id for key in KEYS} >= WITHHELD


def test_the_theme_that_was_asked_for_counts_in_the_browser_too() -> None:
    assert (browser(Settings()).depth, browser(Settings()).theme) == ("truecolor", "dark")
    assert browser(Settings(theme="light")).theme == "light"
    assert browser(Settings(no_color=True)).glyphs.name == "mono"
    assert browser(Settings(ascii=True)).glyphs.name == "ascii"


def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['textual_serve'] = None;from gputop.cli import main; sys.exit(main(['serve', 'demo']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert install("web") in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(not HAS_WEB, reason="needs the extra `web` (textual-serve)")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nowhere.jsonl",), "no recording at nowhere.jsonl"),
        ((__file__,), "no frame of a recording"),
        ((__file__, "ecc"), "a scenario belongs to `serve demo`"),
        (("demo", "nonsense"), "nonsense"),
    ],
    ids=["missing", "no recording", "a scenario of a file", "no scenario"],
)
def test_what_could_not_be_shown_is_refused_before_a_browser_is_opened(
    words: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "gputop.features.web.serve_command.listening", lambda _port: pytest.fail("it was going to serve")
    )
    assert main(["serve", *words]) == 2
    said = capsys.readouterr()
    assert is_one_line(said.err) and says in said.err
    assert said.out == ""


@served
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
async def test_all_viewers_die_with_the_server_however_it_ends(number: signal.Signals) -> None:
    async with Serving() as serving:
        hanging = await serving.look()
        (pid,) = serving.viewers()
        os.kill(pid, signal.SIGSTOP)
        starting = await serving.opened()
        while len(pids := serving.viewers()) < 2:
            await asyncio.sleep(0.01)
        serving.process.send_signal(number)
        status = await asyncio.to_thread(serving.process.wait, 60)
        assert status == {signal.SIGKILL: -9, signal.SIGHUP: -1}.get(number, 0)
        await gone(pids, 2.0)
        await asyncio.gather(hanging.close(), starting.close())


@served
async def test_a_viewer_sees_the_screen_and_its_process_leaves_with_it() -> None:
    async with Serving() as serving:
        socket = await serving.look(width=120, height=40)
        await serving.type(socket, "?", until=b"UTIL is the share")
        pids = serving.viewers()
        assert len(pids) == 1
        assert "price" not in Path(f"/proc/{pids[0]}/cmdline").read_text()
        await socket.close()
        await gone(pids, 4.0)
        other = await serving.look(width=80, height=24)
        await other.send_json(["stdin", "q"])
        assert (await serving.closing(other))[0] == 1000


@served
async def test_a_viewer_that_does_not_leave_is_killed_after_three_seconds() -> None:
    async with Serving() as serving:
        socket = await serving.look()
        pids = serving.viewers()
        os.kill(pids[0], signal.SIGSTOP)
        await socket.close()
        began = time.monotonic()
        await gone(pids, 5.0)
        assert time.monotonic() - began > 1.0


@served
async def test_a_screen_that_cannot_begin_closes_its_socket_and_says_why_in_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl.gz"
    async with Serving(recording(path, frames=2)) as serving:
        path.write_bytes(b"\x1b[2J nothing")
        assert (await serving.closing(await serving.opened()))[0] == 1000
        serving.process.terminate()
        said = (await asyncio.to_thread(serving.process.communicate))[0]
        assert "recording" in said and "\x1b" not in said and "Traceback" not in said + serving.said()


HUGE = [1_000_000_000, 10**18, 65_536]


@served
async def test_no_size_makes_a_viewer_large() -> None:
    async with Serving() as serving:
        socket = await serving.look(width=99_999_999, height=99_999_999)
        for size in HUGE * 30:
            await socket.send_json(["resize", {"width": size, "height": size}])
        await serving.type(socket, "?", until=b"UTIL is the share")
        (pid,) = serving.viewers()
        assert peak_mib(pid) < 250


GARBAGE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
    b"GET / HTTP/1.1\r\nHost: [\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: " + b'a=\x80\xff;==;"' * 20 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: " + b"x" * 60_000 + b"\r\n\r\n",
    b"GET http://[evil/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET //evil/../%00%ff?%zz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"CONNECT evil:443 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999999\r\n\r\n" + b"x" * 100_000,
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
    b"GET /TOKEN/ws?width=" + b"9" * 5000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\n\r\n",
    b"GET /TOKEN/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\nUpgrade: websocket\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 20_000,
    b"GET / HTTP/1.1\n" * 50_000,
    b"\x00" * 200_000,
]


@served
async def test_garbage_is_answered_with_400_or_403_and_leaves_no_traceback() -> None:
    async with Serving() as serving:
        sent = [await _answer(serving, garbage.replace(b"TOKEN", serving.key.encode())) for garbage in GARBAGE * 3]
        for status in sent:
            assert status in ("", "200", "400", "403", "404", "405"), sent
        for cut in (
            b"\x81",
            b"\x81\xff" + b"\xff" * 8,
            b"\xff\xff\xff\xff",
            b"\x88\x80\0\0\0\0",
            frame({"a": [[]] * 9000}),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
            writer.write(serving.upgrade() + cut)
            await asyncio.wait_for(_ended_after_answer(reader), 60)
            writer.close()
        await serving.look()
        assert "Traceback" not in serving.said()
        assert peak_mib(serving.process.pid) < 200


async def _answer(serving: Serving, request: bytes) -> str:
    """The status of the answer, or nothing where the connection was closed without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
    try:
        writer.write(request)
        line = await asyncio.wait_for(reader.readline(), 60)
    except ConnectionError:
        return ""
    finally:
        writer.transport.abort()
    return line.decode("latin-1").split()[1] if line else ""


async def _ended_after_answer(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        await reader.read()
