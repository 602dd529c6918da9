"""``gputop prove --links``: copies over every link of the GPUs, in a child, and what follows from them."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from gputop import __version__
from gputop.config import Settings
from gputop.features.prove.links import HEAD, Link, data, judged, link_of, row, text, verdict
from gputop.features.prove.prove_run import READY_S, Experiment, Kernels, KernelsFailed, Watched
from gputop.model.snapshot import GpuSample, Snapshot
from gputop.model.source import SourceError
from gputop.output.messages import say
from gputop.output.private_file import write_private
from gputop.output.snapshot_data import json_text
from gputop.sources.local import open_local

INTERVAL_S = 0.5


def prove_links(args: argparse.Namespace, settings: Settings, path: Path | None) -> int:
    """Measure, print and write; the exit status. Raises SourceError and UsageError."""
    source = open_local(settings, INTERVAL_S, wakes=True)
    experiment = Experiment(source, Watched(lambda _: None, lambda _: None, lambda _: None))
    try:
        before = experiment.look_at_all(force=args.force)
        say("copies over each link for some tenths of a second, 64 MiB on each GPU; Ctrl+C stops at once")
        links, during = _measured(experiment, before, quiet=args.json)
    except KernelsFailed as failed:
        raise SourceError(f"nothing can be copied: {failed}") from failed
    finally:
        experiment.close()
    links = judged(links, {gpu.static.index: gpu for gpu in during.gpus})
    found = verdict(links)
    report = data(links, found, __version__, before.machine.driver)
    if args.json:
        sys.stdout.write(json_text(report))
    else:
        sys.stdout.write(text(links, found).partition("\n\n")[2])
    sys.stdout.flush()
    if path is not None:
        write_private(path, json_text(report) if path.suffix == ".json" else text(links, found))
    return found.exit_status


def _measured(experiment: Experiment, before: Snapshot, *, quiet: bool) -> tuple[tuple[Link, ...], Snapshot]:
    """Every link as its copies end, and the GPUs as they were meanwhile. Raises KernelsFailed and SourceError."""
    gpus = [gpu for gpu in before.gpus if gpu.lost_reason is None and gpu.static.mig_enabled is not True]
    if not gpus:
        raise SourceError("no whole GPU answers: an instance of a split GPU has no links of its own")
    links: list[Link] = []
    during = before
    kernels = Kernels(",".join(gpu.static.uuid for gpu in gpus), "links_child")
    try:
        deadline = time.monotonic() + READY_S
        while True:
            for line in kernels.heard(0.2):
                if line.get("t") == "done":
                    return tuple(links), during
                if line.get("t") == "link":
                    deadline = float("inf")
                    link = _link(line, gpus)
                    links.append(link)
                    during = experiment.newest(during)
                    if not quiet:
                        sys.stdout.write(f"{HEAD.rstrip()}\n" * (len(links) == 1) + f"{row(link)}\n")
                        sys.stdout.flush()
            if time.monotonic() > deadline:
                raise KernelsFailed(f"CUDA has not started within {READY_S:.0f} s")
    finally:
        kernels.close()


def _link(line: dict[str, Any], gpus: list[GpuSample]) -> Link:
    """A line of the child. Raises KernelsFailed for one that names no GPU of ours."""
    try:
        ends = [None if line[end] is None else gpus[int(line[end])] for end in ("source", "target")]
        link = link_of(ends[0], ends[1], float(line["bytes_per_s"]), direct=bool(line["direct"]))
    except (KeyError, TypeError, ValueError, IndexError):
        raise KernelsFailed("the program that copies has said something that it does not say") from None
    # By itself; beside the others it is judged again at the end.
    return judged([link], {})[0]
