"""Check the arguments of a watch, and choose the process that samples.

One process a node samples, so that eight ranks cost as much as one. The launcher's environment decides, and the part of
the process group that this process knows: a collective call could hang the job that is watched.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from math import isnan
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct

from gputop.model.steps import Started, run_of
from gputop.sources.procfs import relatives_of

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.diagnosis.types import Finding
    from gputop.model.source import Source
    from gputop.monitor import Frame

NOTICES = logging.getLogger("gputop")
"""Where a watch reports trouble: once, as a warning."""
Metrics = Literal["few", "all"]
Ranks = Literal["node", "0", "all"]
INTERVALS_S = (0.05, 3600.0)
LogThread = Literal["training", "own"]


class Options(Struct, frozen=True, kw_only=True):
    """The arguments of ``gputop.watch``."""

    interval: float
    gpus: str
    record: str | None
    log: Any
    log_every: float
    metrics: Metrics
    steps: bool
    ranks: Ranks
    strict: bool
    price: float | None
    name: str
    on_frame: Callable[[Frame], object] | None
    on_finding: Callable[[Finding], object] | None
    source: Source | None
    log_thread: LogThread
    redact: bool
    dcgm_url: str = ""
    children: bool = False
    phases: bool = True


def checked_interval(interval: float, *, strict: bool) -> float:
    """Return an interval within the bounds.

    A wrong one must not end a training unless ``strict`` was asked for.
    """
    shortest, longest = INTERVALS_S
    seconds = _seconds(interval)
    if seconds is not None and shortest <= seconds <= longest:
        return seconds
    words = f"interval must be {shortest:g} to {longest:g} seconds, not {interval!r}"
    if strict:
        raise ValueError(words)
    bounded_s = 1.0 if seconds is None or seconds <= 0.0 else longest if seconds > longest else shortest
    NOTICES.warning("gputop: %s; it is %g s", words, bounded_s)
    return bounded_s


def checked_log_every(log_every: float) -> float:
    """Return the seconds between two calls of the loggers. Raises ValueError."""
    if (seconds := _seconds(log_every)) is None:
        raise ValueError(f"log_every must be in seconds, not {log_every!r}")
    return max(0.0, seconds)


def _seconds(value: object) -> float | None:
    """Return any number as a float; None for other values."""
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return None if isnan(seconds) else seconds


def checked_words(metrics: str, ranks: str, log_thread: str) -> None:
    """Raises ValueError for words that mean nothing."""
    for name, value, kind in (
        ("metrics", metrics, Metrics),
        ("ranks", ranks, Ranks),
        ("log_thread", log_thread, LogThread),
    ):
        if value not in (allowed := get_args(kind)):
            raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


def gpus_text(gpus: str | int | Iterable[int | str] | None) -> str:
    """Return GPUs as ``--gpus`` takes them.

    ``mine``, ``all``, or a list such as ``0,2`` or the beginning of a UUID.
    """
    if gpus is None or isinstance(gpus, (str, int)):
        return "all" if gpus is None else str(gpus)
    return ",".join(map(str, gpus))


def recording_target(path: str) -> str:
    """Return the file or folder to record into.

    A name without the ending of a recording is a folder, which need not exist.
    """
    from gputop.recording.format import SUFFIXES

    is_file = path.endswith((*SUFFIXES, os.sep)) or (os.path.lexists(path) and not os.path.isdir(path))
    return path if is_file else f"{path}{os.sep}"


def configured(environment: Mapping[str, str]) -> Settings:
    """Return the settings from environment and file, as ``gputop record``.

    Where they cannot be read it is unknown whether names may be shown, so they are redacted: a written name cannot be
    taken back. A watch reads only how to read the machine without starting a program, and how to show it: alerts and
    anything that starts helpers stay out of a training process.
    """
    from gputop.config import ConfigError, Settings, load

    try:
        return load(None, environment, {}, strict=True)[0]
    except ConfigError as error:
        NOTICES.warning("gputop: names are redacted, unless redact=False is given: no settings can be read: %s", error)
        return Settings(redact=True)


# Which process of a job samples.

_LOCAL = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID")
_GLOBAL = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PALS_RANKID")
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
"""Where all ranks meet on one machine, a rank is its local rank as well."""
LOADER_WORKER = "a loader's worker is not watched: watch in the program that starts it"
NO_RANK = (
    "a child of multiprocessing is not watched unless it is a rank: watch after init_process_group, or with "
    "gputop.watch(children=True)"
)


class Role(Struct, frozen=True):
    """The part of this process: it samples GPUs, or counts steps only.

    ``reason`` says why it does not sample.
    """

    rank: int | None
    local_rank: int | None
    samples: bool
    reason: str | None = None


def role_of(ranks: Ranks, environ: Mapping[str, str]) -> Role:
    """The role of the process with this environment."""
    local, rank = _first(_LOCAL, environ), _first(_GLOBAL, environ)
    rank = _group_rank() if rank is None else rank
    if local is None and environ.get("MASTER_ADDR") in _THIS_MACHINE:
        local = rank
    if ranks == "node" and local not in (None, 0):
        return Role(rank, local, False, f"local rank {local} counts its steps; local rank 0 samples this node's GPUs")
    if ranks == "0" and rank not in (None, 0):
        return Role(rank, local, False, f"rank {rank} counts its steps; rank 0 samples")
    return Role(rank, local, True)


def own_run(environ: Mapping[str, str]) -> str:
    """The run whose rank this process is."""
    process = sys.modules.get("multiprocessing.process")
    parent = None if process is None else process.parent_process()
    started = Started(
        os.geteuid(), os.uname().nodename, _name_for_good(os.getpid()),
        None if parent is None or parent.pid is None else _name_for_good(parent.pid), _group_rank() is not None,
    )  # fmt: skip
    return run_of(environ, started)


def _name_for_good(pid: int) -> str:
    """Return a name that no other process ever has: pid and start."""
    relatives = relatives_of(pid)
    return f"{pid} {relatives and relatives.starttime}"


def unwatched_child(environ: Mapping[str, str], *, children: bool) -> str | None:
    """Return why this process is not watched; None where it is.

    A child of multiprocessing is watched if it is a rank: ``mp.spawn``, Lightning's ``ddp_spawn`` and a notebook's
    launcher start their ranks so. A loader's worker never counts: it is a daemon, or says so itself, and inherits the
    environment of the rank whose batches it makes.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        return None
    worker_info = getattr(sys.modules.get("torch.utils.data"), "get_worker_info", lambda: None)
    if process.current_process().daemon or worker_info() is not None:
        return LOADER_WORKER
    is_rank = "RANK" in environ or "LOCAL_RANK" in environ or _group_rank() is not None
    return None if is_rank or children else NO_RANK


def _group_rank() -> int | None:
    """Return the rank in torch's process group, if there is one."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank())


def _first(names: tuple[str, ...], environ: Mapping[str, str]) -> int | None:
    for name in names:
        value = environ.get(name, "")
        if value.isascii() and value.isdigit() and len(value) < 10:
            return int(value)
    return None
