"""``--redact``: numbers in place of users, hosts, jobs, paths and UUIDs, everywhere, and the same verdicts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.engine import Diagnoser
from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.redaction import Redactor
from gputop.model.snapshot import Event, ProcessStatic, Snapshot
from gputop.output.snapshot_data import json_text, snapshot_data
from gputop.recording.reader import read_snapshots
from tests.support.private import assert_private, private_snapshot
from tests.support.scenes import gpu, snap, train

VECTORS = sorted((Path(__file__).parents[1] / "vectors").glob("*.jsonl"))


def test_no_text_of_a_snapshot_keeps_a_name() -> None:
    shown = Redactor().snapshot(private_snapshot())
    assert_private(repr(shown))
    assert_private(json_text(snapshot_data(shown)))


def test_numbers_are_the_same_each_time_and_tell_apart() -> None:
    redactor = Redactor()
    one, two = redactor.snapshot(private_snapshot()), redactor.snapshot(private_snapshot(1.0))
    assert one.machine == two.machine
    assert one.machine.hostname == "host1"
    assert [p.static.user for p in one.processes] == ["user1", "user2", "user1"]
    assert [g.static.uuid for g in one.gpus] == ["GPU-1", "MIG-2"]
    assert one.gpus[1].static.mig_parent == "GPU-1"
    assert one.processes[0].static == two.processes[0].static
    assert one.events[0].text.startswith(
        "user1 on host1 and host1: path1, pod uuid1, http://host2:9400"
    )


def test_what_is_no_name_stays() -> None:
    static = Redactor().snapshot(private_snapshot()).processes[0].static
    assert (static.command, static.name, static.job, static.loader, static.job_key) == (
        "python", "python", "slurm job1", "torch", "f00d",
    )  # fmt: skip
    redactor = Redactor()
    for text in (
        "needs root: /proc/PID/io belongs to another user", "efficiency 115 / 100", "420 MB/s read", "1/2 of it",
        "dcgm-exporter at localhost:9400", "http://localhost:9400/metrics", "run as root", "pip install 'x[deep]'",
    ):  # fmt: skip
        assert redactor.text(text) == text


def test_names_are_found_wherever_they_stand_alone_the_longest_first() -> None:
    draw = Random(7)

    def word(letters: str) -> str:
        return "".join(draw.choice(letters) for _ in range(draw.randint(3, 7)))

    for _ in range(60):
        names = {word("ab.-") for _ in range(12)} | {word("ab@.") for _ in range(3)}
        redactor = Redactor()
        numbers = {name: redactor.user(name) or "" for name in sorted(names)}
        longest_first = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        alone = re.compile(rf"(?<![\w-])(?:{longest_first})(?![\w-])")
        for _ in range(20):
            text = " ".join(
                word("abab.-") if draw.random() < 0.5 else draw.choice(sorted(names))
                for _ in range(5)
            )
            wanted = alone.sub(lambda match: numbers[match[0]], text)  # noqa: B023
            if not any("@" in name and name in text for name in names):
                assert redactor.text(text) == wanted, (names, text)
            else:
                assert alone.search(redactor.text(text)) is None, (names, text)


@pytest.mark.parametrize(
    ("user", "host"),
    [("qz", "k7"), ("a+b", "c.d*"), ("žó", "ñ"), ("o'neil", "[h]"), ("torch", "gpu")],
)
def test_short_names_and_names_with_signs_are_numbers_too_and_names_of_loaders_stay(
    user: str, host: str
) -> None:
    given = private_snapshot()
    text = f"{user} on {host}, /x/y: see {host}."
    rows = [replace(p, static=replace(p.static, user=user, why=text)) for p in given.processes]
    machine = replace(given.machine, hostname=host)
    redactor = Redactor()
    shown = redactor.snapshot(
        replace(
            given,
            machine=machine,
            processes=tuple(rows),
            notices=(text,),
            events=(Event(0.0, "mark", text),),
        )
    )
    for words in (*shown.notices, shown.events[0].text, shown.processes[0].static.why):
        assert re.sub(r"path\d", "path", words or "") == "user1 on host1, path: see host1."
    assert shown.machine.hostname == "host1" and shown.processes[0].static.loader == "torch"
    assert redactor.data({"note": [f"{user}, {host}"]}) == {"note": ["user1, host1"]}


def test_redacting_twice_changes_nothing() -> None:
    once = Redactor().snapshot(private_snapshot())
    assert Redactor().snapshot(once) == once


def _judged(snapshots: Iterable[Snapshot]) -> list[tuple[Any, ...]]:
    """What a diagnosis says, without the names that it may mention."""
    said: list[tuple[Any, ...]] = []
    diagnoser: Diagnoser | None = None
    for snapshot in snapshots:
        diagnoser = diagnoser or Diagnoser(snapshot.interval_s)
        said += map(_essence, diagnoser.diagnose(snapshot))
    return said


def _essence(d: GpuDiagnosis) -> tuple[Any, ...]:
    badges = [(badge.id, badge.level) for badge in d.badges]
    feeders = None if d.feeders is None else replace(d.feeders, name="")
    return (
        d.verdict,
        d.level,
        d.state,
        d.busy_not_working,
        d.confidence,
        d.attribution,
        feeders,
        badges,
        d.seconds,
    )


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.slow if n % 3 else (), id=path.stem)
        for n, path in enumerate(VECTORS)
    ],
)
def test_a_recorded_scenario_gets_the_same_verdicts_redacted(path: Path) -> None:
    frames = list(islice(read_snapshots(str(path)), 120))
    assert _judged(map(Redactor().snapshot, frames)) == _judged(frames)


def test_jobs_that_only_their_command_line_tells_apart_stay_apart() -> None:
    def ranks(redactor: Redactor | None) -> list[tuple[Any, ...]]:
        commands = ("python a.py", "python b.py", "python c.py", "python d.py")
        frames = []
        for t in range(100):
            gpus = [gpu(i, util=97.0, sm=sm) for i, sm in enumerate((91.0, 55.0, 53.0, 54.0))]
            rows = [
                train(i, static=ProcessStatic("ml", c, "python"), nccl=True)
                for i, c in enumerate(commands)
            ]
            frames.append(snap(t, gpus, rows))
        return _judged(frames if redactor is None else map(redactor.snapshot, frames))

    assert ranks(Redactor()) == ranks(None)
    assert not any("straggler" in dict(badges) for *_, badges, _ in ranks(Redactor()))
