"""Read a fleet as its command's options say, and show it: on the screen, as data, as a picture's rows."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from typing import NoReturn

from msgspec.structs import replace

from gputop.command_line.screen import end, screen_terminal
from gputop.command_line.shared_options import redactor_of
from gputop.config import Settings
from gputop.features.fleet.fleet_reading import FleetError, FleetSource, with_hour
from gputop.features.fleet.judge.fleet_frame import FleetFrame, fleet_frame
from gputop.features.fleet.read.address import address_of, checked_select, cluster_of
from gputop.features.fleet.read.redacted_fleet import RedactedFleet
from gputop.features.fleet.read.simulated_fleet import STARTED, SimulatedFleet
from gputop.features.fleet.show.fleet_data import fleet_csv, fleet_json
from gputop.features.fleet.show.fleet_screen import fleet_screen
from gputop.features.fleet.show.fleet_view import FleetView, rows_of, selected_host
from gputop.features.fleet.show.watch_thread import FleetWatch
from gputop.model.fleet_settings import hosts_of, texts_of
from gputop.model.source import SourceError, UsageError
from gputop.paint.glyphs import ASCII, COLOUR
from gputop.paint.key_presets import wanted_keys
from gputop.paint.line import Row
from gputop.paint.terminal_kind import Terminal
from gputop.recording.moments import moment

MOST_GPUS = 10_000
"""From here on a fleet is read from what its rules record of hosts: up to here a refresh GPU by GPU takes less than a
second."""


def run_fleet(args: argparse.Namespace, settings: Settings) -> int:
    """Show the fleet that options name, or write its data."""
    at = moment_of(args.at, time.time())
    # A row of CSV is a GPU; JSON has hosts, whose GPUs stay empty where they are too many to be asked for.
    fleet = asked_fleet(args, settings, most_gpus=None if args.csv else MOST_GPUS)
    if args.json or args.csv:
        return write_data(frame_once(fleet, at), as_csv=args.csv)
    instead = shlex.join(("gputop", "fleet", *args.hosts, "--json"))
    return show(fleet, settings, screen_terminal(settings, instead), at=at)


def asked_fleet(
    args: argparse.Namespace, settings: Settings, *, most_gpus: int | None = MOST_GPUS
) -> FleetSource:
    """The fleet that options, environment and configuration name.

    Above ``most_gpus`` only GPUs in sight are asked for; None: every GPU is. Raises UsageError.
    """
    words = (*getattr(args, "hosts", ()), *(getattr(args, "host", None) or ()))
    if words and (args.prom or args.cluster):
        raise UsageError("hosts are asked themselves: give them, or --prom, or --cluster")
    named = None if words else cluster_of(settings.fleet, args.cluster, args.prom, os.environ)
    name, table = named or ("", {})
    texts = texts_of(table)
    if hosts := words or hosts_of(table):
        from gputop.features.fleet.read.direct_fleet import DirectFleet
        from gputop.features.fleet.read.host_link import SshOptions

        options = SshOptions(
            os.path.expanduser(texts.get("ssh_config", "")), texts.get("gputop", "")
        )
        return redacted(DirectFleet(hosts, options, source=name), settings)
    from gputop.features.fleet.read.engine import Client
    from gputop.features.fleet.read.prometheus_fleet import PrometheusFleet
    from gputop.features.fleet.read.sized_fleet import SizedFleet

    cluster = texts if named is not None else None
    address = address_of(
        args.prom, os.environ, header_file=args.header_file, ca=args.prom_ca, cluster=cluster
    )
    select = ",".join(
        filter(None, (checked_select(args.select), checked_select(texts.get("select"))))
    )
    client, source = Client(address), name or address.url
    fleet: FleetSource = (
        PrometheusFleet(client, source, select, time.time)
        if most_gpus is None
        else SizedFleet(client, source, select, time.time, most_gpus=most_gpus)
    )
    return redacted(fleet, settings)


def redacted(fleet: FleetSource, settings: Settings) -> FleetSource:
    """The fleet, redacted where the user asked for it."""
    redactor = redactor_of(settings)
    return fleet if redactor is None else RedactedFleet(fleet, redactor)


def moment_of(text: str | None, now: float) -> float | None:
    """The Unix time that ``--at`` means. Raises UsageError."""
    try:
        return None if text is None else min(now, moment(text, now - 86400.0, now, now, keep=False))
    except ValueError as error:
        raise UsageError(f"--at: {error}") from None


def frame_once(fleet: FleetSource, at: float | None) -> FleetFrame:
    """One frame with its last hour. Raises SourceError."""
    try:
        fleet.settle()
        read = fleet.ask(at)
        return fleet_frame(with_hour(read, fleet.hour(read.t)))
    except FleetError as error:
        raise SourceError(str(error)) from None


def write_data(frame: FleetFrame, *, as_csv: bool) -> int:
    """Write a frame to stdout; return 1 if no host could be read."""
    sys.stdout.write(fleet_csv(frame) if as_csv else fleet_json(frame))
    return int(not frame.total and all(host.down is not None for host in frame.hosts))


def group_rows(args: argparse.Namespace, settings: Settings, width: int, height: int) -> list[Row]:
    """The fleet's screen as rows. Raises UsageError, SourceError."""
    if args.scenario not in (None, "demo"):
        raise UsageError(
            f"it is `gputop screenshot fleet` or `gputop screenshot fleet demo`, not {args.scenario!r}"
        )
    is_demo = args.scenario == "demo"
    at = moment_of(args.at, STARTED if is_demo else time.time())
    fleet = redacted(SimulatedFleet(), settings) if is_demo else asked_fleet(args, settings)
    try:
        frame = frame_once(fleet, at)
        view = FleetView(glyphs=ASCII if settings.ascii else COLOUR, price=settings.price or None)
        gpus = fleet.look(tuple(rows_of(frame, view)[:height]), at)
        if gpus is not None:
            frame = fleet_frame(replace(frame.read, gpus=gpus), frame)
        host = selected_host(frame, view)
        if host is not None:
            view = replace(view, history=fleet.history(host, frame.t))
    except FleetError as error:
        raise SourceError(str(error)) from None
    finally:
        fleet.close()
    return fleet_screen(frame, view, width, height).rows


def show(
    fleet: FleetSource, settings: Settings, terminal: Terminal, *, at: float | None = None
) -> NoReturn:
    """Run the screen until the user leaves it, and end the process."""
    from gputop.tui.terminal.guard import TerminalGuard

    guard = TerminalGuard()
    watch = FleetWatch(fleet)
    watch.go_to(at)
    try:
        guard.watch()
        guard.mute()
        if terminal.is_guess:
            guard.ask_background()
        from gputop.features.fleet.show.fleet_app import FleetApp

        view = FleetView(
            glyphs=terminal.glyphs,
            past_t=at,
            paused=at is not None,
            price=settings.price or None,
            utc_offset_s=float(time.localtime().tm_gmtoff),
        )
        keys = wanted_keys(settings.key_preset, settings.keys)
        app = FleetApp(view, terminal.theme, watch, guard=guard, keys=keys)
        app.follows_background = terminal.is_guess
        app.run(mouse=settings.mouse)
    finally:
        guard.hurry(1)
        watch.close()
        guard.finish()
    end(app, guard)
