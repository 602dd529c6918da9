"""Waiting for a screen in a test: until its event loop has nothing left to do, and not for a share of a second.

Textual's own wait sleeps at least 20 ms, twice at every key, and takes a process that is not given a core for an idle
one. This one looks at the loop itself, so it is over sooner and a loaded machine does not end it early.
"""

from __future__ import annotations

import asyncio
from time import process_time

QUIET_ROUNDS = 3
"""So many rounds of the loop in which nothing but this wait ran: one callback may only begin the next."""
REST_S = 0.002
"""What other threads are given once the loop is quiet."""
SOON_S = 0.06
"""A timer that is due by then is waited for: a screen puts off what it would paint too often."""
MOST_TIMERS = 3
"""Timers that are waited for in a row: some never end, such as a cursor that blinks."""


async def wait_until_idle(min_sleep: float = 0.0, max_sleep: float = 1.0) -> None:
    """In place of ``textual._wait.wait_for_idle``, with its arguments, in seconds."""
    loop = asyncio.get_running_loop()
    # Seconds of CPU: a process that is not given a core is given its time.
    end = process_time() + max_sleep
    await _quiet(loop, end)
    await asyncio.sleep(max(REST_S, min_sleep))
    await _quiet(loop, end)
    for _ in range(MOST_TIMERS):
        due = [timer.when() for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        wait = min(due, default=float("inf")) - loop.time()
        if wait > SOON_S or process_time() > end:
            return
        await asyncio.sleep(max(0.0, wait))
        await _quiet(loop, end)


async def _quiet(loop: asyncio.AbstractEventLoop, end: float) -> None:
    """Let the loop run until nothing but this is left to run, at most until ``end``."""
    rounds = 0
    while rounds < QUIET_ROUNDS and process_time() < end:
        await asyncio.sleep(0)
        rounds = 0 if loop._ready else rounds + 1  # type: ignore[attr-defined]
