"""Alerts evaluated: conditions, tables, and when an alert fires. Time is explicit; nothing is run."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gputop.cli import main
from gputop.commands.config import problems
from gputop.diagnosis.types import Badge, GpuDiagnosis
from gputop.features.alerts.alert_table import Alert, AlertError, alerts_of, holds_on, parse
from gputop.features.alerts.evaluator import AlertEvaluator
from gputop.model.expression import ExpressionError
from gputop.model.snapshot import GpuSample, GpuStatic, Machine, Snapshot
from gputop.monitor import Frame, Monitor
from tests.support.examples import looks

T0 = 1_780_000_000.0
MACHINE = Machine("node-17")
HOT = "temp_c > 85"
VECTOR = str(Path(__file__).parents[2] / "vectors" / "busy_not_working_A.jsonl")


def sample(index: int = 0, **values: Any) -> GpuSample:
    return GpuSample(GpuStatic(index, f"GPU-{index}", "H100"), **values)


def diagnosis(
    index: int = 0, verdict: str = "working", state: Any = "working", *badges: str
) -> GpuDiagnosis:
    shown = tuple(Badge(badge, "red", badge, "") for badge in badges)
    return GpuDiagnosis(index, f"GPU-{index}", verdict, "green", "", "", state=state, badges=shown)


def alert(when: str = HOT, **fields: Any) -> Alert:
    (made,) = alerts_of([{"name": "hot", "when": when, **fields}])
    return made


class Watch:
    """An evaluator that is fed one GPU's temperature a second; None is not measured."""

    def __init__(self, made: Alert) -> None:
        self.evaluator = AlertEvaluator([made])
        self.alert = made
        self.t = T0

    def feed(
        self, *temperatures: float | None, step: float = 1.0, repeats: Any = ()
    ) -> list[float]:
        """The times of the firings."""
        fired = []
        for temperature in temperatures:
            snapshot = Snapshot(self.t, MACHINE, (sample(temp_c=temperature),), repeats=repeats)
            fired += [self.t - T0 for _ in self.evaluator.take(framed(snapshot, diagnosis()))]
            self.t += step
        return fired

    @property
    def holds(self) -> bool:
        return bool(self.evaluator.states(self.alert.name))


def framed(snapshot: Snapshot, *diagnoses: GpuDiagnosis) -> Frame:
    return replace(Monitor(charts=False).feed(snapshot), diagnoses=diagnoses)


def test_an_alert_on_a_badge_fires_at_once_and_any_other_after_a_minute() -> None:
    assert alert("badge:ecc or badge:xid").for_s == 0.0
    assert alert("badge:ecc or xid = 79").for_s == 60.0
    evaluator = AlertEvaluator([alert("badge:ecc")])
    shown = diagnosis(0, "working", "working", "ecc")
    (firing,) = evaluator.take(framed(Snapshot(T0, MACHINE, (sample(),)), shown))
    assert (firing.gpus, firing.uuids, firing.since) == ((0,), ("GPU-0",), T0)


def test_a_badge_about_another_gpu_fires_for_that_gpu_alone() -> None:
    evaluator = AlertEvaluator([alert("badge:straggler")])
    straggler, waits = (
        diagnosis(0, "working", "working", "straggler"),
        diagnosis(1, "working", "working", "straggler"),
    )
    waits = replace(waits, badges=(replace(waits.badges[0], level="info", about=0),))
    (firing,) = evaluator.take(
        framed(Snapshot(T0, MACHINE, (sample(), sample(index=1))), straggler, waits)
    )
    assert firing.gpus == (0,)


def test_the_gpus_of_one_tick_are_one_firing_and_each_gpu_has_a_silence_of_its_own() -> None:
    evaluator = AlertEvaluator([alert(**{"for": "0s"})])

    def fired(t: float, *temperatures: float) -> list[tuple[int, ...]]:
        gpus = tuple(sample(i, temp_c=temperature) for i, temperature in enumerate(temperatures))
        frame = framed(Snapshot(T0 + t, MACHINE, gpus), *(diagnosis(i) for i in range(len(gpus))))
        return [firing.gpus for firing in evaluator.take(frame)]

    assert fired(0, 90, 80, 90) == [(0, 2)]
    assert fired(1, 90, 90, 90) == [(1,)]
    assert fired(2, 90, 90, 90) == []


def test_an_unknown_value_neither_fires_nor_resolves() -> None:
    watch = Watch(alert(**{"for": "3s"}))
    assert watch.feed(90, None, None, 90) == [3.0], "shorter than a gap, it goes on"
    assert watch.feed(*[None] * 500) == [] and watch.holds
    assert watch.feed(80) == [] and not watch.holds
    assert Watch(alert(**{"for": "3s"})).feed(90, *[None] * 5, 90) == [], (
        "over a gap nobody knows that it held"
    )
    assert Watch(alert(**{"for": "3s"})).feed(*[90] * 20, repeats=("nvml",)) == [], (
        "repeated is not measured again"
    )
    unjudged = diagnosis(0, "collecting", "unmeasured")
    assert holds_on(parse("verdict:healthy"), sample(), unjudged) is None
    assert holds_on(parse("verdict:healthy or power_w > 5"), sample(power_w=9.0), unjudged) is True
    assert (
        holds_on(parse("verdict:healthy and power_w > 5"), sample(power_w=1.0), unjudged) is False
    )
    assert holds_on(parse("power_w > 5"), sample(), diagnosis()) is None


def test_a_clock_that_is_set_back_a_little_fires_nothing_twice_and_by_a_year_silences_nothing() -> (
    None
):
    watch = Watch(alert(again="1h", **{"for": "0s"}))
    assert watch.feed(90) == [0.0]
    watch.t = T0 - 2.0
    assert watch.feed(90, 90, 80, 90) == []
    watch.t = T0 - 365 * 86400
    assert len(watch.feed(90, 90)) == 1


@looks(15)
@given(
    st.lists(st.sampled_from([90.0, 80.0, None]), min_size=1, max_size=120),
    st.sampled_from([0.0, 2.0, 7.0]),
    st.sampled_from([1.0, 10.0, 50.0]),
)
def test_between_two_firings_there_is_the_silence_and_before_each_the_hold(
    temperatures: list[float | None], for_s: float, again_s: float
) -> None:
    fired = Watch(alert(again=again_s, **{"for": for_s})).feed(*temperatures)
    assert all(later - earlier >= again_s for earlier, later in pairwise(fired))
    for t in fired:
        assert temperatures[int(t)] == 90.0
        assert 80.0 not in temperatures[int(t - for_s) : int(t) + 1]


@pytest.mark.parametrize(
    ("when", "says", "column"),
    [
        ("tmp_c > 85", "did you mean temp_c?", 1), ("temp_c > 85 and badg:ecc", "did you mean badge?", 17),
        ("verdict:dataloader_wait", "did you mean dataloader_", 1), ("idle", "verdict:idle or state:idle", 1),
        ("ecc", "write badge:ecc", 1), ("temp_c", "temp_c > 50", 1), ("temp_c >", "needs a value", 9),
        ("temp_c > warm", "not a number", 10), ("mem_used_bytes > 10", "10 of what?", 18),
        ("badge:ecc or", "missing after or", 13), ("or badge:ecc", "missing before or", 1),
        ("badge:ecc and or badge:xid", "missing before or", 15), ("(badge:ecc)", "no field (badge:ecc)", 1),
        ("throttle_reasons > 0", "bit mask", 1), ("__import__('os')", "column", 1), ("x" * 401, "at most 400", 401),
    ],
)  # fmt: skip
def test_a_wrong_condition_is_refused_with_its_column_and_what_was_meant(
    when: str, says: str, column: int
) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(when)
    assert says in str(caught.value)
    assert caught.value.position + 1 == column


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ("!badge:ecc", True), ("!badge:thermal", False), ("badge:ecc,thermal", True),
        ("state:starved,idle_allocated", False), ("state != starved", True), ("!sm_active_pct < 20", None),
        ("TEMP_C > 85 AND badge:THERMAL", True), ("temp_c>85 badge:thermal", True), ("xid != 79 or temp_c == 90", True),
        ("badge:ecc and temp_c > 85 or badge:thermal", True), ("temp_c = 90.2", False),
    ],
)  # fmt: skip
def test_a_condition_negates_and_lists_alternatives_as_a_filter_does(
    when: str, holds: bool | None
) -> None:
    gpu = GpuSample(GpuStatic(0, "GPU-0", "H100"), temp_c=90.0)
    assert holds_on(parse(when), gpu, diagnosis(0, "working", "working", "thermal")) is holds


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("whn", "x", "did you mean when?"), ("name", "Hot Alert", "letters a-z"),
        ("when", "tmp_c > 1", "did you mean temp_c? (at column 1)"), ("for", "soon", "must be a time"),
        ("for", True, "for: must be a time"), ("again", "0s", "from 1s"), ("again", "90d", "to 30d"),
        ("run", "kubectl cordon token", "no shell takes one apart"), ("run", ["a", 3], "must be a program"),
        ("run", [], "must be a program"), ("run", ["a\0b"], "zero byte"), ("name", 3, "name: must be letters"),
        ("per", "gpu", "unknown field 'per'"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_refused_with_the_alert_and_no_secret(
    field: str, value: object, says: str
) -> None:
    table = {"name": "hot", "when": HOT, field: value}
    with pytest.raises(AlertError) as caught:
        alerts_of([table])
    assert says in str(caught.value)
    assert "token" not in str(caught.value)


def _file(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


TWO = (
    '[[alert]]\nname = "a"\nwhen = "badge:ecc"\n\n[[alert]]\nname = "a"\nwhen = "tmp_c > 1"\nrun = '
    '["x", "hunter2"]\n'
)


def test_check_names_each_wrong_alert_and_every_command_refuses_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = '[[alert]]\nwhen = "badge:ecc"\n[[alert]]\nname = "b"\nwhen = "badge:ecc"\nagain = 0\n'
    path = _file(tmp_path, TWO + more)
    found = [line.removeprefix(f"{path}: ") for line in problems(path)]
    assert [line.split(":")[0] for line in found] == ["alert a", "alert 3", "alert b"]
    assert main(["once", "--config", str(path)]) == 2
    assert "(at column 1)" in capsys.readouterr().err
    assert main(["config", "--config", str(_file(tmp_path, "alert = 3\n"))]) == 2
    assert "[[alert]]" in capsys.readouterr().err


def test_the_settings_that_are_printed_hold_no_argument(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '[[alert]]\nname = "a"\nwhen = "badge:ecc"\nfor = 5\nrun = ["curl", "-H", "hunter2"]\n'
    path = _file(tmp_path, text)
    for command in (["config"], ["alerts"]):
        assert main([*command, "--config", str(path)]) == 0
        printed = capsys.readouterr().out
        assert "ecc" in printed and "curl" in printed and "hunter2" not in printed
        if command == ["config"]:
            assert problems(_file(tmp_path, printed)) == []


def test_a_recording_says_what_would_have_fired_and_runs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trap = tmp_path / "ran"
    base = '[[alert]]\nname = "busy"\nwhen = "state:busy_not_working"\nfor = "10s"\n'
    path = str(_file(tmp_path, f'{base}run = ["touch", "{trap}", "--token", "hunter2"]\n'))
    assert main(["alerts", VECTOR, "--config", path]) == 1
    printed = capsys.readouterr().out
    assert "would run touch" in printed and "busy" in printed and "hunter2" not in printed
    assert main(["alerts", VECTOR, "--json", "--config", path]) == 1
    data = json.loads(capsys.readouterr().out)
    (fired,) = data["fired"]
    assert (fired["alert"], fired["gpu"], fired["environment"]["GPUTOP_GPUS"]) == ("busy", 0, "0")
    assert fired["t"] - fired["alert_since"] == pytest.approx(10.0, abs=1.0)
    assert not trap.exists()
    path = str(
        _file(tmp_path, '[[alert]]\nname = "cold"\nwhen = "temp_c < -5"\n'.replace("-5", "1"))
    )
    assert main(["alerts", VECTOR, "--config", path]) == 0
    assert main(["alerts", VECTOR, "--config", str(_file(tmp_path, ""))]) == 2
