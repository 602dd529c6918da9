"""Which rank did not come: of each process group the first collective that not all of its ranks have entered alike.

Collectives of a group have the same numbers on all ranks, in the order in which each has entered them. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, to_builtins

from gputop.features.traces.flight_recorder import Entered, RankDump
from gputop.model.quantity import count
from gputop.output.document import Document, Items, Notes, Verdict

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
    partings.sort(key=lambda parting: (sum(map(_is_waiting, parting.missing)), parting.group))
    return FlightReport(tuple(dump.rank for dump in dumps), tuple(partings), tuple(waiting), tuple(notes))


def _is_waiting(place: RankPlace) -> bool:
    return place.entered is not None and not place.entered.ended


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
