"""One viewer's process: the screen on pipes. It dies with this server, and is killed when it does not leave.

The packets are those of Textual's web driver: a kind (D data, M about it), four bytes of length, the content.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gputop.model.quantity import clean_text
from gputop.output.messages import LONGEST
from gputop.system.children import ProgramEnvironment, started

LEAVE_S = 3.0
"""How long a process may take to leave."""
MOST_UNREAD = 1 << 16
"""Bytes that wait for a process: one that hangs reads nothing, and keys for it must not fill the memory."""
STDERR_KEPT = 4096

Send = Callable[[bytes], Awaitable[None]]


MOST_COLUMNS, MOST_ROWS = 500, 200
"""Larger than any monitor shows; a screen of a million columns would take all memory."""


class Size(Struct, frozen=True):
    """Cells of a terminal, as a browser gives them."""

    width: int
    height: int

    def clamped(self) -> Size:
        """The nearest size that a screen can have."""
        return Size(max(1, min(self.width, MOST_COLUMNS)), max(1, min(self.height, MOST_ROWS)))


class Viewer:
    """A running process and its pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._errors = asyncio.create_task(self._read_errors())
        self._stderr = b""

    @classmethod
    async def start(
        cls, command: Sequence[str], settings: Mapping[str, Any], environment: ProgramEnvironment
    ) -> Viewer:
        """Start the process; the settings go over its stdin, where no other user can read them."""
        viewer = cls(await started(command, environment))
        viewer._put(b"S", json.dumps(settings, default=dict).encode())
        return viewer

    @property
    def pid(self) -> int:
        return self._process.pid

    async def show(self, send: Send) -> None:
        """Pass what the process draws to ``send``, until it ends or announces that it will."""
        stdout = self._process.stdout
        assert stdout is not None
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ValueError):
            # Textual's driver first writes a line of its own.
            await stdout.readline()
            while True:
                head = await stdout.readexactly(5)
                content = await stdout.readexactly(int.from_bytes(head[1:], "big"))
                if head[:1] == b"D":
                    await send(content)
                elif head[:1] == b"M" and json.loads(content).get("type") == "exit":
                    return

    def type(self, text: str) -> None:
        """Keys and mouse. What a process that hangs cannot take is dropped."""
        if self._can_take():
            self._put(b"D", text.encode("utf-8", "replace"))

    def resize(self, size: Size) -> None:
        """Send the browser's size."""
        if self._can_take():
            self._tell("resize", width=size.width, height=size.height)

    def focus(self, has_focus: bool) -> None:
        """Tell the process whether the page has the keyboard."""
        if self._can_take():
            self._tell("focus" if has_focus else "blur")

    async def leave(self) -> None:
        """Tell the process to end, and kill it if it does not. No browser is watching any more."""
        self._tell("quit")
        assert self._process.stdout is not None
        with contextlib.suppress(asyncio.TimeoutError):
            # Read to its end: a process that cannot write cannot leave.
            await asyncio.wait_for(self._process.stdout.read(), LEAVE_S)
        await self.end()
        self._errors.cancel()

    async def end(self) -> None:
        """Kill the process and wait until it is gone."""
        # Not by the process's own kill(): where it has just ended, that takes its status from asyncio, which warns.
        with contextlib.suppress(ProcessLookupError):
            if self._process.returncode is None:
                os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._process.wait(), LEAVE_S)

    async def failure(self) -> str | None:
        """The last line of what a process that failed said, or None. Call it when the process has closed its output."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._process.wait(), LEAVE_S)
        if not self._process.returncode:
            return None
        with contextlib.suppress(asyncio.CancelledError):
            await self._errors
        lines = self._stderr.decode("utf-8", "replace").split("\n")
        messages = [line.removeprefix("gputop: ") for line in lines if line.strip()]
        return (
            clean_text(messages[-1][:LONGEST])
            if messages
            else f"the screen ended with status {self._process.returncode}"
        )

    def _can_take(self) -> bool:
        assert self._process.stdin is not None
        return self._process.stdin.transport.get_write_buffer_size() <= MOST_UNREAD

    def _tell(self, kind: str, **values: int) -> None:
        self._put(b"M", json.dumps({"type": kind, **values}).encode())

    def _put(self, kind: bytes, content: bytes) -> None:
        assert self._process.stdin is not None
        if not self._process.stdin.transport.is_closing():
            self._process.stdin.write(kind + len(content).to_bytes(4, "big") + content)

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        while piece := await self._process.stderr.read(STDERR_KEPT):
            self._stderr = (self._stderr + piece)[-STDERR_KEPT:]
