"""What a main thread or workers have been in since the GPU idles, in words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gputop.diagnosis.host.idle_runs import SteadyState
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.window.window import WINDOW_S
from gputop.model.durations import duration
from gputop.model.feeders import OTHER_RANKS, WHERE_RANKS_MEET, Cause

lasting = partial(duration, whole=True)
"""Times of minutes and hours, which seldom change."""
RESTARTING = 0.5
"""Share of the idle time that lies in pauses beside the birth of all loaders from which on it is theirs."""

STANDS_S = 5.0
"""What a thread has been in for less is not said [judged]."""
RENDEZVOUS_PORTS = (":29500", ":29400")
"""Where torch.distributed's store and torchrun's rendezvous listen unless they are told otherwise (their
documentation)."""
_MAIN_WORDS: dict[str, tuple[str, Cause | None]] = {
    "disk": ("waits for the disk", "disk"),
    "network": ("waits on a socket", "network"),
    "lock": ("waits for a lock", None),
    "sleep": ("sleeps by a timer", "sleep"),
    "poll": ("polls", None),
    "pipe": ("waits for data of a pipe", None),
    "write": ("waits for the reader of a full pipe", "pipe"),
}
HALTED_WORDS = {"stopped": "stopped by a signal (SIGSTOP)", "traced": "held by a debugger"}
MOST_NAMED = 4
"""Processes whose pids are given."""


def pids_words(pids: Sequence[int]) -> str:
    """``pid 4711``, ``pids 4711, 4712``; of many the first."""
    more = ", …" if len(pids) > MOST_NAMED else ""
    return f"pid{'s' * (len(pids) > 1)} {', '.join(map(str, pids[:MOST_NAMED]))}{more}"


def halted_words(s: Signals) -> str:
    """``1 of 2 stopped by a signal (SIGSTOP), pid 4711``."""
    halted, state = s.tick.halted, s.host.worker_state
    words = HALTED_WORDS.get("" if state is None else state.state, HALTED_WORDS["stopped"])
    if not halted:
        return words
    return f"{len(halted)} of {len(s.tick.loaders)} {words}, {pids_words([p.pid for p in halted])}"


def restarts(s: Signals) -> bool:
    """True if most of the idle time lies beside worker restarts."""
    restart_s = s.host.restarts.full_restart_s
    return restart_s > 0.0 and restart_s >= RESTARTING * s.idle / 100.0 * min(WINDOW_S, s.covered_s)


def waits_for_ranks(s: Signals) -> str:
    """Return the ranks that a rank's main thread waits for.

    Empty if no such wait was seen.
    """
    return next((end.detail for end in s.tick.ends if end.detail.startswith(OTHER_RANKS)), "")


def why_idle(s: Signals) -> tuple[str | None, Cause | None]:
    """State of the main thread or workers since the GPU idles, and cause."""
    main, feeders = s.host.main_state, s.host.worker_state
    if main is not None and main.state in HALTED_WORDS:
        return f"the main thread is {HALTED_WORDS[main.state]} for {lasting(main.for_s)}", "stopped"
    if feeders is not None and feeders.state in HALTED_WORDS:
        return f"workers: {halted_words(s)} for {lasting(feeders.for_s)}", "stopped"
    if feeders is not None and feeders.state == "lock":
        if main is not None and main.state == "pipe" and min(main.for_s, feeders.for_s) >= STANDS_S:
            # A worker that is ahead waits for a lock as well, but then there would be data for the main thread.
            return (
                f"the main thread waits for data of its workers, and they for a lock, for {lasting(feeders.for_s)}",
                "lock",
            )
    elif feeders is not None and feeders.for_s >= STANDS_S:
        if feeders.mount is not None:
            return f"the workers wait on {feeders.mount} for {lasting(feeders.for_s)}", "mount"
        return f"the workers are in {feeders.state} wait for {lasting(feeders.for_s)}", _MAIN_WORDS[
            feeders.state
        ][1]
    return (None, None) if main is None or main.for_s < STANDS_S else _why_main(s, main)


def _why_main(s: Signals, main: SteadyState) -> tuple[str, Cause | None]:
    """Wait of the main thread in words, and its cause."""
    if restarts(s):
        count = s.host.restarts.count
        return (
            f"the main thread waits for workers that start anew, {count} in {WINDOW_S:.0f} s",
            "startup",
        )
    if main.mount is not None:
        return (
            f"the main thread waits on the file system {main.mount} for {lasting(main.for_s)}",
            "mount",
        )
    ranks = waits_for_ranks(s)
    if ranks and main.state in ("lock", "sleep"):
        return f"the main thread waits for {ranks} for {lasting(main.for_s)}", "ranks"
    since = f"for {lasting(main.for_s)}" if s.has_worked else "since the start"
    if main.state in ("network", "poll") and s.tick.server is None:
        if s.tick.is_notebook:
            return f"the notebook's kernel waits for its next cell {since}", None
        address = next(
            (end.detail for end in s.tick.ends if end.via == "network" and end.detail), ""
        )
        if s.tick.nccl or address.endswith(RENDEZVOUS_PORTS) or WHERE_RANKS_MEET in address:
            where = f", at {address}" if address else ""
            return f"the main thread waits {since} for other ranks of its job{where}", "ranks"
        if address:
            return f"the main thread waits for {address} {since}", "network"
    words, cause = _MAIN_WORDS[main.state]
    return f"the main thread {words} for {lasting(main.for_s)}", cause
