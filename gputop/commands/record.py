"""Record without a screen until a signal, the end of the time, or an error."""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import signal
import threading

from gputop.command_line.registry import Needs
from gputop.command_line.shared_options import (
    redacted_source,
    redactor_of,
    run_watcher,
    seconds,
    serving,
    size_bytes,
)
from gputop.config import Settings
from gputop.model.quantity import count, file_size
from gputop.output.messages import USAGE_ERROR, say
from gputop.recording.writer import STDOUT
from gputop.session.record_run import record
from gputop.sources.local import open_local, with_servers_of
from gputop.sources.marked import Marked

NEEDS = Needs("nothing")


def arguments(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    text = "file or directory to write, - for plain lines to stdout (default: this directory)"
    add("-o", "--output", metavar="FILE|DIR", default=".", help=text)
    serving(command)
    add("--for", metavar="TIME", dest="duration", help="stop after this time")
    add("--max-size", metavar="SIZE", help="keep at most this much in the directory")


def run(args: argparse.Namespace, settings: Settings) -> int:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    alerts = run_watcher(args, settings, tell=say)
    source = with_servers_of(open_local(settings, own_process=False), settings)
    done = record(
        redacted_source(Marked(source, at_once=True), redactor_of(settings)),
        args.output,
        stop=stop,
        seconds=None if args.duration is None else seconds(args.duration, "--for"),
        most_bytes=None if args.max_size is None else size_bytes(args.max_size, "--max-size"),
        started=lambda path: say(f"recording to {path}"),
        alerts=alerts,
    )
    if done.dropped:
        say(f"lost to a slow disk: {count(done.dropped, 'frame')}")
    if args.output == STDOUT and done.error is not None and os.strerror(errno.EPIPE) in done.error:
        # Whoever read it has seen enough.
        return 128 + signal.SIGPIPE
    if done.error is not None:
        say(done.error)
        return USAGE_ERROR
    say(f"{count(done.frames, 'frame')}, {file_size(done.bytes_written)} in {done.path}")
    if done.path is not None and done.frames and args.output != STDOUT:
        say(f"next: gputop report {shlex.quote(done.path)}")
    return 0
