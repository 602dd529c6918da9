"""The links of the GPUs: what came through each, against its peak, and whether that is right."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from gputop import __version__
from gputop.config import Settings
from gputop.diagnosis.thresholds import LINK_OF_BEST, LINK_SHARE, PCIE_PAIR_SHARE
from gputop.diagnosis.window import PCIE_LANE_BYTES
from gputop.features.prove.experiment import AllCopied, Copied, ProofVerdict
from gputop.features.prove.prove_run import MORE_S, Experiment, Kernels, KernelsFailed, Watched
from gputop.model.quantity import known
from gputop.model.snapshot import GpuSample, Snapshot
from gputop.model.source import SourceError
from gputop.output.document import text_lines
from gputop.output.messages import say
from gputop.output.snapshot_data import json_text
from gputop.sources.local import open_local
from gputop.system.given_file import write_private

# What is right: each link against its peak and against the others. Pure.

Way = Literal["host", "nvlink", "pcie", "through the host"]
LEAST_SHARE: Mapping[Way, float] = {"host": LINK_SHARE, "nvlink": LINK_SHARE, "pcie": PCIE_PAIR_SHARE}
"""Of a link's peak, from which on it is right."""


class Link(Struct, frozen=True):
    """One direction between two ends: GPUs by their index, None is the host's memory. Rates in bytes a second.

    ``peak_bytes_per_s`` is what the link can carry at most, None where that is not known. ``ok`` is None where it
    cannot be judged; ``why`` says why, or what is likely wrong.
    """

    source: int | None
    target: int | None
    way: Way
    bytes_per_s: float
    peak_bytes_per_s: float | None
    ok: bool | None = None
    why: str = ""

    @property
    def share(self) -> float | None:
        """Of the peak."""
        return self.bytes_per_s / self.peak_bytes_per_s if self.peak_bytes_per_s else None


def pcie_peak(gpu: GpuSample) -> float | None:
    """Bytes a second of the widest and fastest PCIe link that GPU and slot allow, one direction; None where unknown."""
    lane = PCIE_LANE_BYTES.get(gpu.pcie_gen_max or 0)
    if lane is None or not gpu.pcie_width_max or gpu.static.unified_memory:
        return None
    return lane * gpu.pcie_width_max


def link_of(source: GpuSample | None, target: GpuSample | None, bytes_per_s: float, *, direct: bool) -> Link:
    """A measured link, not judged yet. One end at most is None."""
    ends = known((source, target))
    peaks: list[float | None]
    if len(ends) == 1:
        way, peaks = "host", [pcie_peak(ends[0])]
    elif not direct:
        way, peaks = "through the host", [None]
    elif all(gpu.static.nvlink_peak_bytes_per_s for gpu in ends):
        way, peaks = "nvlink", [gpu.static.nvlink_peak_bytes_per_s for gpu in ends]
    else:
        way, peaks = "pcie", [pcie_peak(gpu) for gpu in ends]
    known_peaks = known(peaks)
    peak = min(known_peaks) if len(known_peaks) == len(peaks) else None
    index = [None if gpu is None else gpu.static.index for gpu in (source, target)]
    return Link(index[0], index[1], way, bytes_per_s, peak)  # type: ignore[arg-type]


def judged(links: Sequence[Link], gpus: Mapping[int, GpuSample]) -> tuple[Link, ...]:
    """Each link with whether it is right. ``gpus`` are samples taken while it was busy, by index."""
    best = max((link.bytes_per_s for link in links if link.way == "nvlink"), default=0.0)
    return tuple(_judged(link, gpus, best) for link in links)


def _judged(link: Link, gpus: Mapping[int, GpuSample], best: float) -> Link:
    link = replace(link, ok=None, why="")
    if link.way == "through the host":
        return replace(link, why="the GPUs do not reach each other: every byte crosses the host's memory")
    if link.share is None:
        return replace(link, why="its peak is not known")
    if link.share >= LEAST_SHARE[link.way]:
        return replace(link, ok=True)
    if link.way == "nvlink" and link.bytes_per_s >= LINK_OF_BEST * best:
        return replace(link, why="as fast as the other pairs: how many of the NVLinks join this pair is not known")
    return replace(link, ok=False, why=_likely(link, gpus))


def _likely(link: Link, gpus: Mapping[int, GpuSample]) -> str:
    """What is likely wrong with a slow link."""
    if link.way == "nvlink":
        return "slower than the other pairs: nvidia-smi nvlink -s shows which links are down, -e their errors"
    for index in (link.source, link.target):
        gpu = gpus.get(-1 if index is None else index)
        if gpu is not None and gpu.pcie_width and gpu.pcie_width_max and gpu.pcie_width < gpu.pcie_width_max:
            return f"GPU {index} has x{gpu.pcie_width} of x{gpu.pcie_width_max} lanes: reseat the card, check the slot"
    if link.way == "pcie":
        return "a bridge, the other socket or the IOMMU lies between them: nvidia-smi topo -m shows what"
    return "the other socket's memory, a shared switch, or a power setting of PCIe (ASPM): nvidia-smi topo -m"


def verdict(links: Sequence[Link]) -> ProofVerdict:
    """What the links show together: exit status 0 right, 1 a slow one, 3 none could be judged."""
    slow = [link for link in links if link.ok is False]
    right = [link for link in links if link.ok]
    if slow:
        worst = min(slow, key=lambda link: link.share or 0.0)
        return ProofVerdict(1, f"{len(slow)} of {len(links)} links are slow, worst {named(worst)}", worst.why)
    if not right:
        return ProofVerdict(3, "no link could be judged", links[0].why if links else "nothing was measured")
    rest = len(links) - len(right)
    return ProofVerdict(
        0, f"{len(right)} of {len(links)} links are right" + (f", {rest} could not be judged" if rest else "")
    )


def named(link: Link) -> str:
    """A link's ends in words."""
    return " → ".join("host" if end is None else f"GPU {end}" for end in (link.source, link.target))


HEAD = f"{'LINK':<16}{'GB/s':>8}{'PEAK':>8}{'':>7}   "


def row(link: Link) -> str:
    """A line of the table."""
    peak = "n/a" if link.peak_bytes_per_s is None else f"{link.peak_bytes_per_s / 1e9:.1f}"
    share = "" if link.share is None else f"{100 * link.share:.0f} %"
    mark = {True: "✓", False: "✗", None: "–"}[link.ok]
    way = {"host": "PCIe", "nvlink": "NVLink", "pcie": "PCIe", "through the host": "through the host"}[link.way]
    return f"{named(link):<16}{link.bytes_per_s / 1e9:>8.1f}{peak:>8}{share:>7} {mark} {way}"


def text(links: Sequence[Link], proof_verdict: ProofVerdict) -> str:
    """The table, what is odd about single links, and the conclusion."""
    lines = [HEAD.rstrip(), *map(row, links), ""]
    lines += [f"{named(link)}: {link.why}" for link in links if link.why and link.way != "through the host"]
    if apart := [named(link) for link in links if link.way == "through the host"]:
        lines.append(f"{', '.join(apart)}: {next(link.why for link in links if link.way == 'through the host')}")
    return text_lines([*lines, proof_verdict.words])


def data(links: Sequence[Link], proof_verdict: ProofVerdict, version: str, driver: str | None) -> dict[str, Any]:
    """Everything as JSON-able data."""
    rows = [{**to_builtins(link), "share": link.share} for link in links]
    return {
        "schema": 1, "gputop": version, "driver": driver, "exit_status": proof_verdict.exit_status,
        "verdict": proof_verdict.words,
        "reason": proof_verdict.reason, "links": rows,
    }  # fmt: skip


# ``gputop prove --links``: copies over every link of the GPUs, in a child, and what follows from them.

INTERVAL_S = 0.5


def prove_links(args: argparse.Namespace, settings: Settings, path: Path | None) -> int:
    """Measure, print and write; the exit status. Raises SourceError and UsageError."""
    source = open_local(settings, INTERVAL_S, wakes=True)
    experiment = Experiment(source, Watched())
    try:
        before = experiment.look_at_all(force=args.force)
        say("copies over each link for some tenths of a second, 64 MiB on each GPU; Ctrl+C stops at once")
        links, during = _measured(experiment, before, quiet=args.json)
    except KernelsFailed as failed:
        raise SourceError(f"nothing can be copied: {failed}") from failed
    finally:
        experiment.close()
    links = judged(links, {gpu.static.index: gpu for gpu in during.gpus})
    proof_verdict = verdict(links)
    report = data(links, proof_verdict, __version__, before.machine.driver)
    if args.json:
        sys.stdout.write(json_text(report))
    else:
        sys.stdout.write(text(links, proof_verdict).partition("\n\n")[2])
    sys.stdout.flush()
    if path is not None:
        write_private(path, json_text(report) if path.suffix == ".json" else text(links, proof_verdict))
    return proof_verdict.exit_status


def _measured(experiment: Experiment, before: Snapshot, *, quiet: bool) -> tuple[tuple[Link, ...], Snapshot]:
    """Every link as its copies end, and the GPUs as they were during the copies. Raises KernelsFailed and
    SourceError."""
    gpus = [gpu for gpu in before.gpus if gpu.lost_reason is None and gpu.static.mig_enabled is not True]
    if not gpus:
        raise SourceError("no whole GPU answers: an instance of a split GPU has no links of its own")
    links: list[Link] = []
    during = before
    kernels = Kernels(",".join(gpu.static.uuid for gpu in gpus), "copies")
    try:
        while True:
            for message in kernels.heard(MORE_S):
                if isinstance(message, AllCopied):
                    return tuple(links), during
                if isinstance(message, Copied):
                    ends = [None if end is None else gpus[end] for end in (message.source, message.target)]
                    link = link_of(ends[0], ends[1], message.bytes_per_s, direct=message.direct)
                    # By itself; beside the others it is judged again at the end.
                    links += judged([link], {})
                    during = experiment.newest(during)
                    if not quiet:
                        sys.stdout.write(f"{HEAD.rstrip()}\n" * (len(links) == 1) + f"{row(links[-1])}\n")
                        sys.stdout.flush()
    finally:
        kernels.close()
