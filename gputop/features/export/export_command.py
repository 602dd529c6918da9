"""``gputop export``: this node for Prometheus. Never imports Textual."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gputop.command_line.demo_node import DEMO, PAST_S
from gputop.command_line.registry import Needs
from gputop.command_line.shared_options import (
    redacted_snapshot,
    redacted_source,
    redactor_of,
    run_watcher,
    serving,
    waiting,
)
from gputop.config import Settings
from gputop.features.export.export_feed import ExportFeed
from gputop.features.export.metrics_page import Families, PageChoice
from gputop.model.dcgm_names import GENERATIONS
from gputop.model.snapshot import Snapshot
from gputop.model.source import Source, UsageError
from gputop.monitor import Monitor
from gputop.output.messages import USAGE_ERROR, say
from gputop.session.session import Session

if TYPE_CHECKING:
    from gputop.features.export.pod_resources import PodResources
    from gputop.features.export.scrape_server import ScrapeServer


OTHER_NETWORK = "the exporter has a network of its own: the machine's interfaces are not seen"
NETWORK = ("net_rx_bytes_per_s", "net_tx_bytes_per_s")


class MachineHost:
    """Puts the machine's own numbers into snapshots. ``proc`` is the directory /proc."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = Path(proc)
        self._cores = float(len(self._matches(r"^cpu\d", "stat"))) or None
        own, first = (
            set(self._matches(r"^ *([^ :]+):", f"{name}/net/dev")) for name in ("self", "1")
        )
        self._has_own_network = bool(own and first) and own != first

    def __call__(self, snapshot: Snapshot) -> Snapshot:
        """Put the machine's memory and cores into a snapshot.

        Rates of interfaces that are not the machine's are left out.
        """
        host = replace(snapshot.host, cpu_count=self._cores or snapshot.host.cpu_count)
        memory = dict(self._matches(r"^(MemTotal|MemAvailable): +(\d+) kB$", "meminfo"))
        if len(memory) == 2 and (free := int(memory["MemAvailable"])) <= (
            total := int(memory["MemTotal"])
        ):
            host = replace(
                host, mem_total_bytes=1024.0 * total, mem_used_bytes=1024.0 * (total - free)
            )
        if self._has_own_network:
            missing = {**host.unavailable, **dict.fromkeys(NETWORK, OTHER_NETWORK)}
            host = replace(
                host, net_rx_bytes_per_s=None, net_tx_bytes_per_s=None, unavailable=missing
            )
        return replace(snapshot, host=host)

    def _matches(self, pattern: str, name: str) -> list[Any]:
        """Return the matches of a pattern in a file of /proc, if any."""
        try:
            return re.findall(pattern, (self._proc / name).read_text(), re.MULTILINE)
        except (OSError, ValueError):
            return []


NEEDS = Needs("nothing")


def arguments(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("source", nargs="?", help="demo: a simulated node; without it this machine")
    add("scenario", nargs="?", help="with demo: one scenario instead of the whole node")
    add("--listen", metavar="HOST:PORT", help="where to answer scrapes (default 127.0.0.1:9401)")
    text = (
        "the same values under dcgm-exporter's names as well, of before or since its version 4.9: not "
        "beside a dcgm-exporter, whose values sums would then count twice"
    )
    add("--dcgm-names", choices=GENERATIONS, help=text)
    add(
        "--processes",
        action="store_true",
        help="also export the GPUs' processes: pid, user and name of the executable",
    )
    text = (
        "name the pods that GPUs were given to, from the kubelet's socket (needs the extra export)"
    )
    add("--pod-resources", metavar="PATH", help=text)
    add(
        "-1",
        "--once",
        action="store_true",
        help="print one page, or write it with --textfile, and end",
    )
    add(
        "--textfile",
        metavar="FILE.prom",
        help="write each page there, for node_exporter; no server without --listen",
    )
    add(
        "--stdout",
        action="store_true",
        help="print a page every few seconds, each ended by # EOF; no server",
    )
    text = "with --stdout: end at the end of stdin, and when no byte came on it for so long"
    add("--until-silent", type=float, metavar="SECONDS", help=text)
    add("--tls-cert", metavar="FILE", help="serve over TLS with this certificate")
    add("--tls-key", metavar="FILE", help="the certificate's key, where it is in another file")
    add(
        "--client-ca",
        metavar="FILE",
        help="answer only clients with a certificate that this CA signed",
    )
    add(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="with demo: another run of the same scenario",
    )
    add("--hostname", metavar="NAME", help="with demo: the simulated node's name")
    waiting(command)
    serving(command)


def run(args: argparse.Namespace, settings: Settings) -> int:
    if args.source not in (None, DEMO):
        raise UsageError(
            f"no source {args.source!r}: it is `gputop export` or `gputop export demo [SCENARIO]`"
        )
    if args.hostname is not None and args.source is None:
        raise UsageError("--hostname names a simulated node: gputop export demo --hostname NAME")
    if args.until_silent is not None and not (args.stdout and 1.0 <= args.until_silent <= 3600.0):
        raise UsageError("--until-silent takes 1 to 3600 seconds, and belongs to --stdout")
    if args.stdout and (args.once or args.textfile is not None or args.listen is not None):
        raise UsageError(
            "--stdout prints pages: it goes with none of --once, --textfile and --listen"
        )
    pods = _pods(args, settings)
    if args.once:
        return _once(args, settings, pods)
    return _serve(args, settings, pods)


def _choice(args: argparse.Namespace, pods: PodResources | None = None) -> PageChoice:
    """The optional families that the options name."""
    from gputop.features.export.dcgm_families import dcgm_families
    from gputop.features.export.pod_resources import pod_family

    more: list[Families] = []
    if args.dcgm_names is not None:
        more.append(partial(dcgm_families, args.dcgm_names))
    if pods is not None:
        more.append(partial(pod_family, pods.newest))
    return PageChoice(args.processes, tuple(more))


def _pods(args: argparse.Namespace, settings: Settings) -> PodResources | None:
    """The kubelet's client, if pods are wanted; nothing is asked yet."""
    if args.pod_resources is None:
        return None
    if args.source is not None:
        raise UsageError(
            "--pod-resources asks this node's kubelet: it has no pods for a simulated node"
        )
    if settings.redact:
        raise UsageError("--pod-resources names pods, and redact hides names: use one of them")
    from gputop.features.export.pod_resources import PodResources

    return PodResources(args.pod_resources, say)


def _once(args: argparse.Namespace, settings: Settings, pods: PodResources | None) -> int:
    from gputop.command_line.shared_options import wait_of
    from gputop.output.messages import NOTHING_READ

    if args.source == DEMO:
        _, session = _simulated(args, settings)
        return _give(ExportFeed(session, _choice(args)), args.textfile)
    wait_s = wait_of(args)
    if pods is not None:
        pods.ask()
    from gputop.sources.local import open_local, servers_asked

    source = open_local(settings)
    try:
        with servers_asked(settings) as with_servers:
            reading = source.read_once(wait_s, say)
            snapshot = with_servers(reading.snapshot)
    finally:
        source.close()

    feed = ExportFeed(
        Session(Monitor(settings.interval, charts=False)), _choice(args, pods), redact=MachineHost()
    )
    feed.take(redacted_snapshot(snapshot, redactor_of(settings)))
    return _give(feed, args.textfile) or (0 if reading.has_measured else NOTHING_READ)


def _give(feed: ExportFeed, path: str | None) -> int:
    """Write one page to the given file or to stdout. Returns the exit status."""
    if path is not None:
        from gputop.features.export.page_outputs import TextFile

        return 0 if TextFile(path, feed.page, say).write() else USAGE_ERROR
    sys.stdout.write(feed.page())
    sys.stdout.flush()
    return 0


def _serve(args: argparse.Namespace, settings: Settings, pods: PodResources | None) -> int:
    from gputop.features.export.page_outputs import PageStream, TextFile
    from gputop.system.worker import once

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    opened, session = _source(args, settings)
    feed = ExportFeed(session, _choice(args, pods), redact=None if args.source else MachineHost())
    with ExitStack() as at_end:
        if args.source is None and (alerts := run_watcher(args, settings, tell=say)) is not None:
            session.alerts = alerts
            at_end.callback(alerts.close)
        if pods is not None:
            at_end.callback(pods.close)
            pods.start()
        file = None
        if args.textfile is not None:
            file = TextFile(args.textfile, feed.page, say)
            at_end.callback(file.remove)
        if args.stdout:
            pages = PageStream(feed.page, lambda: feed.has_frame, stop, args.until_silent)
            at_end.callback(once("stdout", pages.run).stop, 1.0)
        elif args.listen is not None or file is None:
            at_end.callback(_server(args, feed.page).stop)
        feed.run(opened, stop, say, None if file is None else file.write)
    return 0


def _server(args: argparse.Namespace, page: Callable[[], str]) -> ScrapeServer:
    """The server on its socket, started; prints its address."""
    from gputop.features.export.listen_address import DEFAULT, listen, parse
    from gputop.features.export.scrape_server import ScrapeServer, context

    where = parse(args.listen or DEFAULT)
    files = (args.tls_cert, args.tls_key, args.client_ca)
    tls = context(*files) if any(files) else None
    listener = listen(where)
    where = replace(where, port=listener.getsockname()[1])
    if not where.is_loopback and not (tls and args.client_ca):
        say(
            f"anyone who can reach {where} can read these metrics; --tls-cert and --client-ca restrict that"
        )
    say(f"metrics at {'https' if tls else 'http'}://{where}/metrics")
    server = ScrapeServer(listener, page, tls, local_only=where.is_loopback)
    server.start()
    return server


def _source(args: argparse.Namespace, settings: Settings) -> tuple[Callable[[], Source], Session]:
    redactor = redactor_of(settings)
    if args.source == DEMO:
        source, session = _simulated(args, settings)
        return lambda: redacted_source(source, redactor), session
    from gputop.features.export.export_feed import with_steps
    from gputop.sources.local import open_local, with_servers_of

    session = Session(Monitor(settings.interval, charts=False))
    return lambda: redacted_source(
        with_servers_of(with_steps(open_local(settings)), settings), redactor
    ), session


def _simulated(args: argparse.Namespace, settings: Settings) -> tuple[Source, Session]:
    """Return a simulated node, and a session that has seen its past."""
    from gputop.sources.simulation.simulated import SimulatedSource

    source = SimulatedSource(
        args.scenario,
        interval_s=settings.interval,
        seed=args.seed,
        only=settings.gpus or None,
        hostname=args.hostname,
    )
    session, redactor = Session(Monitor(settings.interval, charts=False)), redactor_of(settings)
    for snapshot in source.past(PAST_S):
        session.take(redacted_snapshot(snapshot, redactor))
    return source, session
