"""What painting and writing one key takes, for ``tests.bench.instructions``: 64 processes on 8 GPUs."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from gputop.model.snapshot import Snapshot
from gputop.monitor import Monitor
from gputop.output.ansi import Differ
from gputop.paint.main_screen import Painter
from gputop.paint.process_filter import parse
from gputop.paint.view import View
from gputop.paint.view_changes import after_key
from tests.bench.headless_stages import Tick

TYPED = "user:ml cpu>1 mem>0G"
"""A filter, as far as it is typed: only what can be parsed is tried."""
PAGE = 10
KEYS = "key: down", "key: commands", "key: order", "key: invert", "key: letter", "key: next GPU"


def crowded(snapshot: Snapshot, processes: int = 64) -> Snapshot:
    """A snapshot with copies of its processes, so many in all."""
    own = snapshot.processes
    copies = [
        replace(own[i % len(own)], pid=own[i % len(own)].pid + 100_000 * (i // len(own))) for i in range(processes)
    ]
    return replace(snapshot, processes=tuple(copies))


def key_stages(snapshots: list[Snapshot], view: View, differ: Differ, size: tuple[int, int]) -> dict[str, Tick]:
    """Each key again and again, on the screen that the key before it has left."""
    monitor = Monitor()
    for snapshot in snapshots:
        frame = monitor.feed(crowded(snapshot))

    def stage(
        after: Callable[[View, Painter, int], View], before: Callable[[View, Painter], View] | None = None
    ) -> Tick:
        painter = Painter()
        painter.paint(frame, view, *size)
        now = view if before is None else before(view, painter)
        rows = painter.paint(frame, now, *size).rows

        def tick(i: int) -> None:
            nonlocal now, rows
            now = after(now, painter, i)
            old, rows = rows, painter.paint(frame, now, *size).rows
            differ.changes(old, rows).encode()

        return tick

    def key(key_id: str) -> Callable[[View, Painter, int], View]:
        return lambda now, painter, _: after_key(now, key_id, frame, PAGE, painter.shown_rows(frame, now))

    def letter(now: View, _: Painter, i: int) -> View:
        typed = TYPED[: 1 + i % len(TYPED)]
        return replace(now, filter=parse(typed.rpartition(" ")[0] if typed[-1] in " :>" else typed))

    ids = "down", "command_right", "sort_next", "invert", None, "next_gpu"
    return dict(zip(KEYS, [stage(letter if key_id is None else key(key_id)) for key_id in ids], strict=True))
