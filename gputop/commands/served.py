"""One viewer's process of ``gputop serve``: the screen on pipes, started with the settings as JSON.

``python -m gputop.commands.served SETTINGS [demo [SCENARIO] | RECORDING]``; not for people.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from msgspec.structs import replace

from gputop.commands.demo import PAST_S
from gputop.commands.live import first_view
from gputop.config import ConfigError, Settings, apply
from gputop.model.source import Source, SourceError, UsageError
from gputop.monitor import Monitor
from gputop.output.messages import say
from gputop.paint.glyphs import ASCII, COLOUR, MONO
from gputop.paint.terminal import Terminal
from gputop.recording.format import RecordingError
from gputop.sources.recorded import RecordedSource


def main(arguments: Sequence[str]) -> int:
    """Show the screen until the browser leaves; the exit status."""
    try:
        settings = replace(apply(Settings(), json.loads(arguments[0]), "", []), read_only=True)
        return _show(settings, *arguments[1:])
    except (ConfigError, UsageError, SourceError, RecordingError) as error:
        say(error)
        return 2


def _show(settings: Settings, source_name: str | None = None, scenario: str | None = None) -> int:
    from gputop.session.player import Player
    from gputop.tui.served_app import ServedApp

    terminal = browser(settings)
    view = first_view(settings, terminal, demo=source_name == "demo")
    if source_name not in (None, "demo"):
        from gputop.recording.index import Recording

        played = RecordedSource(Recording(source_name))
        app = ServedApp(view, terminal.theme, player=Player(played), keys=settings.keys)
        played.start(app.ready)
        app.run(mouse=settings.mouse)
        return app.return_code or 0
    source, monitor = _source(settings, source_name, scenario)
    app = ServedApp(
        view,
        terminal.theme,
        source=source,
        monitor=monitor,
        first=monitor.latest,
        replay_past=RecordedSource,
        keys=settings.keys,
    )
    source.start(app.ready)
    try:
        app.run(mouse=settings.mouse)
    finally:
        source.close()
    return app.return_code or 0


def _source(settings: Settings, name: str | None, scenario: str | None) -> tuple[Source, Monitor]:
    monitor = Monitor(settings.interval)
    if name == "demo":
        from gputop.sources.simulation.simulated import SimulatedSource

        simulated = SimulatedSource(scenario, interval_s=settings.interval)
        for snapshot in simulated.past(PAST_S):
            monitor.feed(snapshot)
        return simulated, monitor
    from gputop.sources.machine import open_local

    local = open_local(settings)
    local.open()
    return local, monitor


def browser(settings: Settings) -> Terminal:
    """A browser has all colours and all characters; what was asked for still counts."""
    theme = "mono" if settings.no_color else "dark" if settings.theme == "auto" else settings.theme
    return Terminal("truecolor", theme, ASCII if settings.ascii else MONO if theme == "mono" else COLOUR)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
