"""The screen in a browser: who gets in, what a viewer can do, what the page loads, and that nothing stays behind."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.features.web.served import WITHHELD, ServedApp
from gputop.model.extras import install
from gputop.output.ansi import plain_text
from gputop.paint.keys import KEYS
from gputop.paint.view import View
from gputop.tui.screens.pages import HelpScreen
from tests.support.command import is_one_line
from tests.support.fake_app import playback_on
from tests.support.frames import demo_frame
from tests.support.hostile import recording
from tests.support.serving import Serving, environment, gone
from tests.support.steady_pilot import shown

HAS_WEB = importlib.util.find_spec("textual_serve") is not None


def served(test: Callable[..., object]) -> Callable[..., object]:
    """A test with a real server and real screens."""
    needs = pytest.mark.skipif(not HAS_WEB, reason="needs the extra `web` (textual-serve)")
    return pytest.mark.slow(needs(test))


async def test_a_viewer_writes_no_file_and_moves_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_help_and_palette_name_no_key_that_a_browser_does_not_have() -> None:
    app = ServedApp(View(), "dark", playback_on(demo_frame()))
    async with shown(app, (120, 40)) as pilot:
        titles = {command.title for command in app.get_system_commands(app.screen)}
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        words = plain_text(app.screen.rows(160))
    withheld = [key for key in KEYS if key.id in WITHHELD]
    assert len(withheld) >= 8
    for key in withheld:
        assert key.does not in titles and key.does not in words, key.id
    assert "filter" in words


def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['textual_serve'] = None;from gputop.cli import main; "
        "sys.exit(main(['serve', 'demo']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
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
    words: tuple[str, ...],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        "gputop.features.web.serve_command.listening",
        lambda _port: pytest.fail("it was going to serve"),
    )
    assert main(["serve", *words]) == 2
    said = capsys.readouterr()
    assert is_one_line(said.err) and says in said.err
    assert said.out == ""


@served
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
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
        assert status == (-9 if number == signal.SIGKILL else 0)
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
async def test_a_screen_that_cannot_begin_closes_its_socket_and_says_why_in_the_terminal(
    tmp_path: Path,
) -> None:
    path = tmp_path / "train.jsonl.gz"
    async with Serving(recording(path, frames=2)) as serving:
        path.write_bytes(b"\x1b[2J nothing")
        assert (await serving.closing(await serving.opened()))[0] == 1000
        serving.process.terminate()
        said = (await asyncio.to_thread(serving.process.communicate))[0]
        assert (
            "recording" in said and "\x1b" not in said and "Traceback" not in said + serving.said()
        )
