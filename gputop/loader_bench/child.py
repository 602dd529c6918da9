"""One setting measured in its own process, so that a crash costs one row and not the session.

The parent reads the child's tree meanwhile: memory, and what the workers do.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from msgspec.structs import replace

from gputop.loader_bench.loaders import Loadable
from gputop.loader_bench.restart import Restart, measure_restart
from gputop.loader_bench.rows import Row, Setting
from gputop.loader_bench.sight import Sight
from gputop.loader_bench.stretch import MOST_TAKING_S, Empty, Stretch, measure
from gputop.model.text import clean_text

LOOK_S = 0.25
KILL_PART = 0.85
"""Share of the free memory: a child that holds more is killed before the kernel's OOM killer acts."""
MOST_WORDS = 200
TAKING_LIMIT_S = 5.0 * MOST_TAKING_S
"""How long a child may take after its loader was timed, as on a crowded machine."""
WEIGHED_S = 5.0
"""How long a child whose loader is paused waits for its memory to be measured."""
Tell = Callable[[str], None]
"""How a job reports that it has reached ``drained`` or ``timed``."""
Job = Callable[[Loadable, Setting, int, Tell], Any]


def measured_row(
    loadable: Loadable, setting: Setting, seed: int, *, limit_s: float, free_bytes: float | None, method: str
) -> Row:
    """Measure one setting. ``limit_s`` ends it; ``method`` is multiprocessing's way to start the child."""
    found, sight = _in_child(_measured, loadable, setting, seed, limit_s, free_bytes, method)
    return _row(setting, found, sight) if isinstance(found, Stretch) else Row(setting, failed=found)


def measured_restart(
    loadable: Loadable, setting: Setting, *, limit_s: float, free_bytes: float | None, method: str
) -> Restart | None:
    """How long an epoch's beginning takes with this setting; None where that cannot be measured."""
    if not loadable.can_be_short:
        return None
    found, _ = _in_child(_restarted, loadable, setting, 0, limit_s, free_bytes, method)
    return found if isinstance(found, Restart) else None


def row_here(loadable: Loadable, setting: Setting, seed: int) -> Row:
    """Measure one setting in this process, where it cannot be passed to a child."""
    try:
        return _row(setting, _measured(loadable, setting, seed, lambda _: None), None)
    except Exception as error:  # noqa: BLE001 — somebody else's dataset: whatever it raises is the row
        return Row(setting, failed=_words(error))


def _in_child(
    job: Job, loadable: Loadable, setting: Setting, seed: int, limit_s: float, free_bytes: float | None, method: str
) -> tuple[Any, Sight]:
    """A job's result from its own process, or why there is none, in words; and what was seen of its tree."""
    import multiprocessing

    context: Any = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    child = context.Process(target=_child, args=(theirs, job, loadable, setting, seed), name="gputop-loader-bench")
    child.start()
    theirs.close()
    sight = Sight(child.pid)
    try:
        return _followed(ours, child, sight, limit_s, free_bytes), sight
    finally:
        _kill(child)
        sight.close()
        ours.close()


def _followed(ours: Connection, child: Any, sight: Sight, limit_s: float, free: float | None) -> Any:
    until = time.monotonic() + limit_s
    most = None if free is None else KILL_PART * free
    timed = False
    while True:
        if ours.poll(LOOK_S):
            try:
                kind, said = ours.recv()
            except EOFError:
                child.join(1.0)
                return _ended(child.exitcode)
            if kind == "drained":
                sight.begin()
                continue
            if kind == "timed":
                # Not before: reading processes' memory slows them down.
                sight.look(None)
                sight.weigh()
                with suppress(OSError):
                    ours.send(None)
                timed, until = True, max(until, time.monotonic() + TAKING_LIMIT_S)
                continue
            return said
        if not timed:
            # After the timing the workers only do what the pauses need.
            sight.look(most)
        if most is not None and sight.memory_bytes is not None and sight.memory_bytes > most:
            return f"stopped: it took more than {100 * KILL_PART:.0f} % of the free memory"
        if time.monotonic() > until:
            return f"stopped: no answer within {limit_s:.0f} s"


def _row(setting: Setting, found: Stretch, sight: Sight | None) -> Row:
    return Row(
        setting,
        1000.0 * found.batch_s,
        found.error_pct,
        found.first_s,
        found.batches,
        None if sight is None else sight.memory_bytes,
        None if sight is None else sight.read_bytes_per_s,
        None if sight is None else sight.shares(),
        take_ms=None if found.take_s is None else 1000.0 * found.take_s,
    )


def _child(theirs: Connection, job: Job, loadable: Loadable, setting: Setting, seed: int) -> None:
    """In the child. Its group is its own, so that its workers can be ended with it."""
    os.setsid()
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        # If memory runs out after all, this is the process to kill.
        file.write("1000")
    # A dataset may print; the terminal is the parent's.
    with suppress(OSError):
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)

    def tell(kind: str) -> None:
        theirs.send((kind, None))
        if kind == "timed":
            theirs.poll(WEIGHED_S)

    try:
        theirs.send(("done", job(loadable, setting, seed, tell)))
    except BaseException as error:  # noqa: BLE001 — likewise, an exit included
        theirs.send(("failed", _words(error)))
    theirs.close()
    os.killpg(0, signal.SIGKILL)


def _measured(loadable: Loadable, setting: Setting, seed: int, tell: Tell) -> Stretch:
    loader = loadable.passes(setting, seed)
    return measure(
        lambda: iter(loader),
        setting.workers,
        setting.prefetch or 0,
        time.perf_counter,
        lambda: tell("drained"),
        # The loader still has its workers.
        timed=lambda: tell("timed"),
        pause=time.sleep if setting.workers else None,
    )


def _restarted(loadable: Loadable, setting: Setting, _seed: int, _tell: Tell) -> Restart:
    def short_pass(kept: bool) -> Any:
        return loadable.short_pass(replace(setting, persistent=kept), max(1, setting.workers))

    return measure_restart(short_pass, time.perf_counter)


def _words(error: BaseException) -> str:
    if isinstance(error, Empty):
        return "the dataset is empty"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = str(error)
    if "bus error" in text.lower() or "shared memory" in text.lower():
        return "shared memory ran out: enlarge /dev/shm (docker run --shm-size=8g), or fewer workers"
    # A worker's error is a traceback as text, whose last line names the error.
    said = lines[-1] if lines and lines[0].startswith("Caught") else lines[0] if lines else ""
    return clean_text(f"{type(error).__name__}: {said}" if said else type(error).__name__)[:MOST_WORDS]


def _ended(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"the child ended with exit code {exit_code}"
    if -exit_code == signal.SIGKILL:
        return "killed, as by the system when memory runs out"
    with suppress(ValueError):
        return f"ended by {signal.Signals(-exit_code).name}"
    return f"ended by signal {-exit_code}"


def _kill(child: Any) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if os.getpgid(child.pid) == child.pid:
            os.killpg(child.pid, signal.SIGKILL)
    with suppress(ProcessLookupError, ValueError):
        child.kill()
    child.join(5.0)
