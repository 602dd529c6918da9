"""A headless Chromium, driven over its DevTools protocol: open a page, ask it things, take its picture."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
PATIENCE_S = 120.0
"""It draws by the processor: beside other tests that takes half a minute."""


class Browser:
    """One page. ``requests`` are the addresses that it asked for, ``console`` what it said in its console."""

    def __init__(self, profile: Path, width: int = 1400, height: int = 900) -> None:
        assert CHROMIUM is not None
        self.requests: list[str] = []
        self.console: list[str] = []
        self._profile = profile
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._last = 0
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-background-networking",
            "--remote-debugging-port=0",
        ]
        options += ["--disable-component-update", "--disable-quic", "--disable-sync"]
        options += [
            "--use-gl=angle",
            "--use-angle=swiftshader",
            "--enable-unsafe-swiftshader",
            "--no-first-run",
        ]
        options += [f"--user-data-dir={profile}", f"--window-size={width},{height}", "about:blank"]
        self._process = subprocess.Popen(
            [CHROMIUM, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    async def __aenter__(self) -> Browser:
        from aiohttp import ClientSession

        self._session = ClientSession()
        page = await asyncio.wait_for(self._page(), PATIENCE_S)
        self._socket = await self._session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0)
        self._listener = asyncio.create_task(self._listen())
        for domain in ("Page", "Network", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        return self

    async def _page(self) -> dict[str, Any]:
        """The open page, once the browser has begun."""
        port_file = self._profile / "DevToolsActivePort"
        while not port_file.exists() or "\n" not in port_file.read_text():
            await asyncio.sleep(0.05)
        port = port_file.read_text().split()[0]
        while True:
            async with self._session.get(f"http://127.0.0.1:{port}/json") as reply:
                for page in await reply.json():
                    if page["type"] == "page":
                        return dict(page)
            await asyncio.sleep(0.05)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._listener.cancel()
        await self._session.close()
        self._process.terminate()
        self._process.wait(10)

    async def call(self, method: str, **parameters: Any) -> Any:
        """One command of the protocol; its result."""
        self._last += 1
        answer = self._answers[self._last] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._last, "method": method, "params": parameters})
        return await asyncio.wait_for(answer, PATIENCE_S)

    async def evaluate(self, script: str) -> Any:
        """The value of a script; None where the page that it began in is gone by then."""
        result = await self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        return result.get("result", {}).get("value")

    async def wait_for(self, script: str, timeout_s: float = PATIENCE_S) -> None:
        """Until a script is true in the page."""

        async def poll() -> None:
            while not await self.evaluate(script):
                await asyncio.sleep(0.05)

        await asyncio.wait_for(poll(), timeout_s)

    async def picture(self, path: Path) -> None:
        data = (await self.call("Page.captureScreenshot"))["data"]
        path.write_bytes(base64.b64decode(data))

    async def _listen(self) -> None:
        async for message in self._socket:
            data = message.json()
            if "id" in data:
                self._answers.pop(data["id"]).set_result(data.get("result", {}))
            elif data["method"] == "Network.requestWillBeSent":
                self.requests.append(data["params"]["request"]["url"])
            elif data["method"] == "Network.webSocketCreated":
                self.requests.append(data["params"]["url"])
            elif data["method"] in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.console.append(str(data["params"]))
