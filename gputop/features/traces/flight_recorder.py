"""Dumps of PyTorch's flight recorder, one a rank, as records: which collectives each rank has entered, and from where.

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
from msgspec import Struct

from gputop.features.traces.columns import TraceError
from gputop.model.quantity import clean_text
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
