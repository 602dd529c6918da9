"""Parents of GPU processes that hand out their work: an inference server's front, a launcher.

A parent is not enough, or any shell would be blamed: a pipe or a socket must connect both, within one session.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from gputop.model.command_facts import BESIDE, why_words
from gputop.sources.processes.resolve.open_files import HeldInodes
from gputop.sources.processes.tree.process_table import ProcessTable
from gputop.sources.processes.tree.process_tree import ProcessPlace

HeldBy = Callable[[int], HeldInodes | None]
OtherEnd = Callable[[int], int | None]
"""The inode of the other end of a socket."""


def connected(feeder: HeldInodes, root: HeldInodes, peers: Collection[int]) -> bool:
    """Return whether data can pass from a feeder to a root.

    Their open pipes and sockets decide; ``peers`` are the other ends of the root's sockets.
    """
    pipes = feeder.writes & root.reads
    # Children of one parent share both ends of a queue; a pipeline connects stdout and stdin. A single end is no
    # evidence: multiprocessing leaves one with every child, to detect the parent's death.
    is_piped = pipes & feeder.reads - feeder.standard or pipes & feeder.standard & root.standard
    return bool(is_piped) or not feeder.sockets.isdisjoint(peers)


def find_parents(
    table: ProcessTable,
    trees: Mapping[int, ProcessPlace],
    roots: Iterable[int],
    holds: HeldBy,
    other_end: OtherEnd,
) -> dict[int, ProcessPlace]:
    """Return the parents, outside all trees, that are connected with one of ``roots``."""
    places: dict[int, ProcessPlace] = {}
    for root in roots:
        place = trees[root]
        parent = place.stat.ppid
        stat = table.get(parent)
        if (
            stat is None
            or parent in trees
            or parent in places
            or stat.session != place.stat.session
        ):
            continue
        mine, its = holds(root), holds(parent)
        if mine is None or its is None:
            continue
        peers = {peer for inode in mine.sockets if (peer := other_end(inode)) is not None}
        if connected(its, mine, peers):
            why = why_words(BESIDE, "its parent, connected by a pipe or a socket")
            places[parent] = ProcessPlace(
                stat, root, place.gpu, "helper", None, why, may_feed=True, rule=BESIDE
            )
    return places
