"""A trace in memory: one array per column.

Millions of events fit without an object each.

Times are nanoseconds (int64) since the trace's first event. Names, threads and streams are numbers into tables. What
a file does not give is -1. Knows no file format and draws no conclusion.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, field

from gputop.model.foreign_values import text_of
from gputop.model.quantity import count

ABSENT = -1
COMPUTE, COMM, COPY = 0, 1, 2
"""Kinds of GPU work. ``COPY`` is a memory copy or a memset."""
OPERATOR, ANNOTATION, PYTHON = 0, 1, 2
"""Kinds of host spans: a framework's operator, a range that somebody named, a Python function."""


class NumberedTexts(dict[Any, int]):
    """Texts (or other keys) as numbers.

    They count in the order of their first use: ``names[text]`` numbers a new one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._answers: dict[Callable[[str], object], tuple[int, set[int]]] = {}

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self.texts)
        self.texts.append(key[:LONGEST_NAME] if isinstance(key, str) else text_of(key))
        return number

    def matching(self, matches: Callable[[str], object]) -> set[int]:
        """Numbers of the texts that match.

        The answer is kept, so that all threads and GPUs may ask.
        """
        known, answer = self._answers.get(matches, (0, set()))
        if known < len(self.texts):
            new = self.texts[known:]
            answer |= {number for number, text in enumerate(new, known) if matches(text)}
            self._answers[matches] = len(self.texts), answer
        return answer


def _column(code: str) -> Any:
    """A field that begins as an empty array of this type."""
    return field(default_factory=partial(array, code))


class Columns(Struct):
    """Rows of times, one array a column."""

    start: array[int] = _column("q")
    end: array[int] = _column("q")
    name: array[int] = _column("i")

    def __len__(self) -> int:
        return len(self.start)

    def extend(self, *columns: Sequence[float]) -> None:
        """Append rows, given by their columns in order."""
        for field_name, values in zip(self.__struct_fields__, columns, strict=True):
            getattr(self, field_name).extend(values)


class GpuEvents(Columns):
    """Kernels, copies and memsets.

    ``size_bytes`` is a copy's, ``blocks_per_sm`` and the estimated ``occupancy_pct`` a kernel's. What the file does not
    say is -1. ``correlation`` joins an event to the call that launched it.
    """

    kind: array[int] = _column("b")
    device: array[int] = _column("i")
    stream: array[int] = _column("q")
    correlation: array[int] = _column("q")
    size_bytes: array[int] = _column("q")
    blocks_per_sm: array[float] = _column("f")
    occupancy_pct: array[float] = _column("f")


class Calls(Columns):
    """Calls of the CUDA runtime and driver on the host."""

    thread: array[int] = _column("i")
    correlation: array[int] = _column("q")


class Spans(Columns):
    """Operators, named ranges and Python functions on the host."""

    thread: array[int] = _column("i")
    kind: array[int] = _column("b")


class FaultGroups(Columns):
    """Groups of page faults of unified memory; the device of the CPU's is -1. They have no name."""

    device: array[int] = _column("i")
    many: array[int] = _column("q")


class Collective(Struct, frozen=True):
    """Identity of a collective's kernel. ``seq`` is -1 where not recorded."""

    group: str
    operation: str
    seq: int


class CounterSample(Struct, frozen=True):
    """SM activity in percent at a moment, in nanoseconds."""

    t: int
    device: int
    sm_active_pct: float


class TraceDevice(Struct, frozen=True):
    """A GPU as the trace describes it; None where it does not say."""

    index: int
    name: str | None = None
    sm_count: int | None = None
    compute_major: int | None = None


DAY_NS = 86_400 * 10**9
"""A kernel or call of more than a day is damage, and so is one that lies a day from the others: no trace is so long."""
FARTHEST_NS = 4 * 10**18
"""A larger time is damage. It is 127 years, and twice as much fits into 64 bits."""
MOST_GPUS = 256
"""GPUs of a file: the largest machines have 16. Events of GPUs with higher numbers are left out."""
MOST_SMS = 100_000
"""Far more multiprocessors than a GPU has."""
MOST_RANKS = 10**9
LONGEST_NAME = 8192
"""Characters of a name; the longest names of templates have some thousands."""

LEAST_LOST = 0.01
"""Share of the launches without a kernel that is reported: the last ones may run when the profiler has stopped."""


DeviceStream = tuple[int, int]
"""A stream, by the GPU's number and its own."""


class TimeDoubts(Struct, frozen=True):
    """Events with impossible times, by kind, and launches whose kernels the file does not hold.

    ``lost`` are the numbers of these launches among the trace's calls, in order; ``launches`` counts all of them.
    ``twice`` counts events that are in the file more than once, ``far`` events that lie a day from the others,
    ``tangled`` are the streams whose events overlap, as on one stream they cannot.
    """

    overruns: int = 0
    slow_copies: int = 0
    untimed: int = 0
    lost: tuple[int, ...] = ()
    launches: int = 0
    twice: int = 0
    far: int = 0
    tangled: frozenset[DeviceStream] = frozenset()

    @property
    def dropped(self) -> int:
        """Launches that the profiler kept without their kernels."""
        lost = max(0, len(self.lost) - self.untimed)
        return lost if lost >= LEAST_LOST * self.launches else 0

    def notes(self) -> tuple[str, ...]:
        """One sentence for each kind of event."""
        dropped = self.dropped
        share = 100.0 * dropped / self.launches if self.launches else 0.0
        lost = (
            f"{share:.0f} % of the launches ({dropped}) have no kernel: the profiler dropped them, "
            "and what ran then"
        )
        rows = (
            (
                self.overruns,
                f"{count(self.overruns, 'event')} reached past the next one on the stream: cut there",
            ),
            (self.slow_copies, f"{self.slow_copies} × a copy slower than 50 MB/s: left out"),
            (self.untimed, f"{count(self.untimed, 'kernel')} without a time left out"),
            (
                self.twice,
                f"{count(self.twice, 'event')} in the file more than once: counted once",
            ),
            (self.far, f"{count(self.far, 'event')} a day and more from the others: left out"),
            (
                len(self.tangled),
                f"the events of {count(len(self.tangled), 'stream')} overlap, as on one stream they "
                "cannot: none is cut",
            ),
            (dropped, f"{lost} is not recorded"),
        )
        return tuple(words for number, words in rows if number)


class Trace(Struct):
    """Everything that was read from one file.

    ``begin_unix_s`` is the Unix time of nanosecond 0, None where the file does not tell; ``rank`` likewise.
    ``truncated`` says that the end is missing, ``dropped_events`` counts what could not be read, ``false_samples`` the
    samples of SM activity outside of 0 to 100 %, ``far_gpus`` the events of GPUs beyond ``MOST_GPUS``. ``threads``
    are names of the thread numbers. ``warnings`` are the profiler's own, ``notes`` say what else is missing.
    ``other_processes`` are processes of a JAX or TensorFlow trace.
    """

    path: str
    size_bytes: int = 0
    names: NumberedTexts = field(default_factory=NumberedTexts)
    threads: NumberedTexts = field(default_factory=NumberedTexts)
    gpu: GpuEvents = field(default_factory=GpuEvents)
    calls: Calls = field(default_factory=Calls)
    spans: Spans = field(default_factory=Spans)
    faults: FaultGroups = field(default_factory=FaultGroups)
    collectives: dict[int, Collective] = field(default_factory=dict)
    counters: list[CounterSample] = field(default_factory=list)
    counter_source: str | None = None
    devices: dict[int, TraceDevice] = field(default_factory=dict)
    rank: int | None = None
    world_size: int | None = None
    begin_unix_s: float | None = None
    truncated: bool = False
    dropped_events: int = 0
    false_samples: int = 0
    far_gpus: int = 0
    doubts: TimeDoubts = field(default_factory=TimeDoubts)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    other_processes: list[str] = field(default_factory=list)
    is_nsys: bool = False


class TraceError(Exception):
    """A file that cannot be analysed.

    One line: the problem and how to fix it.
    """
