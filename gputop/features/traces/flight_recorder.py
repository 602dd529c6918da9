"""Dumps of PyTorch's flight recorder, one a rank: which collectives each rank has entered, and who did not come.

The recorder (torch/csrc/distributed/c10d/FlightRecorder.hpp) keeps the last collectives of a process and dumps them
when one hangs, as a pickle of plain containers or as JSON without stacks. A ring that is full has lost the oldest ones.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct, to_builtins

from gputop.features.traces.columns import TraceError
from gputop.model.quantity import clean_text, count
from gputop.output.document import Document, Items, Notes, Verdict
from gputop.system.given_file import open_regular
from gputop.system.plain_pickle import NotPlain, load_plain

LARGEST_DUMP = 64 << 20
"""Some thousand collectives with their stacks take a few megabytes."""
VERSION = "2."
_JSON_BEGIN = re.compile(rb'\s*\{\s*"(comm_lib_version|nccl_version|entries|pg_config|pg_status|version)"')
_RANK = re.compile(r"(\d+)(?:\.\w+)?$")
_NOT_OWN = re.compile(r"/(?:torch|site-packages|dist-packages)/|/lib/python3")
_MOST_FRAMES, _MOST_WORDS = 4, 200
_SAME_SIZES = ("all_reduce", "broadcast", "_all_gather_base", "_reduce_scatter_base")
"""Operations to which all ranks give as much; to others, such as all_to_all, they may give different sizes."""


class Entered(Struct, frozen=True):
    """A collective that a rank has entered: ``words`` are its operation and sizes, ``alike`` what must be the same on
    all ranks, ``frames`` where it was called, the innermost first."""

    group: str
    name: str
    seq: int
    words: str
    alike: str
    frames: tuple[str, ...]
    ended: bool


class RankDump(Struct, frozen=True):
    """One rank's dump. ``members`` are the ranks of each group by its name, as far as the file says. ``whole``: the
    ring has lost nothing yet."""

    path: str
    rank: int
    entered: tuple[Entered, ...]
    members: dict[str, tuple[int, ...]]
    whole: bool
    pairs: int
    """Operations between two ranks, which are numbered otherwise."""


def flight_dumps(paths: Sequence[str]) -> list[RankDump] | None:
    """The dumps that are named, or that a folder holds, by rank; None where the first file is none. Raises TraceError
    for what is no dump among dumps, and OSError."""
    files: list[str] = []
    for path in paths:
        inside = sorted(os.listdir(path)) if os.path.isdir(path) else None
        files += [path] if inside is None else [os.path.join(path, name) for name in inside if not name.startswith(".")]
    files = [path for path in files if os.path.isfile(path)]
    contents: list[tuple[str, dict[str, Any]]] = []
    for path in files:
        content = _content(path)
        if content is None and not contents:
            return None
        if content is None:
            raise TraceError(f"{path} is no flight recorder's dump, as the others are")
        contents.append((path, content))
    dumps = sorted((_dump(path, content) for path, content in contents), key=lambda dump: dump.rank)
    for before, dump in pairwise(dumps):
        if before.rank == dump.rank:
            raise TraceError(f"{before.path} and {dump.path} are both of rank {dump.rank}: give one dump a rank")
    if len(dumps) == 1:
        raise TraceError(f"{dumps[0].path}: one rank alone tells nothing: give the dumps of all ranks, or their folder")
    return dumps or None


def _content(path: str) -> dict[str, Any] | None:
    """What a dump holds; None for a file that is none."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > LARGEST_DUMP:
            return None
        begin = file.read(256)
        if not begin.startswith(b"\x80") and not _JSON_BEGIN.match(begin):
            return None
        text = b"" if begin.startswith(b"\x80") else begin + file.read()
    try:
        data = msgspec.json.decode(text) if text else load_plain(path)
    except NotPlain as error:
        raise TraceError(f"{path} {error}") from None
    except (msgspec.DecodeError, RecursionError):
        raise TraceError(f"{path} is damaged, or cut off: dump it again") from None
    if not isinstance(data, dict) or "traceEvents" in data or not isinstance(data.get("entries"), list):
        return None
    return data


def _dump(path: str, content: dict[str, Any]) -> RankDump:
    version, rank = content.get("version"), _RANK.search(os.path.basename(path))
    if not isinstance(version, str) or not version.startswith(VERSION):
        raise TraceError(f"{path} is a flight recorder's dump of version {_text(version)}, and {VERSION}x is known")
    if rank is None:
        raise TraceError(f"{path}: whose dump is it? its name must end with the rank, as in nccl_trace_rank_0")
    try:
        entries = [entry for entry in content["entries"] if not entry["is_p2p"]]
        entered = tuple(map(_entered, entries))
        whole = not content["entries"] or int(content["entries"][0]["record_id"]) == 0
        members = {_text(key): _ranks(of["ranks"]) for key, of in (content.get("pg_config") or {}).items()}
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise TraceError(f"{path} is not a dump that PyTorch writes ({type(error).__name__})") from None
    return RankDump(path, int(rank[1]), entered, members, whole, len(content["entries"]) - len(entries))


def _entered(entry: dict[str, Any]) -> Entered:
    name, description = entry["process_group"]
    label = _text(name) if not description or description == "undefined" else f"{_text(name)} ({_text(description)})"
    operation = _text(entry["profiling_name"]).rpartition(":")[2]
    sizes = ", ".join("×".join(str(int(side)) for side in size) or "scalar" for size in entry["input_sizes"])
    kinds = " ".join(sorted({_text(kind) for kind in entry["input_dtypes"]}))
    words = f"{operation} [{sizes}] {kinds}".rstrip()
    frames = [
        (_text(frame["filename"]), _text(frame["name"]), int(frame["line"])) for frame in entry.get("frames") or ()
    ]
    own = [frame for frame in frames if not _NOT_OWN.search(frame[0])] or frames
    calls = tuple(f"{os.path.basename(file)}:{line} {function}" for file, function, line in own[:_MOST_FRAMES])
    ended = entry["state"] == "completed" or bool(entry["retired"])
    alike = words if operation in _SAME_SIZES else operation
    return Entered(label, _text(name), int(entry["collective_seq_id"]), words, alike, calls, ended)


def _ranks(text: Any) -> tuple[int, ...]:
    """The ranks of a group as the recorder writes them, ``[0, 1]``; none where it does not know them."""
    ranks: Iterable[Any] = msgspec.json.decode(text) if isinstance(text, str) else text
    return tuple(sorted(int(rank) for rank in ranks))


def _text(value: object) -> str:
    return clean_text(str(value))[:_MOST_WORDS]


# Which rank did not come: of each process group the first collective that not all of its ranks have entered alike.
#
# Collectives of a group have the same numbers on all ranks, in the order in which each has entered them.

FLIGHT_SCHEMA = 1
LOOK = (
    "look at what that rank does instead: its stack (py-spy dump --pid), an error that only it has met, a branch or "
    "batches that it does not share"
)
SAME = "make all ranks enter the same collectives in the same order, with the same sizes"


class RankPlace(Struct, frozen=True):
    """Where a rank is: in which collective, or the last one that it has entered; None where it has entered none."""

    rank: int
    entered: Entered | None


class Parting(Struct, frozen=True):
    """The first collective of a group that its ranks have not all entered alike.

    ``came`` have entered what most have, ``others`` something else under the same number, ``missing`` nothing yet.
    """

    group: str
    seq: int
    words: str
    came: tuple[RankPlace, ...]
    others: tuple[RankPlace, ...]
    missing: tuple[RankPlace, ...]


class FlightReport(Struct, frozen=True):
    """Ranks whose dumps were given, where groups part, and collectives that all have entered and that do not end."""

    ranks: tuple[int, ...]
    partings: tuple[Parting, ...]
    waiting: tuple[str, ...]
    notes: tuple[str, ...]


def compare_ranks(dumps: Sequence[RankDump]) -> FlightReport:
    """Compare the dumps of a job's ranks, group by group."""
    groups: dict[str, dict[int, dict[int, Entered]]] = {}
    members: dict[str, set[int]] = {}
    for dump in dumps:
        for entry in dump.entered:
            groups.setdefault(entry.group, {}).setdefault(dump.rank, {})[entry.seq] = entry
            members.setdefault(entry.group, set()).update(dump.members.get(entry.name, ()))
    partings, waiting = [], []
    whole_job = {rank for group in members.values() for rank in group} | {dump.rank for dump in dumps}
    given = {dump.rank for dump in dumps}
    for group, by_rank in groups.items():
        # A group whose members no file names: those that have used it, and for the default group all ranks.
        of_group = members[group] or (given if "default_pg" in group else set(by_rank))
        parting = _parting(group, by_rank, sorted(of_group), dumps)
        if parting is not None:
            partings.append(parting)
            continue
        last = max(by_rank.values(), key=max)
        newest = last[max(last)]
        if any(not entries[max(entries)].ended for entries in by_rank.values()):
            waiting.append(
                f"{group}: all ranks have entered collective {newest.seq}, {newest.words}, and it does not end"
            )
    pairs = sum(dump.pairs for dump in dumps)
    notes = [f"{count(pairs, 'operation')} between two ranks (send, receive) not compared"] if pairs else []
    absent = sorted(whole_job - given)
    if absent:
        notes.append(f"no dump of rank {', '.join(map(str, absent))}: whether it came cannot be said")
    # A rank that did not come because it is in another group's collective waits there for the one that is the cause.
    partings.sort(
        key=lambda parting: (
            sum(place.entered is not None and not place.entered.ended for place in parting.missing),
            parting.group,
        )
    )
    return FlightReport(tuple(dump.rank for dump in dumps), tuple(partings), tuple(waiting), tuple(notes))


def _parting(
    group: str, by_rank: dict[int, dict[int, Entered]], members: list[int], dumps: Sequence[RankDump]
) -> Parting | None:
    # What a ring has lost cannot be compared: what is older than the oldest that each still holds, and ranks whose ring
    # may have held this group.
    known = {dump.rank for dump in dumps if dump.whole or dump.rank in by_rank}
    first = max(min(entries) for entries in by_rank.values())
    last = max(max(entries) for entries in by_rank.values())
    for seq in range(first, last + 1):
        at = {rank: entries[seq] for rank, entries in by_rank.items() if seq in entries}
        kinds = [entry.alike for entry in at.values()]
        most = max(kinds, key=kinds.count)
        missing = [rank for rank in members if rank in known and rank not in at]
        others = [rank for rank, entry in at.items() if entry.alike != most]
        if missing or others:
            return Parting(
                group, seq, next(entry.words for entry in at.values() if entry.alike == most),
                tuple(RankPlace(rank, entry) for rank, entry in at.items() if entry.alike == most),
                tuple(RankPlace(rank, at[rank]) for rank in others),
                tuple(RankPlace(dump.rank, _newest(dump)) for dump in dumps if dump.rank in missing),
            )  # fmt: skip
    return None


def _newest(dump: RankDump) -> Entered | None:
    """Where a rank is, over all groups: the newest collective that it is still in, else the last that it was in."""
    pending = [entry for entry in dump.entered if not entry.ended]
    return pending[-1] if pending else dump.entered[-1] if dump.entered else None


def flight_document(report: FlightReport) -> Document:
    """The report: a verdict for each group whose ranks part."""
    blocks = [_verdict(parting) for parting in report.partings]
    title = f"flight recorder of {count(len(report.ranks), 'rank')}"
    if not blocks:
        blocks = [Verdict("grey", "no rank is missing: the dumps hold the same collectives")]
    return Document(title, (*blocks, Items(report.waiting), Notes(report.notes)), (title,))


def _verdict(parting: Parting) -> Verdict:
    missing, others = ([place.rank for place in places] for places in (parting.missing, parting.others))
    head = f"{_named(missing)} DID NOT COME" if missing else f"{_named(others)} ENTERED ANOTHER COLLECTIVE"
    came = [place.rank for place in parting.came]
    lines = [f"{_named(came)} {'wait' if len(came) > 1 else 'waits'} in it{_from(parting.came[0].entered)}"]
    lines += [f"rank {place.rank} entered {_told(place.entered)}" for place in parting.others]
    for place in parting.missing:
        of = place.entered
        verb = "has entered no collective" if of is None else "was last in" if of.ended else "is in"
        where = "" if of is None else f" {of.group}, collective {of.seq}: {_told(of)}"
        lines.append(f"rank {place.rank} {verb}{where}")
    sentence = f"{head}: group {parting.group}, collective {parting.seq}, {parting.words}"
    return Verdict("red", sentence, "", tuple(lines), LOOK if missing else SAME)


def _told(entered: Entered | None) -> str:
    return "" if entered is None else f"{entered.words}{_from(entered)}"


def _from(entered: Entered | None) -> str:
    return "" if entered is None or not entered.frames else f", from {' < '.join(entered.frames)}"


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def flight_data(report: FlightReport) -> dict[str, Any]:
    """As a JSON object."""
    return {"schema": FLIGHT_SCHEMA, "kind": "flight_recorder", **to_builtins(report)}
