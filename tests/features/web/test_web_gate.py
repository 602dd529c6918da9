"""The server of `gputop serve` in parts: the gate, the messages, the door, the page, what a viewer is told."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputop.config import Settings
from gputop.features.web.gate import (
    ANSWER_S,
    MOST_ASKED,
    MOST_STRANGERS,
    STRANGER_S,
    BadMessage,
    ConnectionLimit,
    GateKey,
    Ping,
    Resize,
    Size,
    Typed,
    decoded,
    first_size,
    headers_for,
    refusal,
)
from gputop.features.web.serve_command import FOR_VIEWERS, NOT_FOR_VIEWERS, for_viewers, package_folder, viewer_command

HERE = {"Host": "127.0.0.1:8000"}
OWN = {**HERE, "Origin": "http://127.0.0.1:8000"}
PAGE = Path(__file__).parents[3] / "gputop" / "features" / "web" / "page"
FILES = {"/page.js", "/textual.js", "/xterm.css", "/RobotoMono.ttf"}

# -- the gate ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "page", "socket"),
    [
        (HERE, None, "only the page"),
        (OWN, None, None),
        ({"Host": "localhost:9000", "Origin": "http://localhost:9000"}, None, None),
        ({"Host": "LocalHost", "Origin": "https://localhost"}, None, None),
        ({"Host": "[::1]:9000", "Origin": "http://[::1]:9000"}, None, None),
        ({"Host": "evil.example:8000"}, "loopback", "loopback"),
        ({"Host": "127.0.0.1.evil.example"}, "loopback", "loopback"),
        ({"Host": "127.0.0.1:8000@evil.example"}, "loopback", "loopback"),
        ({"Host": "[::1"}, "loopback", "loopback"),
        ({"Host": "127.0.0.1:99999999"}, "loopback", "loopback"),
        ({"Host": "127.0.0.1:8000\n"}, "loopback", "loopback"),
        ({"Host": ""}, "loopback", "loopback"),
        ({}, "loopback", "loopback"),
        ({**HERE, "Origin": "http://evil.example"}, "another site", "another site"),
        ({**HERE, "Origin": "http://127.0.0.1:9999"}, "another site", "another site"),
        ({**HERE, "Origin": "http://[::1"}, "another site", "another site"),
        ({**HERE, "Origin": "null"}, "another site", "another site"),
        ({**HERE, "Origin": ""}, "another site", "another site"),
        ({**HERE, "Cookie": "gputop=the key"}, None, "only the page"),
    ],
)
def test_only_the_page_of_this_machine_opens_the_socket(
    headers: dict[str, str], page: str | None, socket: str | None
) -> None:
    for is_socket, says in ((False, page), (True, socket)):
        refused = refusal(headers, socket=is_socket)
        if says is None:
            assert refused is None
        else:
            assert refused is not None
            assert refused.status == 403
            assert says in refused.words


def test_the_browser_is_told_to_ask_no_other_host() -> None:
    policy = headers_for("localhost:9000")["Content-Security-Policy"]
    assert set(re.findall(r"\w+://\S+?(?=[;\s])", policy)) == {"ws://localhost:9000", "wss://localhost:9000"}
    assert "script-src 'self';" in policy
    assert not re.search(r"ws:[ ;]|\*", policy)


def test_the_page_names_no_other_host_and_holds_no_script() -> None:
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    loaded = [one for pair in re.findall(r"""(?:src|href)="([^"]*)"|url\("([^"]*)"\)""", page) for one in pair if one]
    assert {f"/{one}" for one in loaded if not one.startswith(("data:", "#"))} == FILES
    assert re.findall(r"<script[^>]*>([^<]*)</script>", page) == ["", ""]
    assert "document.cookie" not in (PAGE / "page.js").read_text(encoding="utf-8")


# -- messages ----------------------------------------------------------------------------------------------------------


def test_what_the_page_sends_is_understood() -> None:
    assert decoded('["key","k"]') == GateKey("k")
    assert decoded('["stdin","\\u001b[A"]') == Typed("\x1b[A")
    assert decoded('["resize",{"width":80,"height":24}]') == Resize(Size(80, 24))
    assert decoded('["ping","12"]') == Ping("12")


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[]", "null", "1", '"stdin"', '["stdin"]', '["stdin",1]', '["stdin",null]', '["nothing","x"]',
        '["resize"]', '["resize",{}]', '["resize",{"width":"80","height":24}]', '["resize",{"width":80.5,"height":24}]',
        '["resize",{"width":true,"height":24}]', '["resize",{"width":NaN,"height":24}]',
        '["resize",{"width":1e999,"height":24}]',
        "[" * 50_000, '["resize",' + '{"a":' * 50_000, '["stdin","\x00\udcff"]',
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused(text: str) -> None:
    with pytest.raises(BadMessage):
        decoded(text)


def test_a_size_is_one_that_a_screen_can_have() -> None:
    assert Size(10**9, 10**9).clamped() == Size(500, 200)
    assert Size(-5, 0).clamped() == Size(1, 1)
    huge = decoded('["resize",{"width":' + "9" * 25 + ',"height":-9}]')
    assert isinstance(huge, Resize)
    assert huge.size.clamped() == Size(500, 1)
    assert first_size("99999999", "40") == Size(500, 40)
    assert first_size("120", "40") == Size(120, 40)
    for wrong in ("", "-1", "1.5", "nan", "9" * 5000, "0x10", "1_0", "٣", "80\n"):
        with pytest.raises(BadMessage):
            first_size(wrong, "24")


# -- the door ----------------------------------------------------------------------------------------------------------


class Clock:
    """The part of an event loop that the door uses, with a time that is set."""

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, Timer, Callable[..., object], tuple[Any, ...]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, call: Callable[..., object], *arguments: Any) -> Timer:
        timer = Timer()
        self._calls.append((self.now + delay, timer, call, arguments))
        return timer

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while due := [call for call in self._calls if call[0] <= until]:
            first = min(due, key=lambda call: call[0])
            self._calls.remove(first)
            self.now = first[0]
            if not first[1].is_cancelled:
                first[2](*first[3])
        self.now = until


class Timer:
    is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Line(asyncio.Transport):
    """A connection."""

    def __init__(self, unsent: int = 0) -> None:
        super().__init__()
        self.is_open = True
        self.unsent = unsent

    def abort(self) -> None:
        self.is_open = False

    def get_write_buffer_size(self) -> int:
        return self.unsent


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def door(clock: Clock) -> ConnectionLimit:
    return ConnectionLimit(clock)  # type: ignore[arg-type]


def test_of_too_many_strangers_the_oldest_leaves_and_the_owner_gets_in(door: ConnectionLimit) -> None:
    idle = [Line() for _ in range(1146)]
    for line in idle:
        door.enter(line)
    owner = Line()
    door.enter(owner)
    door.let_in(owner)
    assert owner.is_open
    assert sum(line.is_open for line in idle) == len(door) == MOST_STRANGERS - 1
    assert all(line.is_open for line in idle[-(MOST_STRANGERS - 1) :])


def test_a_stranger_has_five_seconds_and_who_had_the_key_stays(door: ConnectionLimit, clock: Clock) -> None:
    stranger, owner = Line(), Line()
    door.enter(stranger)
    door.enter(owner)
    door.let_in(owner)
    clock.advance(STRANGER_S - 0.1)
    assert stranger.is_open
    clock.advance(0.2)
    assert not stranger.is_open
    clock.advance(3600)
    assert owner.is_open
    assert len(door) == 0


def test_a_page_on_its_way_over_a_slow_line_is_not_cut_and_one_that_nobody_reads_is(
    door: ConnectionLimit, clock: Clock
) -> None:
    loading, unread = Line(unsent=100_000), Line(unsent=100_000)
    door.enter(loading)
    door.enter(unread)
    clock.advance(STRANGER_S + 10)
    assert loading.is_open
    loading.unsent = 0
    clock.advance(1.5)
    assert not loading.is_open
    assert unread.is_open
    clock.advance(ANSWER_S)
    assert not unread.is_open


def test_a_stranger_says_little(door: ConnectionLimit) -> None:
    talker, owner = Line(), Line()
    door.enter(talker)
    door.enter(owner)
    door.let_in(owner)
    assert door.takes(talker, MOST_ASKED)
    assert not door.takes(talker, 1)
    assert not talker.is_open
    assert door.takes(owner, 10 * MOST_ASKED)


# -- settings ----------------------------------------------------------------------------------------------------------


def test_each_setting_is_either_for_a_viewer_or_it_is_not() -> None:
    """A new setting does not reach a browser until somebody has decided that it may, in `serve_command.py`."""
    assert set(Settings.__struct_fields__) == FOR_VIEWERS | NOT_FOR_VIEWERS
    assert not FOR_VIEWERS & NOT_FOR_VIEWERS
    private = re.compile("alert|notify|price|prom_|token|secret")
    assert not [name for name in FOR_VIEWERS if private.search(name)]


def test_no_setting_is_on_the_command_line_of_a_viewer() -> None:
    settings = Settings(gpus="0,1; rm -rf '$HOME'", columns=("pid",), keys={"quit": "x"}, price=2.5)
    command = viewer_command(argparse.Namespace(source="demo", scenario="starved"))
    assert command == [sys.executable, "-m", "gputop.features.web.served", "demo", "starved"]
    given = for_viewers(settings)
    assert given["gpus"] == settings.gpus
    assert given["keys"] == settings.keys
    assert "price" not in given


def test_a_recording_is_found_from_the_folder_of_the_viewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = viewer_command(argparse.Namespace(source="r.jsonl.gz", scenario=None))
    assert command[-1] == str(tmp_path / "r.jsonl.gz")
    assert (Path(package_folder()) / "gputop" / "features" / "web" / "served.py").exists()
