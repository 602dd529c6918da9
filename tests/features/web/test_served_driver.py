"""The input of a screen in a browser: it waits for the screen, and neither noise nor an unfinished key stops it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from textual.events import Key
from textual.message import Message

from gputop.features.web.served_driver import MOST_SWALLOWED, MOST_WAITING, ServedDriver


class Screen:
    """A screen that takes what it is sent, and has as much before it as is set."""

    message_queue_size = 0

    def __init__(self) -> None:
        self.screen = self
        self.taken: list[Message] = []
        self.is_ended = threading.Event()

    async def _post_message(self, message: Message) -> bool:
        self.taken.append(message)
        return True

    def post_message(self, message: Message) -> None:
        self.is_ended.set()


class Reader:
    """Packets in place of stdin."""

    def __init__(self, *packets: bytes) -> None:
        self._packets = packets

    def __iter__(self) -> Iterator[bytes]:
        for kind, text in ((b"D", packet) for packet in self._packets):
            data = kind + len(text).to_bytes(4, "big") + text
            yield from (data[i : i + 1024] for i in range(0, len(data), 1024))
        yield b""

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def screen() -> Screen:
    return Screen()


def driver(screen: Screen, loop: asyncio.AbstractEventLoop, *packets: bytes) -> ServedDriver:
    """A driver without pipes: this process has none to spare."""
    made: Any = ServedDriver.__new__(ServedDriver)
    made._app, made._loop, made._debug = screen, loop, False
    made.cursor_origin, made._down_buttons, made._last_move_event = None, [], None
    made.exit_event = threading.Event()
    made._input_reader = Reader(*packets)
    return made  # type: ignore[no-any-return]


async def _typed(screen: Screen, *packets: bytes) -> list[str]:
    """The keys that reach the screen."""
    reading = driver(screen, asyncio.get_running_loop(), *packets)
    await asyncio.wait_for(asyncio.to_thread(reading.run_input_thread), 20)
    return [message.key for message in screen.taken if isinstance(message, Key)]


async def test_input_waits_while_the_screen_has_much_before_it(screen: Screen) -> None:
    screen.message_queue_size = MOST_WAITING
    reading = asyncio.create_task(_typed(screen, b"abcdef"))
    while not screen.taken:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert len(screen.taken) == 1
    screen.message_queue_size = 0
    assert await reading == list("abcdef")


def test_input_waits_for_a_loop_that_is_busy(screen: Screen) -> None:
    loop = asyncio.new_event_loop()
    waiting = driver(screen, loop)
    thread = threading.Thread(target=waiting.send_message, args=(Key("a", "a"),), daemon=True)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    waiting.exit_event.set()
    thread.join(60)
    assert not thread.is_alive()
    # The key is taken after all, so that nothing is left waiting.
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


async def test_a_key_or_a_paste_without_an_end_is_dropped(screen: Screen) -> None:
    pasted = b"\x1b[200~" + b"y" * (MOST_SWALLOWED + 100)
    assert await _typed(screen, pasted, b"q") == ["q"]


async def test_bytes_that_are_no_text_and_no_key_do_not_deafen_the_screen(screen: Screen) -> None:
    noise = [b"\xff\xfe\x80", b"\x1b[<0;1;-;;M", b"\x1b[99999999999999999999u", b"\x1b[1114112;1u"]
    assert (await _typed(screen, *noise, b"q"))[-1] == "q"


async def test_a_screen_whose_server_has_gone_ends(screen: Screen) -> None:
    await _typed(screen)
    assert screen.is_ended.is_set()
