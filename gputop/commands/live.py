"""The interactive screen on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.commands.needs import Needs
from gputop.commands.screen import screen_terminal, show
from gputop.commands.shared_options import filter_of, redacted_source, redactor_of, screen_watcher
from gputop.config import Settings

if TYPE_CHECKING:
    import argparse

    from gputop.model.inspection import ProcessAccess
    from gputop.model.redaction import Redactor

NEEDS = Needs("terminal")


def run(args: argparse.Namespace, settings: Settings) -> int:
    redactor = redactor_of(settings)
    passing = filter_of(args, redactor)
    terminal = screen_terminal(settings)
    alerts = screen_watcher(args, settings)
    from gputop.sources.local import open_local

    source = open_local(settings, lets_sleep=True)
    # The driver is asked while the rest is imported.
    source.open()
    from gputop.sources.local import with_servers_of
    from gputop.sources.marked import Marked

    watched = redacted_source(Marked(with_servers_of(source, settings)), redactor)
    return show(
        args,
        watched,
        settings,
        terminal,
        access=lambda: _access(redactor),
        passing=passing,
        counters=source.toggle_counters,
        alerts=alerts,
    )


def _access(redactor: Redactor | None) -> ProcessAccess:
    from gputop.sources.processes.control import ProcessControl

    if redactor is None:
        return ProcessControl()
    from gputop.sources.redacted import RedactedAccess

    return RedactedAccess(ProcessControl(), redactor)
