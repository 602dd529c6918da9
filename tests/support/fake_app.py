"""A screen for tests: snapshots are handed in, processes are reached through a recorder of what was asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace
from textual.events import MouseScrollDown
from textual.pilot import Pilot

from gputop.command_line.screen import replay_past
from gputop.model.inspection import (
    DeepLook,
    Environment,
    InspectedProcess,
    ProcessIdentity,
    SignalOutcome,
    ThreadList,
    ThreadStack,
)
from gputop.model.snapshot import Snapshot
from gputop.monitor import Frame, Monitor
from gputop.paint.view import View
from gputop.session.playback import Playback
from gputop.session.session import Session
from gputop.tui.node_app import GputopApp
from gputop.tui.terminal.rows_widget import LiveRows, RowsPage
from tests.support.frames import demo_frame


class Handed:
    """A source that measures nothing: the test itself delivers snapshots to the screen."""

    interval_s = 1.0

    async def run(self, deliver: object) -> None:
        """Nothing comes."""


class NoThreads:
    """Threads of which nothing is ever read."""

    latest: ThreadList | None = None

    def ask(self) -> None:
        """Nothing comes of it."""

    def close(self) -> None:
        """Nothing was open."""


class Asked:
    """Answers for processes that do not exist and keeps what was asked. ``refuse`` is why nothing is sent."""

    def __init__(self, refuse: str = "") -> None:
        self.sent: list[tuple[int, int]] = []
        self.looked: list[tuple[ProcessIdentity, ProcessIdentity | None]] = []
        self.refuse = refuse

    def send(self, identity: ProcessIdentity, number: int) -> SignalOutcome:
        self.sent.append((identity.pid, number))
        return SignalOutcome(identity, not self.refuse, self.refuse)

    def environment(self, identity: ProcessIdentity) -> Environment:
        return Environment(identity, (("HF_TOKEN", "hf_abc"), ("OMP_NUM_THREADS", "8")))

    def look(self, identity: ProcessIdentity, loader: ProcessIdentity | None) -> DeepLook:
        self.looked.append((identity, loader))
        stack = ThreadStack((("forward", "model.py", 88),), active=True)
        return DeepLook(
            InspectedProcess(identity, stacks=(stack,) * 3), argv=("python", "train.py")
        )

    def command(self, identity: ProcessIdentity) -> str:
        return ""

    def watch_threads(self, identity: ProcessIdentity) -> NoThreads:
        return NoThreads()


def playback_on(frame: Frame, source: Any = None) -> Playback:
    """A live playback that shows a frame until its source gives another one."""
    monitor = Monitor()
    monitor.latest = frame
    return Playback(source=source, session=Session(monitor), replay_past=replay_past)


def app_on(
    frame: Frame | None = None,
    view: View | None = None,
    access: Asked | None = None,
    theme: str = "dark",
    **more: Any,
) -> tuple[GputopApp, Handed]:
    """A screen on one frame, the demo's unless another is given, and the source that feeds it."""
    source = Handed()
    app = GputopApp(
        view or View(), theme, playback_on(frame or demo_frame(), source), access=access, **more
    )
    return app, source


async def hand_in(
    app: GputopApp, source: Handed, pilot: Pilot[int], snapshots: Iterable[Snapshot]
) -> None:
    """Let the screen take these snapshots, one after the other."""
    for snapshot in snapshots:
        app.deliver(snapshot)
        await pilot.pause()


def wheel(app: GputopApp, x: int = 5, y: int = 5) -> None:
    """One notch of the mouse wheel downwards, as the terminal sends it."""
    place = {"x": x, "y": y, "screen_x": x, "screen_y": y, "delta_x": 0, "delta_y": 1, "button": 0}
    app.post_message(MouseScrollDown(None, **place, shift=False, meta=False, ctrl=False))


def screen_rows(app: GputopApp) -> list[str]:
    """The text of the rows that the uppermost screen shows."""
    rows = []
    for page in app.screen.query(RowsPage):
        shown = page.rows[page.first :][: page.size.height]
        rows += shown + [((" " * page.size.width, "text"),)] * (page.size.height - len(shown))
    rows += [row for widget in app.screen.query(LiveRows) for row in widget.rows]
    return ["".join(text for text, _ in row) for row in rows]


def screen_text(app: GputopApp) -> str:
    """The same as one text."""
    return "\n".join(screen_rows(app))


def later(frame: Frame, seconds: float = 1.0) -> Snapshot:
    """The frame's snapshot again, some seconds later."""
    return replace(frame.snapshot, t=frame.snapshot.t + seconds)
