"""Traces as files: each a rank of a job, and who makes the others wait.

In a collective the last rank to arrive waits least. So the durations of the same collective on all ranks tell which
was late, and the hosts' clocks need not agree.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import mean, median
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.thresholds import LATE_PCT, OFTEN
from gputop.features.traces.chrome import read_chrome
from gputop.features.traces.columns import COMM, MOST_GPUS, Trace, TraceError
from gputop.features.traces.nsys import HEADER, read_nsys
from gputop.features.traces.trace_analysis import StepChoice, full_analysis
from gputop.features.traces.trace_report import Measures, RankReport, severity
from gputop.model.quantity import count
from gputop.system.children import pool
from gputop.system.safe_open import open_regular

SUFFIXES = (".json", ".json.gz", ".sqlite")
NSYS_REPORT = ".nsys-rep"
MOST_PROCESSES = 4
FROM_TRACE = "the trace"
ONE_JOB = "are these two jobs, or two recordings of one? Give one file for each rank of one job"
_RANK = re.compile(r"(?:rank|worker|device|gpu)[-_.]?(\d+)", re.IGNORECASE)
_POINT_TO_POINT = re.compile(r"send|recv", re.IGNORECASE)
Key = tuple[str, str, int, int]
Progress = Callable[[int, int], None]


def read_trace(path: str, progress: Progress | None = None) -> Trace:
    """Read a profiler's file.

    ``progress`` gets the amounts read and in all.

    Raises TraceError if it is not a trace, and OSError.
    """
    if path.endswith((NSYS_REPORT, ".qdrep")):
        raise TraceError(
            f"{path} is Nsight Systems' own format: run `nsys export --type sqlite {path}`"
        )
    with open_regular(path) as file:
        begin, size = file.read(16), os.fstat(file.fileno()).st_size
    if begin == HEADER:
        return read_nsys(path, size, progress)
    if begin.startswith(b"\x80"):
        raise TraceError(
            f"{path} is a pickle: `gputop memory` reads memory snapshots; a trace is a profiler's JSON"
        )
    return read_chrome(path, progress)


class Rank(Struct, frozen=True):
    """A file's report, and its collectives' durations.

    Durations are in nanoseconds.

    ``point_to_point`` counts the kernels between two ranks, which are no collectives.
    """

    report: RankReport
    collectives: dict[Key, int]
    point_to_point: int = 0


class StragglingRank(Struct, frozen=True):
    """The rank for which the others wait.

    ``late_pct`` is of their window. ``more`` is the activity that takes it ``more_ms`` longer.
    """

    rank: int
    kind: Literal["slow", "starved"]
    late_pct: float
    last_in_pct: float
    more: str
    more_ms: float


class TraceReport(Struct, frozen=True):
    """All ranks in order, the straggler, and files left out."""

    ranks: tuple[RankReport, ...]
    straggler: StragglingRank | None
    notes: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """The id of the worst verdict over all ranks and GPUs."""
        verdicts = (gpu.verdict for rank in self.ranks for gpu in rank.gpus)
        return max(verdicts, key=lambda verdict: severity(verdict.level)).id


def trace_files(paths: Iterable[str]) -> list[str]:
    """Files as they are, each once; of a folder its traces, by name.

    Raises TraceError for a folder without any, and OSError.
    """
    files: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            files.append(path)
            continue
        inside = sorted(
            name
            for name in os.listdir(path)
            if name.endswith(SUFFIXES) and not name.startswith(".")
        )
        if not inside:
            reports = any(name.endswith(NSYS_REPORT) for name in os.listdir(path))
            hint = (
                ": export its .nsys-rep files with `nsys export --type sqlite`" if reports else ""
            )
            raise TraceError(f"{path} holds no trace ({', '.join(SUFFIXES)}){hint}")
        files += [os.path.join(path, name) for name in inside]
    # A file that is named twice, or by a link, is one rank.
    return list({_identity(path): path for path in files}.values())


def _identity(path: str) -> object:
    """Device and inode of a file; of a missing one its name."""
    try:
        return os.stat(path)[1:3]
    except OSError:
        return path


def report_traces(
    files: Sequence[str],
    choice: StepChoice,
    progress: Progress | None = None,
    *,
    from_folder: bool = False,
) -> TraceReport:
    """Read and analyse files, each a rank.

    In a folder, a file that is not a trace is left out and reported.

    Raises TraceError, and OSError.
    """
    ranks: list[Rank] = []
    left_out: list[str] = []
    for path, rank in _read_all(files, choice, progress):
        if isinstance(rank, Rank):
            ranks.append(rank)
        elif from_folder and len(files) > 1:
            left_out.append(str(rank))
        else:
            raise rank if isinstance(rank, TraceError) else TraceError(f"{path}: {rank}")
    if not ranks:
        raise TraceError(left_out[0])
    ranks = _numbered(ranks)
    straggler, straggler_notes = find_straggler(ranks)
    return TraceReport(
        tuple(rank.report for rank in ranks),
        straggler,
        (*(f"left out: {words}" for words in left_out), *_missing_ranks(ranks), *straggler_notes),
    )


def _missing_ranks(ranks: Sequence[Rank]) -> Iterator[str]:
    """Yield a note where several ranks of a job are given, and not all of them."""
    job_size = max(rank.report.world_size or 0 for rank in ranks)
    if 1 < len(ranks) < job_size:
        yield f"{len(ranks)} of the job's {job_size} ranks are here: a slower one may be among the others"


def _read_all(
    files: Sequence[str], choice: StepChoice, progress: Progress | None
) -> Iterable[tuple[str, Rank | TraceError]]:
    if len(files) == 1:
        yield files[0], _read(files[0], choice, progress)
        return
    most = min(os.cpu_count() or 1, MOST_PROCESSES, len(files))
    with pool(most) as processes:
        results = processes.map(_read, files, [choice] * len(files))
        for done, (path, rank) in enumerate(zip(files, results, strict=True), 1):
            if progress is not None:
                progress(done, len(files))
            yield path, rank


def _read(path: str, choice: StepChoice, progress: Progress | None = None) -> Rank | TraceError:
    """Read one rank; an error is returned, not raised.

    So it survives the way from another process.
    """
    try:
        trace = read_trace(path, progress)
        analysis = full_analysis(trace, choice)
    except TraceError as error:
        return error
    except OSError as error:
        return TraceError(f"{path}: {error.strerror or error}")
    in_name = _RANK.search(os.path.basename(path))
    rank, origin = (
        (trace.rank, FROM_TRACE)
        if trace.rank is not None
        else (int(in_name[1]), "the file's name")
        if in_name
        else (None, "")
    )
    doubts, damaged = trace.doubts, trace.dropped_events
    impossible = doubts.untimed + doubts.slow_copies + doubts.far + trace.false_samples
    dropped = damaged + impossible + doubts.dropped + trace.far_gpus
    notes = [*analysis.notes, *trace.notes]
    if damaged:
        notes.append(f"{damaged} damaged events were left out")
    if trace.false_samples:
        samples = count(trace.false_samples, "sample")
        notes.append(f"{samples} of SM activity outside of 0 to 100 % left out")
    if trace.far_gpus:
        events = count(trace.far_gpus, "event")
        notes.append(f"{events} of GPUs beyond number {MOST_GPUS - 1} left out")
    report = RankReport(
        path,
        rank,
        origin,
        trace.world_size,
        trace.truncated,
        dropped,
        analysis.gpus,
        tuple(notes),
    )
    return Rank(report, *_collectives(trace))


def _numbered(ranks: list[Rank]) -> list[Rank]:
    """Ranks in the order of their numbers; without numbers, in the order of the files.

    Raises TraceError where the files are of two jobs.
    """
    reports = [rank.report for rank in ranks]
    by_number: dict[int, RankReport] = {}
    for report in reports:
        if report.rank is not None and report.rank_from == FROM_TRACE:
            other = by_number.setdefault(report.rank, report)
            if other is not report:
                files = f"{os.path.basename(other.path)}, {os.path.basename(report.path)}"
                raise TraceError(f"rank {report.rank} is there twice ({files}): {ONE_JOB}")
    sizes = sorted({report.world_size for report in reports if report.world_size is not None})
    if len(reports) > 1 and (len(sizes) > 1 or (sizes and max(by_number, default=0) >= sizes[0])):
        raise TraceError(
            f"these ranks are of jobs with {' and '.join(map(str, sizes))} ranks: {ONE_JOB}"
        )
    numbers = [report.rank for report in reports]
    if None in numbers or len(set(numbers)) < len(numbers):
        return [
            replace(rank, report=replace(rank.report, rank=at, rank_from="the order of the files"))
            for at, rank in enumerate(ranks)
        ]
    return sorted(ranks, key=lambda rank: rank.report.rank or 0)


def _collectives(trace: Trace) -> tuple[dict[Key, int], int]:
    """Durations of the collectives, and the number of point-to-point kernels.

    A collective has the same identity on every rank.

    The identity is group, operation and number; where these are not recorded the n-th of its kind on its stream.
    """
    gpu = trace.gpu
    durations: dict[Key, int] = {}
    counts: Counter[tuple[str, str, int]] = Counter()
    pairs = 0
    all_to_all = _only_all_to_all(trace)
    order = sorted(
        (n for n, kind in enumerate(gpu.kind) if kind == COMM), key=gpu.start.__getitem__
    )
    for number in order:
        name = trace.names.texts[gpu.name[number]]
        collective = trace.collectives.get(number)
        if _POINT_TO_POINT.search(
            collective.operation if collective is not None else name
        ) and not (all_to_all and collective is None):
            pairs += 1
            continue
        if collective is not None and collective.seq >= 0:
            kind = (collective.group, collective.operation, collective.seq)
        else:
            kind = (name, f"stream {gpu.stream[number]}", -1)
        counts[kind] += 1
        group, operation, sequence = kind
        durations[group, operation, sequence, counts[kind]] = gpu.end[number] - gpu.start[number]
    return durations, pairs


def _only_all_to_all(trace: Trace) -> bool:
    """Whether the kernels called SendRecv are all-to-all: PyTorch announces that, and neither sends nor receives."""
    operations = {
        text.removeprefix("nccl:") for text in trace.names.texts if text.startswith("nccl:")
    }
    return any(name.startswith("all_to_all") for name in operations) and not any(
        map(_POINT_TO_POINT.search, operations)
    )


def find_straggler(ranks: Sequence[Rank]) -> tuple[StragglingRank | None, tuple[str, ...]]:
    """The rank for which the others wait, and notes.

    Ranks are compared within the groups that they form: of tensor and of data parallelism, for example.
    """
    if len(ranks) < 2:
        return None, ()
    if not all(rank.collectives for rank in ranks):
        pairs = any(rank.point_to_point for rank in ranks)
        return None, (
            "only kernels between two ranks (send, receive) are recorded: no straggler can be named",
        ) * pairs
    shared = _shared(ranks)
    if isinstance(shared, str):
        return None, (f"{shared}: no straggler can be named",)
    groups = [_waiting([ranks[at] for at in members], keys) for members, keys in shared.items()]
    late = max((group.latest for group in groups), key=lambda group: group.late_pct)
    if late.late_pct >= LATE_PCT and late.last_in_pct >= 100.0 * OFTEN:
        return late, ()
    worst = max(groups, key=lambda group: group.waiting_pct)
    if worst.waiting_pct < LATE_PCT:
        return None, ()
    return None, (
        f"the ranks wait for each other {worst.waiting_pct:.0f} % of the time, and not always for the same one: most "
        f"often for rank {worst.often} (last in {worst.often_pct:.0f} % of the collectives)",
    )


def _shared(ranks: Sequence[Rank]) -> dict[tuple[int, ...], set[Key]] | str:
    """Collectives of each set of ranks that share them.

    Or why there are none, in words.
    """
    holders: dict[str, set[int]] = {}
    for at, rank in enumerate(ranks):
        for group in {key[0] for key in rank.collectives}:
            holders.setdefault(group, set()).add(at)
    shared: dict[tuple[int, ...], set[Key]] = {}
    for group, members in holders.items():
        keys = [{key for key in ranks[at].collectives if key[0] == group} for at in members]
        if any(other_keys != keys[0] for other_keys in keys[1:]):
            return "the ranks do not hold the same steps"
        if len(members) > 1:
            shared.setdefault(tuple(sorted(members)), set()).update(keys[0])
    return shared or "no two ranks hold the same collectives"


class _Group(Struct, frozen=True):
    """Ranks that share collectives.

    ``latest`` waits least, ``often`` is last most often; ``waiting_pct`` is the average of all.
    """

    latest: StragglingRank
    waiting_pct: float
    often: int
    often_pct: float


def _waiting(ranks: Sequence[Rank], keys: set[Key]) -> _Group:
    """How ranks wait for each other in the collectives of all of them."""
    waits = [0] * len(ranks)
    last = [0] * len(ranks)
    for key in keys:
        took = [rank.collectives[key] for rank in ranks]
        shortest = min(took)
        last[took.index(shortest)] += 1
        for at, duration in enumerate(took):
            waits[at] += duration - shortest
    at = min(range(len(ranks)), key=waits.__getitem__)
    measures = [rank.report.gpus[0].measures for rank in ranks]
    window_ns = median(m.window_ms for m in measures) * 1e6 or 1.0
    late = mean(wait - waits[at] for other, wait in enumerate(waits) if other != at)
    activity, more_ms = _does_more(measures, at)
    kind: Literal["slow", "starved"] = "slow" if activity == "compute" else "starved"
    numbers = [
        at if rank.report.rank is None else rank.report.rank for at, rank in enumerate(ranks)
    ]
    often = max(range(len(ranks)), key=last.__getitem__)
    latest = StragglingRank(
        numbers[at], kind, 100.0 * late / window_ns, 100.0 * last[at] / len(keys), activity, more_ms
    )
    return _Group(
        latest, 100.0 * mean(waits) / window_ns, numbers[often], 100.0 * last[often] / len(keys)
    )


def _does_more(measures: list[Measures], at: int) -> tuple[str, float]:
    """The activity that takes this rank longer than the others.

    In ms a step beyond their median: compute, data or idle.
    """

    def spent(m: Measures) -> dict[str, float]:
        data = m.idle_cause_pct["data"]
        shares = {
            "compute": m.share_pct["compute"],
            "data": data,
            "idle": m.share_pct["idle"] - data,
        }
        return {name: share / 100.0 * m.window_ms / m.steps for name, share in shares.items()}

    own_ms = spent(measures[at])
    others = [spent(m) for other, m in enumerate(measures) if other != at]
    more_ms = {
        name: value - median(other[name] for other in others) for name, value in own_ms.items()
    }
    largest = max(more_ms, key=more_ms.__getitem__)
    return largest, more_ms[largest]
