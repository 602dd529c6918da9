"""Names as an enemy chooses them, wherever a name comes from outside: a recording, this machine, a fleet, a trace."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gputop.features.fleet.fleet_reading import GpuReading, JobName
from gputop.features.fleet.read.simulated_fleet import SimulatedFleet
from gputop.model.clean_text import clean_text
from gputop.model.feeders import Outsider
from gputop.model.sm import SmLack
from gputop.model.snapshot import (
    CgroupName,
    Event,
    GpuSample,
    ProcessSample,
    ProcessStatic,
    Snapshot,
)
from gputop.recording.writer import RecordingWriter
from tests.support.scenes import gpu, snap, train

MARK, FACT = "QxZq", "WvYk"
"""In every name of a user, host, job or command, which redaction takes out; and in what it leaves, such as a model."""
SECRET = "hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh"
ATTACKS = (
    "\x1b[2J\x1b]0;owned\x07", "a\r\nb\x08\x7f\x9b31m", "\u202eabc\u2066\u200b", "e\u0301\u0489שלום", "\"'`$(id)",
    "</script><script>alert(1)</script><img src=x onerror=alert(1)>", "]]><!--<svg onload=alert(1)>",
    "{{ $x }}{% raw %}", '"} or vector(1) #\\', ": - &a *b !!python/object\n- x", "=1+1|cmd", "a|b\\|c`**",
    "x" * 4100, "\udcff\ud800é", "%s%n{0.__class__}", "--help", "&lt;b&gt;&#x1b;", "javascript:alert(1)",
    "[a](javascript:alert(1))", "![a](http://evil/x.png)",
)  # fmt: skip
CONTROLS = frozenset(
    map(chr, (*range(10), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F)))
)
CONTROLS |= frozenset(map(chr, (*range(0x2066, 0x206A), 0x200E, 0x200F, 0x2028, 0x2029)))
"""What must not reach a terminal, a page or a file; a line's end may."""


def names(mark: str = MARK, *, clean: bool = False) -> Iterator[str]:
    """The attacks one after the other, each with the mark."""
    return (
        (clean_text(name) if clean else name)
        for name in cycle(f"{mark}{i}{a}" for i, a in enumerate(ATTACKS))
    )


def snapshot(t: float, *, clean: bool = False) -> Snapshot:
    """A machine with a hostile name everywhere. ``clean`` is for sources, which clean what they take in."""
    name, fact = names(clean=clean), names(FACT, clean=clean)
    # Whoever makes a snapshot of this machine has masked what it saw; a file may hold anything.
    said = "--token ********" if clean else f"--token {SECRET}"
    gpus: list[GpuSample] = []
    processes: list[ProcessSample] = []
    for index in range(4):
        # A busy one that does not work, a starved one with loaders, one that nobody can measure, and a lost one.
        drawn = gpu(index, util=97.0 if index != 1 else 35.0, sm=(8.0, 30.0, None, None)[index])
        static = replace(
            drawn.static, uuid=f"GPU-{next(name)}", name=next(fact), pci_bus_id=next(fact),
            architecture=next(fact),
        )  # fmt: skip
        reasons = {"power_w": next(fact), "fan_pct": next(fact)}
        if index >= 2:
            reasons["sm_active_pct"] = next(fact)
        lost = next(fact) if index == 3 else None
        lack = SmLack((next(fact),))
        gpus.append(
            replace(
                drawn,
                static=static,
                unavailable=reasons,
                power_w=None,
                sm_lack=lack,
                lost_reason=lost,
            )
        )
        for loader in (None, None, "torch", next(fact)):
            facts = ProcessStatic(
                next(name), f"python {next(name)} {said}", next(fact), CgroupName("slurm", next(name)),
                CgroupName("docker", next(name)), loader, None if loader else next(fact), None, next(fact),
            )  # fmt: skip
            processes.append(
                replace(
                    train(index, static=facts, pid=100 + len(processes)),
                    role="loader" if loader else "gpu",
                    gpu=index,
                )
            )
    made = snap(t, gpus, processes)
    machine = replace(made.machine, hostname=next(name), boot_id=next(name), driver=next(fact))
    events = (Event(made.t, "mark", next(fact)), Event(made.t, "mark", said))
    outsider = Outsider(next(name), next(fact), 400.0)
    host = replace(
        made.host,
        unavailable={"psi_cpu_pct": next(fact)},
        outsiders=(outsider,),
        cpu_outsiders_pct=400.0,
    )
    return replace(made, machine=machine, notices=tuple(islice(fact, 12)), events=events, host=host)


def recording(path: Path, frames: int = 40) -> str:
    """A recording that nobody cleaned."""
    writer = RecordingWriter(str(path))
    for t in range(frames):
        writer.write(snapshot(float(t)))
    writer.close()
    return str(path)


class HostileFleet(SimulatedFleet):
    """Hosts and jobs with such names, for an engine to answer with."""

    def host_name(self, host: int) -> str:
        return (
            f"{host}{MARK}{ATTACKS[host % len(ATTACKS)]}".replace(":", "")
            .encode(errors="replace")
            .decode()
        )

    def gpu(self, host: int, number: int, t: float) -> GpuReading:
        read = super().gpu(host, number, t)
        # An engine's JSON holds no half characters.
        name = next(islice(names(), host, None)).encode(errors="replace").decode()
        return replace(
            read,
            job=JobName("slurm", name) if read.job else read.job,
            user=name,
            uuid=name,
            model=name.replace(MARK, FACT),
        )


def trace(document: dict[str, Any]) -> dict[str, Any]:
    """A profiler's trace with such names for its kernels and calls."""
    name = names(FACT, clean=True)
    for event in document["traceEvents"]:
        if not event.get("name", "ProfilerStep").startswith("ProfilerStep"):
            event["name"] = f"{next(name)}{event['name']}"
    return document
