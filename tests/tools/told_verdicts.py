"""``python -m tests.tools.told_verdicts``: write down what is told of known pasts, or compare two such files.

``--write FILE [RECORDING…]`` feeds each recording of tests/vectors, tests/telemetry and
tests/inputs, each scene of the demo and the recordings named, and writes a JSON line for each GPU
and each change of its diagnosis: the second, and all that JSON tells. ``--compare OLD NEW`` lists
the fields that differ, with their number and an example. Run the first with both commits:

    git worktree add --detach /tmp/before HEAD~1
    (cd /tmp/before && python -m tests.tools.told_verdicts --write /tmp/before.jsonl)
    python -m tests.tools.told_verdicts --write /tmp/now.jsonl
    python -m tests.tools.told_verdicts --compare /tmp/before.jsonl /tmp/now.jsonl
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from gputop.diagnosis.verdict.diagnosis_data import verdict_data
from gputop.model.snapshot import Snapshot
from gputop.monitor import Monitor
from gputop.recording.reader import read_snapshots
from gputop.sources.simulation.scenarios import SCENARIOS
from gputop.sources.simulation.simulated import SimulatedSource

FOLDERS = ("vectors", "telemetry", "inputs")
SCENE_S = 150.0
SCENE_END = 1_780_000_000.0
GROWING = frozenset({"lasted_s", "charged_s", "window_s", "n"})
"""Fields that change with each sample, which alone make no line."""

Told = dict[str, object]


def pasts(more: Iterable[str]) -> Iterator[tuple[str, Iterable[Snapshot]]]:
    """Yield each known past with its name."""
    tests = Path(__file__).parents[1]
    for folder in FOLDERS:
        for path in sorted((tests / folder).glob("*.jsonl*")):
            yield f"{folder}/{path.name}", read_snapshots(str(path))
    for name in SCENARIOS:
        source = SimulatedSource(name, clock=lambda: SCENE_END)
        yield f"demo {name}", source.past(SCENE_S)
    for name in more:
        yield Path(name).name, read_snapshots(name)


def changes(snapshots: Iterable[Snapshot]) -> Iterator[Told]:
    """Yield what is told of each GPU whenever more than its durations has changed."""
    monitor = Monitor(charts=False)
    before: dict[int, Told] = {}
    begin: float | None = None
    for snapshot in snapshots:
        frame = monitor.feed(snapshot)
        if begin is None:
            begin = snapshot.t
        for index, diagnosis in enumerate(frame.diagnoses):
            told = json.loads(json.dumps(verdict_data(diagnosis)))
            lasting = {key: value for key, value in told.items() if key not in GROWING}
            if before.get(index) != lasting:
                before[index] = lasting
                yield {"gpu": index, "second": round(snapshot.t - begin, 3), **told}


def write(path: str, more: Iterable[str]) -> None:
    """Write what is told of all pasts."""
    with open(path, "w") as file:
        for name, snapshots in pasts(more):
            for told in changes(snapshots):
                file.write(json.dumps({"past": name, **told}) + "\n")


def _read(path: str) -> dict[tuple[object, ...], Told]:
    lines = map(json.loads, Path(path).read_text().splitlines())
    return {(line["past"], line["gpu"], line["second"]): line for line in lines}


def differences(old: str, new: str) -> dict[str, list[str]]:
    """Return the examples of each field that differs, by its name."""
    before, now = _read(old), _read(new)
    found: dict[str, list[str]] = defaultdict(list)
    for key in sorted(before.keys() | now.keys(), key=str):
        place = f"{key[0]}, GPU {key[1]}, second {key[2]}"
        if key not in before or key not in now:
            found["changes at another second"].append(place)
            continue
        for field in sorted(before[key].keys() | now[key].keys()):
            was, became = before[key].get(field), now[key].get(field)
            if was != became:
                found[field].append(f"{place}: {was!r} -> {became!r}")
    return dict(found)


def main() -> int:
    """Write or compare; 1 where something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.told_verdicts")
    parser.add_argument("--write", metavar="FILE")
    parser.add_argument("--compare", nargs=2, metavar=("OLD", "NEW"))
    parser.add_argument("--examples", type=int, default=5, help="examples of each field")
    parser.add_argument("recordings", nargs="*", metavar="RECORDING")
    options = parser.parse_args()
    if options.write:
        write(options.write, options.recordings)
    if not options.compare:
        return 0
    found = differences(*options.compare)
    for field, places in found.items():
        print(f"{field}: {len(places)}")
        for place in places[: options.examples]:
            print(f"    {place}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
