"""One viewer's process of ``gputop serve``: the screen on Textual's web driver.

``python -m gputop.features.web.served [demo [SCENARIO] | RECORDING]``; the server starts it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import msgspec
from textual.driver import Driver
from textual.drivers.web_driver import WebDriver

from gputop.command_line.demo_node import DEMO, PAST_S, Remedied, session_on
from gputop.command_line.screen import first_view
from gputop.command_line.shared_options import redacted_snapshot, redacted_source, redactor_of
from gputop.config import Settings
from gputop.features.web.serve_command import SETTINGS
from gputop.model.source import Source, SourceError, UsageError, unexpected
from gputop.monitor import Monitor
from gputop.output.messages import say
from gputop.paint.glyphs import ASCII, COLOUR, MONO
from gputop.paint.terminal_kind import Terminal
from gputop.recording.format import RecordingError
from gputop.recording.reader import Recording
from gputop.session.arrivals import Arrivals
from gputop.session.playback import Playback
from gputop.session.player import Player
from gputop.session.session import Session
from gputop.sources.recorded import RecordedSource
from gputop.tui.node_app import GputopApp

WITHHELD = frozenset(
    {
        "record",
        "screenshot",
        "suspend",
        "signal",
        "terminate",
        "kill",
        "interrupt_process",
        "environment",
        "stacks",
    }
)
"""Actions that write a file, reach another process, show its environment, or need a terminal."""


class ServedApp(GputopApp):
    """The screen without the withheld actions, which neither its help nor its palette names."""

    def _bind(self, user_keys: Mapping[str, str]) -> None:
        super()._bind(user_keys)
        self.keys = tuple(key for key in self.keys if key.id not in WITHHELD)

    def get_driver_class(self) -> type[Driver]:
        return WebDriver

    async def action_act(self, key_id: str) -> None:
        if key_id in WITHHELD:
            self.say("the screen in a browser is read-only: use `gputop` in a terminal for this")
        else:
            await super().action_act(key_id)

    def copy_to_clipboard(self, text: str) -> None:
        """Leave the browser's clipboard alone."""


def main() -> int:
    """Show the screen until the browser leaves; return the exit status."""
    try:
        settings = msgspec.json.decode(os.environ.pop(SETTINGS, "{}"), type=Settings)
        app = _app(settings, *sys.argv[1:])
    except (UsageError, SourceError, RecordingError) as error:
        say(error)
        return 2
    app.run(mouse=settings.mouse)
    if app.crash is not None:
        say(unexpected(app.crash))
    return app.return_code or 0


def _app(
    settings: Settings, source_name: str | None = None, scenario: str | None = None
) -> ServedApp:
    """Return the application on its source, which has started."""
    terminal, redactor = browser(settings), redactor_of(settings)
    is_tour = source_name == DEMO and scenario is None
    view = first_view(settings, terminal, demo=source_name == DEMO, tour=is_tour)
    if source_name not in (None, DEMO):
        played = RecordedSource(Recording(source_name, redactor))
        return ServedApp(view, terminal.theme, Playback(player=Player(played)), settings=settings)
    source: Source
    if source_name == DEMO:
        from gputop.sources.simulation.simulated import SimulatedSource

        source = simulated = SimulatedSource(scenario, interval_s=settings.interval)
        session = session_on(simulated, settings, redactor)
        for snapshot in simulated.past(PAST_S):
            session.take(redacted_snapshot(snapshot, redactor))
    else:
        from gputop.sources.local import open_local, with_servers_of

        local = open_local(settings, lets_sleep=True, is_quick=True)
        local.open()
        source, session = with_servers_of(local, settings), Session(Monitor(settings.interval))
    source = redacted_source(source, redactor)
    arrivals = Arrivals(source)
    arrivals.start()
    playback = Playback(
        source=source, session=session, replay_past=RecordedSource, arrivals=arrivals
    )
    app = ServedApp(view, terminal.theme, playback, settings=settings)
    if is_tour:
        app.remedied = Remedied(settings.interval, seed=0).frame
    return app


def browser(settings: Settings) -> Terminal:
    """Return a browser's terminal: all colours and characters, unless the settings forbid them."""
    theme = "mono" if settings.no_color else "dark" if settings.theme == "auto" else settings.theme
    return Terminal(
        "truecolor", theme, ASCII if settings.ascii else MONO if theme == "mono" else COLOUR
    )


if __name__ == "__main__":
    sys.exit(main())
