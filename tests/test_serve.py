"""The screen in a browser: who gets in, what a viewer can do, what the page loads, and that nothing stays behind."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.commands.serve import PAGE, POLICY, refused, viewer_command
from gputop.commands.served import browser
from gputop.config import Settings
from gputop.monitor import Monitor
from gputop.paint.keys import KEYS
from gputop.paint.view import View
from gputop.tui.served_app import WITHHELD, ServedApp
from tests.support.browser import CHROMIUM, Browser
from tests.support.frames import demo_frame

ROOT = Path(__file__).parent.parent
served = pytest.mark.skipif(
    importlib.util.find_spec("textual_serve") is None, reason="needs the extra `web` (textual-serve)"
)
TOKEN = "secret"
HERE = {"Host": "127.0.0.1:8000"}


@pytest.mark.parametrize(
    ("headers", "given", "cookie", "says"),
    [
        (HERE, TOKEN, None, None),
        (HERE, None, TOKEN, None),
        ({"Host": "localhost:9000"}, TOKEN, None, None),
        ({"Host": "[::1]:9000"}, TOKEN, None, None),
        ({**HERE, "Origin": "http://127.0.0.1:8000"}, None, TOKEN, None),
        (HERE, None, None, "token"),
        (HERE, "secre", "wröng", "token"),
        ({"Host": "evil.example:8000"}, TOKEN, None, "loopback"),
        ({"Host": "127.0.0.1.evil.example"}, TOKEN, None, "loopback"),
        ({}, TOKEN, None, "loopback"),
        ({**HERE, "Origin": "http://evil.example"}, None, TOKEN, "another site"),
        ({**HERE, "Origin": "http://127.0.0.1:9999"}, None, TOKEN, "another site"),
        ({**HERE, "Origin": "null"}, None, TOKEN, "another site"),
    ],
)
def test_only_this_machine_with_the_secret_gets_in(
    headers: dict[str, str], given: str | None, cookie: str | None, says: str | None
) -> None:
    answer = refused(TOKEN, headers, given, cookie)
    assert answer is None if says is None else says in (answer or "")


def test_the_page_names_no_other_host_and_the_browser_is_told_to_ask_none() -> None:
    page = PAGE.read_text(encoding="utf-8")
    loaded = re.findall(r"""(?:src|href)="([^"]*)"|url\("([^"]*)"\)""", page)
    assert len(loaded) >= 4
    assert all(one.startswith(("static/", "data:", "#")) for pair in loaded for one in pair if one)
    assert "http" not in POLICY


async def test_a_viewer_writes_no_file_and_moves_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = ServedApp(View(), "dark", monitor=Monitor(), first=demo_frame())
    async with app.run_test(size=(120, 40)) as pilot:
        before = app.view.gpu
        for key in ("R", "f8", "ctrl+z", "f9", "e", "d"):
            await pilot.press(key)
            await pilot.pause()
            assert len(app.screen_stack) == 1, key
            assert "looking only" in (app.view.message or ""), key
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


def test_settings_reach_the_viewers_process_whatever_is_in_them() -> None:
    import argparse
    import json
    import shlex

    settings = Settings(gpus="0,1; rm -rf '$HOME'", columns=("pid",), keys={"quit": "x"})
    command = shlex.split(viewer_command(argparse.Namespace(source="demo", scenario=None), settings))
    assert command[:4] == ["exec", sys.executable, "-m", "gputop.commands.served"]
    assert json.loads(command[4])["gpus"] == settings.gpus
    assert command[5:] == ["demo"]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['textual_serve'] = None;from gputop.cli import main; sys.exit(main(['serve', 'demo']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=_environment(), capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "gputop-tui[web]" in done.stderr
    assert done.stderr.count("\n") == 1


class Serving:
    """``gputop serve demo`` on a free port."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gputop", "serve", "demo", "--port", "0"],
            env=_environment(),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        self.base, _, self.token = self.address.partition("/?token=")

    def viewers(self) -> list[int]:
        """Processes of viewers that are running."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in children]

    def status(self, address: str, **headers: str) -> int:
        try:
            with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=10) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as error:
            return error.code


@pytest.fixture
def serving() -> Iterator[Serving]:
    server = Serving()
    yield server
    server.process.kill()
    server.process.wait()


@served
def test_page_and_files_are_behind_the_secret(serving: Serving) -> None:
    script = serving.base + "/static/js/textual.js"
    assert serving.address.startswith("http://127.0.0.1:")
    assert serving.status(serving.address) == 200
    assert serving.status(serving.base) == 403
    assert serving.status(script) == 403
    assert serving.status(script, Cookie=f"gputop={serving.token}") == 200
    assert serving.status(serving.address, Host="evil.example") == 403
    assert serving.status(serving.base + "/ws", Origin="http://evil.example", Cookie=f"gputop={serving.token}") == 403


@served
async def test_a_viewer_sees_the_screen_and_leaves_no_process_behind(serving: Serving) -> None:
    import aiohttp

    cookies = {"gputop": serving.token}
    async with aiohttp.ClientSession(cookies=cookies, cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        socket = await session.ws_connect(serving.base + "/ws?width=120&height=40")
        await _until(socket, b"NOT WORKING")
        pids = serving.viewers()
        assert len(pids) == 1
        await socket.send_json(["stdin", "?"])
        await _until(socket, b"three numbers")
        await socket.close()
        await asyncio.to_thread(_wait_gone, pids)
        other = await session.ws_connect(serving.base + "/ws?width=80&height=24")
        await _until(other, b"NOT WORKING")
        pids = serving.viewers()
        serving.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(serving.process.wait, 10) == 0
        await asyncio.to_thread(_wait_gone, pids)


async def _until(socket: object, text: bytes) -> None:
    seen = b""

    async def read() -> None:
        nonlocal seen
        while text not in seen:
            seen += await socket.receive_bytes()  # type: ignore[attr-defined]

    await asyncio.wait_for(read(), 30)


def _wait_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, "a viewer's process stayed behind"
        time.sleep(0.02)


async def _drawn(page: Browser, path: Path) -> None:
    """Until a picture of the page is more than an empty ground, which compresses to a few kilobytes."""
    while not path.exists() or path.stat().st_size < 30_000:
        await page.picture(path)


@served
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
async def test_chromium_draws_it_and_asks_no_other_host(serving: Serving, tmp_path: Path) -> None:
    async with Browser(tmp_path / "profile") as page:
        await page.call("Page.navigate", url=serving.address)
        await page.wait_for("document.body && document.body.classList.contains('-first-byte')")
        await asyncio.wait_for(_drawn(page, tmp_path / "page.png"), 20)
        assert page.console == []
        assert any(address.startswith("ws:") for address in page.requests)
        for address in page.requests:
            assert address.split("/")[2] == serving.base.split("/")[2], address
        await page.call("Input.insertText", text="q")
        await page.wait_for("document.body.classList.contains('-closed')")
