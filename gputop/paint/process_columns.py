"""The columns of the process table, and its filter.

There is one for every process key of the catalogue, and one for each total over a process and all below it. Heads,
units and definitions come from the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from gputop.model.durations import age
from gputop.model.metrics import PROCESS_METRICS, PROCESS_STATIC, Unit
from gputop.model.quantity import rate, size
from gputop.model.snapshot import ProcessSample, value
from gputop.paint.cells import fit
from gputop.paint.tree_totals import TREE_TOTALS, tree_total

Children = Sequence[ProcessSample]
Value = float | str | None

GUTTER = 2
READABLE = 26
"""Cells in which most command lines can be told apart."""
DISPENSABLE = 3
"""The highest rank of a column that gives way to a readable COMMAND."""
LEAST_COLUMNS = 3
LEAST_STATES_WIDTH, NARROW_LOADERS = 100, 9
"""A narrower screen shows how many loaders of which kind, and not their states: COMMAND needs the cells."""
MOST_STATES = "RDSTZ?"


class ProcessColumn(Struct, frozen=True):
    """A column of the process table.

    Catalogue key, head, width in cells, sort letter, text, sort value, its rank in giving way. ``text`` columns are
    on the left and sort from A to Z, the others on the right and from large to small. ``flexible`` ones take the
    remaining width.
    """

    key: str
    head: str
    width: int
    letter: str
    show: Callable[[ProcessSample, Children], str]
    value: Callable[[ProcessSample, Children], Value]
    keep: int
    definition: str
    right: bool = True
    rising: bool = False
    flexible: bool = False


class Placed(Struct, frozen=True):
    """A column's place: first cell and width."""

    column: ProcessColumn
    begin: int
    width: int


FORMS: Mapping[str, tuple[str, int, int]] = {
    "gpu": ("g", 4, 9), "pid": ("p", 7, 9), "user": ("u", 8, 6), "gpu_mem_bytes": ("m", 8, 8),
    "gpu_time_pct": ("t", 9, 4), "cpu_pct": ("c", 6, 7), "loader": ("l", 14, 5), "rss_bytes": ("r", 8, 3),
    "age_s": ("a", 8, 2), "job": ("j", 11, 1), "command": ("n", 16, 10), "state": ("s", 1, 5),
    "waiting_on": ("w", 8, 5), "read_bytes_per_s": ("d", 9, 4), "write_bytes_per_s": ("b", 9, 4),
    "threads": ("h", 7, 3), "role": ("o", 6, 4), "container": ("k", 19, 1), "why": ("y", 24, 1), "name": ("x", 14, 3),
    "run_pct": ("", 5, 4), "wait_pct": ("v", 5, 4), "type": ("", 4, 2), "ppid": ("", 7, 3), "nccl": ("", 4, 1),
    "pin_memory": ("", 4, 1), "starttime": ("", 11, 1), "server": ("", 14, 1), "job_key": ("", 12, 1),
    "gpu_mem_time_pct": ("i", 10, 1), "rank": ("", 5, 1), "run": ("", 12, 1),
    "framework": ("", 10, 1), "tree_cpu_pct": ("e", 8, 1), "tree_rss_bytes": ("", 8, 2),
}  # fmt: skip
"""Sort letter (every letter once), width, and rank in giving way: the column with the lowest rank goes first."""
NUMBERED = ("gpu", "pid", "ppid", "starttime")
"""Numbers that sort from small to large at first, as texts do."""

DEFAULT = (
    "gpu", "pid", "user", "gpu_mem_bytes", "gpu_time_pct", "cpu_pct", "loader", "rss_bytes", "age_s", "job", "command",
)  # fmt: skip
"""The columns of someone who has chosen none."""


def thread_words(process: ProcessSample, workers: Sequence[ProcessSample]) -> str | None:
    """Return ``threads 6 R2`` for feeding host threads.

    How many feed a GPU process without workers, and how many cores' worth of them run.
    """
    if workers or not process.feeder_threads:
        return None
    running = round((process.pool_run_pct or 0.0) / 100.0)
    return f"threads {round(process.feeder_threads)}" + (f" R{running}" if running else "")


def loader_words(process: ProcessSample, children: Children, *, states: bool = False) -> str:
    """Return the number and kind of workers: ``8 torch``.

    With ``states`` also how many of them do what: ``8 torch R6 D2``.
    """
    if process.role == "loader":
        return f"{process.static.loader or 'python'} worker"
    if process.role != "gpu":
        return process.role
    workers = [p for p in children if p.role == "loader"]
    if not workers:
        return process.static.loader or thread_words(process, workers) or "–"
    kinds = "+".join(dict.fromkeys(p.static.loader or "python" for p in workers))
    words = f"{len(workers)} {kinds}"
    if not states:
        return words
    seen = [p.state or "?" for p in workers]
    return " ".join(
        [
            words,
            *(f"{state}{seen.count(state)}" for state in sorted(set(seen), key=MOST_STATES.find)),
        ]
    )


def _reader(key: str) -> Callable[[ProcessSample, Children], Value]:
    """How to read a column's value."""
    if key in TREE_TOTALS:
        return lambda p, c: tree_total(p, c, key)
    if key == "job":
        return lambda p, c: p.static.job or p.static.container
    if key == "loader":
        return loader_words
    if key == "command":
        return lambda p, c: p.static.command or p.static.name
    return lambda p, c: value(p, key)


def _yes_no(value: float, width: int) -> str:
    return f"{'yes' if value else 'no':>{width}}"


def _whole(value: float, width: int) -> str:
    return f"{round(value):>{width}}"


_WRITERS: dict[Unit, Callable[[float, int], str]] = {
    "bytes": size,
    "bytes/s": rate,
    "s": age,
    "bool": _yes_no,
}


def _shower(
    unit: Unit, width: int, value: Callable[[ProcessSample, Children], Value]
) -> Callable[..., str]:
    """How to write a column's value in exactly its width."""
    write, nothing = _WRITERS.get(unit, _whole), f"{'–':>{width}}"

    def show_text(process: ProcessSample, children: Children) -> str:
        return fit(str(value(process, children) or "–"), width)

    def show(process: ProcessSample, children: Children) -> str:
        cell_value = value(process, children)
        if cell_value is None or isinstance(cell_value, str):
            return nothing
        text = write(cell_value, width)
        # An absurd value, but the column must keep its width: 1e+15.
        return text if len(text) == width else f"{cell_value:>{width}.0e}"

    return show_text if unit == "text" else show


def _columns() -> dict[str, ProcessColumn]:
    catalogue = {**PROCESS_METRICS, **PROCESS_STATIC, **TREE_TOTALS}
    columns: dict[str, ProcessColumn] = {}
    for key in (*DEFAULT, *(key for key in catalogue if key not in DEFAULT)):
        metric = catalogue[key]
        head = "LOADERS" if key == "loader" else metric.label
        letter, width, keep = FORMS.get(key, ("", 10 if metric.unit == "bytes/s" else 7, 1))
        width = max(width, len(head))
        value, is_text = _reader(key), metric.unit == "text"
        columns[key] = ProcessColumn(
            key,
            head,
            width,
            letter,
            _shower(metric.unit, width, value),
            value,
            keep,
            metric.definition,
            right=not is_text,
            rising=is_text or key in NUMBERED,
            flexible=key in ("command", "why"),
        )
    return columns


BY_VERDICT = "verdict"
"""The order that no column has: the processes of the selected GPU, then those of GPUs in trouble, each by memory."""
COLUMNS: dict[str, ProcessColumn] = _columns()
"""Every column by key: those of DEFAULT first, then the rest in the catalogue's order."""


def existing_columns(keys: Iterable[str]) -> tuple[str, ...]:
    """Return the keys that are columns, each once.

    In their order; DEFAULT when none is left.
    """
    return tuple(dict.fromkeys(key for key in keys if key in COLUMNS)) or DEFAULT


@lru_cache(maxsize=64)
def columns_for(width: int, chosen: tuple[str, ...] = DEFAULT) -> tuple[Placed, ...]:
    """The chosen columns that fit, in their order, with their places.

    Columns give way by rank, the last one first among equals, until at most three are left; the first flexible one
    (COMMAND, else WHY) takes what the others leave and keeps at least its width where there is room for it. COMMAND
    says which job it is: columns of the lowest ranks give way until it is READABLE.
    """
    fitting = [COLUMNS[key] for key in existing_columns(chosen)]
    widths = {c.key: c.width for c in fitting}
    if width < LEAST_STATES_WIDTH and "command" in widths:
        widths["loader"] = NARROW_LOADERS
    while len(fitting) > LEAST_COLUMNS:
        missing = sum(widths[column.key] + GUTTER for column in fitting) - width
        last = min(reversed(fitting), key=lambda column: column.keep)
        if last.keep <= DISPENSABLE and fitting[-1].key == "command":
            missing += READABLE - fitting[-1].width
        if missing <= 0:
            break
        fitting.remove(last)
    flexible = next((c for key in ("command", "why") for c in fitting if c.key == key), None)
    placed, begin = [], 0
    for column in fitting:
        wide = widths[column.key]
        if column is flexible:
            others = sum(widths[c.key] + GUTTER for c in fitting if c is not column)
            wide = max(1, width - others - (1 if column is fitting[-1] else GUTTER))
        placed.append(Placed(column, begin, wide))
        begin += wide + GUTTER
    return tuple(placed)


def column_at(x: int, width: int, chosen: tuple[str, ...] = DEFAULT) -> str | None:
    """Return the key of the column at a cell.

    None right of the last one.
    """
    for place in columns_for(width, chosen):
        if place.begin <= x < place.begin + place.width + GUTTER:
            return place.column.key
    return None


INTERPRETERS = ("python", "pypy")
WITH_VALUE = frozenset(("-X", "-W"))
"""Options of an interpreter that take the next word."""


@lru_cache(maxsize=512)
def job_words(command: str) -> str:
    """Return a command line as the job that it is.

    ``python train.py --lr 1``, ``python -m vllm.serve``; other programs by their name.
    """
    words = command.split()
    if not words:
        return command
    name, rest = _base(words[0]), words[1:]
    if not name.startswith(INTERPRETERS):
        return " ".join([name, *rest])
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c"):
        rest = rest[2:] if rest[0] in WITH_VALUE else rest[1:]
    script = [] if not rest else [rest[0] if rest[0].startswith("-") else _base(rest[0])]
    return " ".join([name.rstrip("0123456789."), *script, *rest[1:]])


def _base(word: str) -> str:
    return word.rstrip("/").rsplit("/", 1)[-1]
