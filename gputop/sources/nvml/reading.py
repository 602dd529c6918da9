"""The result of one pass over the GPUs, complete or partial."""

from __future__ import annotations

from msgspec import Struct

from gputop.model.snapshot import Event, GpuSample, GpuStatic
from gputop.sources.gpu_process import GpuProcess


class Reading(Struct, frozen=True):
    """One pass over the chosen GPUs, at Unix time ``t``. ``hung`` are indices: a call on these did not return."""

    t: float
    gpus: tuple[GpuSample, ...]
    processes: tuple[GpuProcess, ...]
    events: tuple[Event, ...] = ()
    notices: tuple[str, ...] = ()
    hung: tuple[int, ...] = ()


class Pass(Struct):
    """A pass that is under way: the samples so far, and the GPUs among them that hang."""

    samples: list[GpuSample] = []
    hung: list[int] = []


class Progress(Struct, frozen=True):
    """How far the pass under way has come. ``known`` are the chosen GPUs; empty while the driver still lists them."""

    known: tuple[GpuStatic, ...] = ()
    read: tuple[GpuSample, ...] = ()
    hung: tuple[int, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
