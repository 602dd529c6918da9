"""Check the arguments of a watch, and choose the process that samples.

One process a node samples, so that eight ranks cost as much as one. The launcher's environment decides, and the part of
the process group that this process knows: a collective call could hang the job that is watched.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from math import isnan
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct

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
    bounded_s = (
        1.0 if seconds is None or seconds <= 0.0 else longest if seconds > longest else shortest
    )
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
            raise ValueError(
                f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}"
            )


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

    is_file = path.endswith((*SUFFIXES, os.sep)) or (
        os.path.lexists(path) and not os.path.isdir(path)
    )
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
        NOTICES.warning(
            "gputop: names are redacted, unless redact=False is given: no settings can be read: %s",
            error,
        )
        return Settings(redact=True)
