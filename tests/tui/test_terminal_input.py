"""Input of a terminal and signals, in a real pseudo-terminal: whatever comes, `q` still ends the screen."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gputop.tui.terminal.input_decoder import InputDecoder, Paste
from tests.support.pty_program import ROOT, PtyProgram
from tests.support.waiting import until

DEMO = ("demo", "small_kernels")
PASTE_WITH_ESC = b"\x1b[200~x\x1b[31m q\x03\x1b[201~"


def _started(*arguments: str, **more: object) -> PtyProgram:
    program = PtyProgram(*arguments, **more)  # type: ignore[arg-type]
    program.read_until_started("NOT WORKING")
    return program


def _goes_on_and_quits(program: PtyProgram) -> None:
    program.press("?")
    program.read_until("closes")
    program.press("qq")
    program.end_in_time()
    assert program.status == 0
    assert program.is_restored()
    assert b"Traceback" not in program.written


# -- the decoder ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_input_is_split_into_keys_and_pastes_wherever_it_is_cut(size: int) -> None:
    data = (
        b"j\x1b[A"
        + PASTE_WITH_ESC
        + "é\x1b[<0;400;10M".encode()
        + b"\x1b]11;rgb:ffff/ffff/f0f0\x07k"
    )
    decoder, parts = InputDecoder(), list[str | Paste]()
    for begin in range(0, len(data), size):
        parts += decoder.feed(data[begin : begin + size])
    keys = "".join(part for part in parts if isinstance(part, str))
    assert keys == "j\x1b[Aé\x1b[<0;400;10Mk"
    assert [part for part in parts if isinstance(part, Paste)] == [Paste("x q")]
    assert decoder.is_light is True and not decoder.is_waiting


def test_escape_alone_and_a_paste_without_an_end_come_once_nothing_follows() -> None:
    decoder = InputDecoder()
    assert decoder.feed(b"\x1b") == [] and decoder.is_waiting
    assert decoder.flush() == ["\x1b"] and not decoder.is_waiting
    assert decoder.feed(b"\x1b[200~abc\x1b[20") == [] and decoder.is_pasting
    assert decoder.flush() == [Paste("abc")]
    assert decoder.feed(b"q") == ["q"]


@pytest.mark.parametrize(
    ("answer", "light"),
    [(b"0000/0000/0000", False), (b"ff/ff/e0", True), (b"2828/2c2c/3434", False), (b"x/y", None)],
)
def test_the_answer_to_the_colour_query_tells_light_from_dark(
    answer: bytes, light: bool | None
) -> None:
    decoder = InputDecoder()
    assert decoder.feed(b"\x1b]11;rgb:" + answer + b"\x1b\\") == []
    assert decoder.is_light is light


def test_noise_of_any_kind_is_no_end_of_the_decoder() -> None:
    draw = random.Random(48)
    for _ in range(200):
        decoder = InputDecoder()
        for _ in range(20):
            decoder.feed(
                bytes(
                    draw.choices(b"\x1b\x1b[]2001~;rgb:/\x07\\\xff\xc3a", k=draw.randrange(1, 30))
                )
            )
            if draw.random() < 0.2:
                decoder.flush()
        decoder.flush()
        assert not decoder.is_waiting


# -- a real terminal --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "paste", [PASTE_WITH_ESC, b"\x1b[200~abc q"], ids=["with ESC", "without an end"]
)
def test_a_paste_presses_no_keys_and_holds_none(paste: bytes) -> None:
    with _started(*DEMO) as program:
        os.write(program.terminal, paste)
        program.read_for(1.5)
        _goes_on_and_quits(program)


@pytest.mark.parametrize("to_group", [False, True], ids=["process", "group"])
def test_a_stop_by_signal_and_its_end_leave_the_keys_alive(to_group: bool) -> None:
    send = os.killpg if to_group else os.kill
    with _started(*DEMO) as program:
        for _ in range(4):
            # A second one comes while the first is handled: it waits for no lock.
            send(program.pid, signal.SIGTSTP)
            send(program.pid, signal.SIGTSTP)
            program.wait_for_state("T")
            program.read_for(0.1)
            program.written = b""
            send(program.pid, signal.SIGCONT)
            program.read_until_started("NOT WORKING")
        _goes_on_and_quits(program)


@pytest.mark.slow
def test_a_closed_terminal_ends_the_screen_also_where_hang_ups_are_ignored() -> None:
    with _started(*DEMO, within=("bash", "-c", 'trap "" HUP; exec "$0" "$@"')) as program:
        os.close(program.terminal)
        program.terminal = os.open(os.devnull, os.O_RDWR)
        program.end_in_time(drain=False)
        assert program.status == 129


def test_the_picture_comes_at_once_where_the_terminal_can_show_it_so() -> None:
    with _started(*DEMO) as program:
        program.press("\x1b[?2026;2$y")
        program.read_until("\x1b[?2026h")
        program.read_until("\x1b[?2026l")
        _goes_on_and_quits(program)


@pytest.mark.parametrize("late", [False, True], ids=["at once", "later"])
def test_a_light_terminal_gets_the_light_theme_by_its_own_answer(late: bool) -> None:
    with PtyProgram(*DEMO, env={"COLORTERM": "truecolor", "COLORFGBG": ""}) as program:
        program.read_until("\x1b]11;?")
        if late:
            program.read_until_started("NOT WORKING")
            assert b"48;2;255;255;255" not in program.written
        program.press("\x1b]11;rgb:ffff/ffff/ffff\x07")
        program.read_until("48;2;255;255;255")
        program.read_until_started("NOT WORKING")
        _goes_on_and_quits(program)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux")
def test_in_tmux_a_copy_reaches_its_clipboard(tmp_path: Path) -> None:
    tmux = ("tmux", "-S", str(tmp_path / "socket"), "-f", "/dev/null")
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
    command = f"{sys.executable} -m gputop demo small_kernels"

    def asked(*words: str) -> str:
        return subprocess.run(
            [*tmux, *words], capture_output=True, text=True, check=False, env=environ
        ).stdout

    try:
        asked("new-session", "-d", "-x", "120", "-y", "40", command)
        asked("set", "-s", "set-clipboard", "on")
        until(lambda: "NOT WORKING" in asked("capture-pane", "-p"))
        time.sleep(1.0)  # until Textual has taken over, which no text on the screen tells
        asked("send-keys", "y")
        until(lambda: "evidence" in asked("show-buffer"))
        assert "small kernels" in asked("show-buffer")
    finally:
        asked("kill-server")
