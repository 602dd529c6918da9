"""One viewer's process of ``gputop serve``: the screen on pipes.

``python -m gputop.features.web.served [demo [SCENARIO] | RECORDING]``; not for people. The settings come first
on stdin, as a packet like those of Textual's web driver: S, four bytes of length, JSON.
"""

from __future__ import annotations

import json
import os
import sys

from msgspec.structs import replace
from textual.driver import Driver
from textual.drivers.web_driver import WebDriver
from textual.messages import ExitApp

from gputop.commands.demo import PAST_S, Remedied, session_on
from gputop.commands.screen import first_view
from gputop.commands.shared_options import redacted_snapshot, redacted_source, redactor_of
from gputop.config import ConfigError, Settings, apply
from gputop.model.source import Source, SourceError, UsageError, unexpected
from gputop.monitor import Monitor
from gputop.output.messages import DEFECT, say
from gputop.paint.glyphs import ASCII, COLOUR, MONO, Terminal
from gputop.recording.format import RecordingError
from gputop.session.session import Session
from gputop.sources.recorded import RecordedSource
from gputop.tui.node_app import GputopApp


class ServedDriver(WebDriver):
    """Ends the screen with its input."""

    def run_input_thread(self) -> None:
        try:
            super().run_input_thread()
        finally:
            if not self.exit_event.is_set():
                # The server has gone, or sent what cannot be read.
                self._app.post_message(ExitApp())


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


def main() -> int:
    """Show the screen until the browser leaves; the exit status."""
    try:
        settings = replace(
            apply(Settings(), json.loads(_packet(sys.stdin.fileno())), "", []), read_only=True, show_secrets=False
        )
        return _show(settings, *sys.argv[1:])
    except (ConfigError, UsageError, SourceError, RecordingError) as error:
        say(error)
        return 2


def _packet(descriptor: int) -> bytes:
    """The content of the first packet; nothing after it is read, for that is the screen's input."""
    length = int.from_bytes(_exactly(descriptor, 5)[1:], "big")
    return _exactly(descriptor, length)


def _exactly(descriptor: int, length: int) -> bytes:
    """Read exactly ``length`` bytes. Raises UsageError when the input ends before."""
    content = b""
    while len(content) < length:
        piece = os.read(descriptor, length - len(content))
        if not piece:
            raise UsageError("this is a part of `gputop serve`: start that")
        content += piece
    return content


def _show(settings: Settings, source_name: str | None = None, scenario: str | None = None) -> int:
    from gputop.session.player import Playback, Player

    terminal = browser(settings)
    has_tour = source_name == "demo" and scenario is None
    view = first_view(settings, terminal, demo=source_name == "demo", tour=has_tour)
    if source_name not in (None, "demo"):
        from gputop.recording.reader import Recording

        played = RecordedSource(Recording(source_name, redactor_of(settings)))
        app = ServedApp(view, terminal.theme, Playback(player=Player(played)), settings=replace(settings, bell=False))
        played.start(app.ready)
        app.run(mouse=settings.mouse)
        return _status(app)
    source, session = _source(settings, source_name, scenario)
    app = ServedApp(
        view,
        terminal.theme,
        Playback(source=source, session=session, replay_past=RecordedSource),
        settings=replace(settings, bell=False),
    )
    if has_tour:
        app.remedied = Remedied(settings.interval, seed=0).frame
    source.start(app.ready)
    try:
        app.run(mouse=settings.mouse)
    finally:
        source.close()
    return _status(app)


def _status(app: ServedApp) -> int:
    if app.crash is not None:
        say(unexpected(app.crash))
        return DEFECT
    return app.return_code or 0


def _source(settings: Settings, name: str | None, scenario: str | None) -> tuple[Source, Session]:
    redactor = redactor_of(settings)
    if name == "demo":
        from gputop.sources.simulation.simulated import SimulatedSource

        simulated = SimulatedSource(scenario, interval_s=settings.interval)
        session = session_on(simulated, settings, redactor)
        for snapshot in simulated.past(PAST_S):
            session.take(redacted_snapshot(snapshot, redactor))
        return redacted_source(simulated, redactor), session
    from gputop.sources.local import open_local, with_servers_of

    local = open_local(settings, lets_sleep=True)
    local.open()
    return redacted_source(with_servers_of(local, settings), redactor), Session(Monitor(settings.interval))


def browser(settings: Settings) -> Terminal:
    """A browser has all colours and all characters; the user's settings still count."""
    theme = "mono" if settings.no_color else "dark" if settings.theme == "auto" else settings.theme
    return Terminal("truecolor", theme, ASCII if settings.ascii else MONO if theme == "mono" else COLOUR)


if __name__ == "__main__":
    sys.exit(main())
