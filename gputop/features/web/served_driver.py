"""Textual's driver for a browser, whatever that sends: it reads no more than the screen can handle."""

from __future__ import annotations

import asyncio
import contextlib
from codecs import getincrementaldecoder
from concurrent import futures

from textual._xterm_parser import XTermParser
from textual.app import ScreenStackError
from textual.driver import Driver
from textual.drivers._byte_stream import ByteStream
from textual.drivers.web_driver import WebDriver
from textual.message import Message
from textual.messages import ExitApp

from gputop.tui.node_app import GputopApp

MOST_WAITING = 32
"""Messages that wait for the screen before its input waits for it. The pipe then fills, and the server drops keys."""
POLL_S = 0.01
PATIENCE_S = 0.1
"""How often a reader that waits for the screen checks whether the screen has ended."""
MOST_SWALLOWED = 1 << 16
"""Characters that may be part of one key or one pasted text: the parser keeps an unfinished one for ever."""


class ServedDriver(WebDriver):
    """Reads keys and sizes no faster than the screen deals with them, and ends with its input."""

    def run_input_thread(self) -> None:
        try:
            self._read()
        finally:
            self._input_reader.close()
            if not self.exit_event.is_set():
                # The server has gone, or sent what cannot be read.
                self._app.post_message(ExitApp())

    def _read(self) -> None:
        packets = ByteStream()
        parser = XTermParser()
        decode = getincrementaldecoder("utf-8")("replace").decode
        swallowed = 0
        for data in self._input_reader:
            for kind, content in packets.feed(data) if data else ():
                if kind != "D":
                    self._on_meta(kind, content)
                    self._follow()
                    continue
                text = decode(content)
                swallowed += len(text)
                try:
                    for event in parser.feed(text):
                        swallowed = 0
                        self.process_message(event)
                except (ValueError, OverflowError):
                    # Not a key. Textual's reader would end here and leave a screen that takes no input.
                    parser, swallowed = XTermParser(), 0
                if swallowed > MOST_SWALLOWED:
                    parser, swallowed = XTermParser(), 0
            for event in parser.tick():
                self.process_message(event)

    def send_message(self, message: Message) -> None:
        """Called on the input thread for every key and click; blocks while too many messages wait for the screen."""
        taken = asyncio.run_coroutine_threadsafe(self._app._post_message(message), loop=self._loop)
        while not self.exit_event.is_set() and not futures.wait([taken], timeout=PATIENCE_S).done:
            pass
        self._follow()

    def _follow(self) -> None:
        while self._waiting() > MOST_WAITING and not self.exit_event.wait(POLL_S):
            pass

    def _waiting(self) -> int:
        waiting = self._app.message_queue_size
        with contextlib.suppress(ScreenStackError):
            waiting += self._app.screen.message_queue_size
        return waiting


# The screen for a browser: to look at and navigate, without anything that changes the machine it shows.

WITHHELD = frozenset(
    {"record", "screenshot", "suspend", "signal", "terminate", "kill", "interrupt_process", "environment", "stacks"}
)
"""Actions that write a file, reach another process, show what its environment holds, or need a terminal."""


class ServedApp(GputopApp):
    """The screen without the actions that are withheld."""

    def get_driver_class(self) -> type[Driver]:
        return ServedDriver

    async def action_act(self, key_id: str) -> None:
        if key_id in WITHHELD:
            self.say("the screen in a browser is read-only: use `gputop` in a terminal for this")
        else:
            await super().action_act(key_id)

    def copy_to_clipboard(self, text: str) -> None:
        """A browser's clipboard is left alone."""
