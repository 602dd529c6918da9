"""When each host thread waited for data, allocated, or waited for the GPU."""

from __future__ import annotations

import re
from bisect import bisect_left

from msgspec import Struct

from gputop.traces.columns import ABSENT, Calls, Spans, Trace
from gputop.traces.intervals import Intervals, union

SYNC_SLACK_NS = 2_000
"""How much later than the GPU's work a call that waits for it may return."""
DATA_LOADER = re.compile(r"enumerate\(DataLoader\)#(_\w+?)\.__next__$")
SINGLE_PROCESS = "_SingleProcessDataLoaderIter"
"""The iterator of a DataLoader without workers."""
SYNC_CALLS = re.compile(
    r"(cuda|hip)(Stream|Device|Event)Synchronize|cu(Stream|Ctx|Event)Synchronize|(cuda|hip)Memcpy(_|$|2D|3D)"
)
ALLOCATOR_CALLS = re.compile(r"(cuda|hip)(Malloc|Free|HostAlloc|HostMalloc|HostFree|MallocHost)|cuMem(Alloc|Free)")
_NONE: Intervals = []


class Waits(Struct, frozen=True):
    """The calls of one thread that wait for the GPU, sorted by their begin; ``number`` is theirs in the calls."""

    start: list[int]
    end: list[int]
    number: list[int]

    def running_at(self, moment: int) -> int:
        """The call in which the thread waited when the GPU ran empty at ``moment``; -1 for none."""
        at = bisect_left(self.start, moment) - 1
        # Waiting calls do not nest deeper than a synchronisation within a copy.
        for place in range(at, max(-1, at - 3), -1):
            if self.end[place] + SYNC_SLACK_NS >= moment:
                return self.number[place]
        return ABSENT


class HostThreads:
    """The causes of idle time that lie on the host, by thread."""

    def __init__(self, trace: Trace, step_thread: int, pageable: set[int]) -> None:
        """``step_thread`` announces the steps and loads data for all threads; -1 for none.

        ``pageable`` are the numbers of the calls whose copy is from or to pageable memory: these return only after it.
        """
        texts = trace.names.texts
        loaders = {number for number, text in enumerate(texts) if DATA_LOADER.match(text) is not None}
        allocators = {number for number, text in enumerate(texts) if ALLOCATOR_CALLS.match(text)}
        syncs = {number for number, text in enumerate(texts) if SYNC_CALLS.match(text)}
        data = _by_thread(trace.spans, loaders, set())
        self._step_thread = step_thread
        self._data = {
            thread: union(sorted((begin, end) for begin, end, _ in rows + data.get(step_thread, [])))
            for thread, rows in data.items()
        }
        self._allocator = {
            thread: union((begin, end) for begin, end, _ in rows)
            for thread, rows in _by_thread(trace.calls, allocators, set()).items()
        }
        rows_of = _by_thread(trace.calls, syncs, pageable)
        self.waits = {thread: Waits(*map(list, zip(*rows, strict=True))) for thread, rows in rows_of.items()}
        self._waiting = {thread: union((begin, end) for begin, end, _ in rows) for thread, rows in rows_of.items()}

    def data(self, thread: int) -> Intervals:
        """When this thread, or the one of the steps, waited for a batch."""
        return self._data.get(thread) or self._data.get(self._step_thread, _NONE)

    def allocator(self, thread: int) -> Intervals:
        """When this thread allocated or freed memory."""
        return self._allocator.get(thread, _NONE)

    def waiting(self, thread: int) -> Intervals:
        """When this thread waited for the GPU."""
        return self._waiting.get(thread, _NONE)


def _by_thread(table: Spans | Calls, names: set[int], numbers: set[int]) -> dict[int, list[tuple[int, int, int]]]:
    """(begin, end, number) of the rows with one of these names or numbers, sorted, by thread."""
    found: dict[int, list[tuple[int, int, int]]] = {}
    if names or numbers:
        for number, name in enumerate(table.name):
            if name in names or number in numbers:
                found.setdefault(table.thread[number], []).append((table.start[number], table.end[number], number))
    for rows in found.values():
        rows.sort()
    return found
