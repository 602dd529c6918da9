"""The server of `gputop serve` in parts: the gate, the messages, the page, what a viewer is told."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from gputop.config import Settings
from gputop.features.web.serve_command import FOR_VIEWERS, NOT_FOR_VIEWERS, for_viewers, viewer_command
from gputop.features.web.viewer import Size
from gputop.system.children import our_program

pytest.importorskip("textual_serve", reason="needs the extra `web`")

from gputop.features.web.page_server import (
    BadMessage,
    GateKey,
    Ping,
    Resize,
    Typed,
    decoded,
    first_size,
    headers_for,
    refusal,
)

PAGE = Path(__file__).parents[3] / "gputop" / "features" / "web" / "page"
FILES = {"/page.js", "/textual.js", "/xterm.css", "/RobotoMono.ttf"}

# -- the gate ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:9000", "LocalHost", "[::1]:9000"])
def test_the_names_of_this_machine_s_loopback_are_answered(host: str) -> None:
    assert refusal(host) is None


@pytest.mark.parametrize(
    "host",
    ["evil.example:8000", "127.0.0.1.evil.example", "127.0.0.1:8000@evil.example", "[::1", "127.0.0.1:99999999", ""],
)
def test_a_name_that_was_made_to_point_here_is_turned_away(host: str) -> None:
    assert "loopback" in (refusal(host) or "")


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
    assert command == our_program("gputop.features.web.served", "demo", "starved")
    given = for_viewers(settings)
    assert given["gpus"] == settings.gpus
    assert given["keys"] == settings.keys
    assert "price" not in given


def test_a_recording_is_found_from_the_folder_of_the_viewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = viewer_command(argparse.Namespace(source="r.jsonl.gz", scenario=None))
    assert command[-1] == str(tmp_path / "r.jsonl.gz")
