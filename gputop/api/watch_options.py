"""The arguments of a watch, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isnan
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from gputop.api.job_ranks import RANKS, Ranks
from gputop.api.loggers import METRICS, NOTICES, Metrics
from gputop.model.cards import Price

if TYPE_CHECKING:
    from gputop.diagnosis.types import Finding
    from gputop.model.source import Source
    from gputop.monitor import Frame

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
    price: Price | None
    name: str
    on_frame: Callable[[Frame], object] | None
    on_finding: Callable[[Finding], object] | None
    source: Source | None
    log_thread: LogThread
    redact: bool
    dcgm_url: str | None = None
    children: bool = False
    phases: bool = True


def checked_interval(interval: float, *, strict: bool) -> float:
    """An interval within the bounds: a wrong one must not end a training unless ``strict`` was asked for."""
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
    """Seconds between two calls of the loggers. Raises ValueError for what is not a time."""
    seconds = _seconds(log_every)
    if seconds is None:
        raise ValueError(f"log_every must be in seconds, not {log_every!r}")
    return max(0.0, seconds)


def _seconds(value: object) -> float | None:
    """A number of any kind as a float; None for what is none."""
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return None if isnan(seconds) else seconds


def checked_words(metrics: str, ranks: str, log_thread: str) -> None:
    """Raises ValueError for words that mean nothing."""
    for name, value, allowed in (
        ("metrics", metrics, METRICS),
        ("ranks", ranks, RANKS),
        ("log_thread", log_thread, ("training", "own")),
    ):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


def gpus_text(gpus: str | int | Iterable[int | str] | None) -> str:
    """``mine``, ``all``, or a list as ``--gpus`` takes it: ``0,2`` or the beginning of a UUID."""
    if gpus is None:
        return "all"
    if isinstance(gpus, (str, int)):
        return str(gpus)
    return ",".join(map(str, gpus))


class Configured(Struct, frozen=True):
    """The settings that a watch reads: those that say how to read the machine without starting a program, and how to
    show it. Alerts and anything that starts helpers stay out of a training process."""

    redact: bool
    price: Price | None
    dcgm_url: str | None


def configured(environment: Mapping[str, str]) -> Configured:
    """These settings from environment and file, as for ``gputop record``.

    Where they cannot be read it is unknown whether names may be shown, so they are redacted: what was written cannot
    be taken back.
    """
    from gputop.config import ConfigError, load

    try:
        settings = load(None, environment, {}, strict=True)[0]
    except ConfigError as error:
        NOTICES.warning("gputop: names are redacted, unless redact=False is given: no settings can be read: %s", error)
        return Configured(True, None, None)
    return Configured(settings.redact, settings.price or None, settings.dcgm_url or None)
