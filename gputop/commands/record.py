"""Record without a screen until a signal, the end of the time, or an error."""

from __future__ import annotations

import argparse
import signal
import threading

from gputop.commands.amounts import seconds, size_bytes
from gputop.config import Settings
from gputop.output.messages import say
from gputop.session.record import record
from gputop.sources.machine import open_local
from gputop.sources.marked import Marked


def run(args: argparse.Namespace, settings: Settings) -> int:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    source = open_local(settings)
    done = record(
        Marked(source, at_once=True),
        args.output,
        stop=stop,
        seconds=None if args.duration is None else seconds(args.duration, "--for"),
        redact=args.redact,
        most_bytes=None if args.max_size is None else size_bytes(args.max_size, "--max-size"),
        started=lambda path: say(f"recording to {path}"),
    )
    if done.dropped:
        say(f"{done.dropped} frames were lost to a slow disk")
    if done.error is not None:
        say(done.error)
        return 1
    say(f"{done.frames} frames, {done.bytes_written / 1e6:.1f} MB in {done.path}")
    return 0
