"""Alerts judged: conditions, tables, and when one fires and is resolved. Time is explicit; nothing is run."""

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
from gputop.commands.config import ConfigWatch, problems
from gputop.diagnosis.types import Badge, GpuDiagnosis
from gputop.features.alerts.alert_table import Alert, AlertError, alerts_of, ids, keys, parse
from gputop.features.alerts.firing import Judge
from gputop.model.expression import ExpressionError
from gputop.model.snapshot import GpuSample, GpuStatic, Machine, Snapshot
from tests.support.examples import any_text, looks

T0 = 1_780_000_000.0
MACHINE = Machine("node-17")
HOT = "temp_c > 85"
VECTOR = str(Path(__file__).parents[2] / "vectors" / "busy_not_working_A.jsonl")


def sample(index: int = 0, **values: Any) -> GpuSample:
    return GpuSample(GpuStatic(index, f"GPU-{index}", "H100"), **values)


def diagnosis(index: int = 0, verdict: str = "working", state: Any = "working", *badges: str) -> GpuDiagnosis:
    shown = tuple(Badge(badge, "red", badge, "") for badge in badges)
    return GpuDiagnosis(index, f"GPU-{index}", verdict, "green", "", "", state=state, badges=shown)


def alert(when: str = HOT, **fields: Any) -> Alert:
    (made,) = alerts_of([{"name": "hot", "when": when, **fields}])
    return made


class Watch:
    """A judge that is fed one GPU's temperature a second; None is not measured."""

    def __init__(self, made: Alert, fired: dict[tuple[str, str], float] | None = None) -> None:
        self.judge = Judge([made], fired)
        self.t = T0

    def feed(self, *temperatures: float | None, step: float = 1.0, repeats: Any = ()) -> list[tuple[str, float]]:
        found = []
        for temperature in temperatures:
            snapshot = Snapshot(self.t, MACHINE, (sample(temp_c=temperature),), repeats=repeats)
            found += [(change.kind, self.t - T0) for change in self.judge.take(snapshot, [diagnosis()])]
            self.t += step
        return found


def test_an_alert_fires_once_its_condition_has_held_and_is_resolved_when_it_no_longer_does() -> None:
    watch = Watch(alert(**{"for": "3s"}))
    assert watch.feed(90, 90, 80, 90, 90, 90) == [], "a hold that was broken begins anew"
    assert watch.feed(90, 90, 90) == [("fired", 6.0)]
    assert watch.feed(80, 80) == [("resolved", 9.0)]
    assert watch.feed(*[90] * 3595) == [], "silent for an hour after it fired"
    assert watch.feed(90, 90) == [("fired", 3606.0)]


def test_an_alert_on_a_badge_fires_at_once_and_any_other_after_a_minute() -> None:
    assert alert("badge:ecc or xid").for_s == 0.0
    assert alert("badge:ecc or xid = 79").for_s == 60.0
    judge = Judge([alert("ecc")])
    shown = diagnosis(0, "working", "working", "ecc")
    (change,) = judge.take(Snapshot(T0, MACHINE, (sample(),)), [shown])
    assert (change.kind, change.gpus, change.uuids, change.since) == ("fired", (0,), ("GPU-0",), T0)


def test_a_badge_about_another_gpu_fires_for_that_gpu_alone() -> None:
    judge = Judge([alert("badge:straggler")])
    straggler, waits = diagnosis(0, "working", "working", "straggler"), diagnosis(1, "working", "working", "straggler")
    waits = replace(waits, badges=(replace(waits.badges[0], level="info", about=0),))
    (change,) = judge.take(Snapshot(T0, MACHINE, (sample(), sample(index=1))), [straggler, waits])
    assert (change.kind, change.gpus) == ("fired", (0,))


def test_what_is_not_known_neither_fires_nor_resolves() -> None:
    watch = Watch(alert(**{"for": "3s"}))
    assert watch.feed(90, None, None, 90) == [("fired", 3.0)], "shorter than a gap, it goes on"
    assert watch.feed(*[None] * 500) == []
    assert watch.feed(80) == [("resolved", 504.0)]
    assert Watch(alert(**{"for": "3s"})).feed(90, *[None] * 5, 90) == [], "over a gap nobody knows that it held"
    assert Watch(alert(**{"for": "3s"})).feed(*[90] * 20, repeats=("nvml",)) == [], "shown again is not measured again"
    unjudged = diagnosis(0, "collecting", "unmeasured")
    assert parse("verdict:healthy").holds(sample(), unjudged) is None
    assert parse("verdict:healthy or power_w > 5").holds(sample(power_w=9.0), unjudged) is True
    assert parse("verdict:healthy and power_w > 5").holds(sample(power_w=1.0), unjudged) is False
    assert parse("power_w > 5").holds(sample(), diagnosis()) is None


def test_a_silence_survives_a_restart_a_repeat_and_a_clock_that_is_set_back() -> None:
    made, place = alert(again="1h", **{"for": "0s"}), ("hot", "GPU-0")
    assert Watch(made, {place: T0 - 100}).feed(90, 90) == []
    assert Watch(made, {place: T0 - 3700}).feed(90, 90) == [("fired", 0.0)]
    assert Watch(made, {place: T0 + 5 * 86400}).feed(90) == [("fired", 0.0)], "a time to come silences nobody for days"
    watch = Watch(made)
    assert watch.feed(90) == [("fired", 0.0)]
    watch.t = T0 - 2.0
    assert watch.feed(90, 90, 80, 90) == [("resolved", 0.0)]


@looks(15)
@given(
    st.lists(st.sampled_from([90.0, 80.0, None]), min_size=1, max_size=120),
    st.sampled_from([0.0, 2.0, 7.0]),
    st.sampled_from([1.0, 10.0, 50.0]),
)
def test_between_two_firings_there_is_the_silence_and_before_each_the_hold(
    temperatures: list[float | None], for_s: float, again_s: float
) -> None:
    watch = Watch(alert(again=again_s, **{"for": for_s}))
    changes = watch.feed(*temperatures)
    fired = [t for kind, t in changes if kind == "fired"]
    assert all(later - earlier >= again_s for earlier, later in pairwise(fired))
    for t in fired:
        assert temperatures[int(t)] == 90.0
        assert 80.0 not in temperatures[int(t - for_s) : int(t) + 1]
    assert all(temperatures[int(t)] == 80.0 for kind, t in changes if kind == "resolved")


def test_the_memory_of_gpus_that_come_and_go_is_bounded() -> None:
    judge = Judge([alert(**{"for": "0s"})])
    for tick in range(600):
        one = GpuSample(GpuStatic(0, f"MIG-{tick}", "H100"), temp_c=90.0)
        judge.take(Snapshot(T0 + tick, MACHINE, (one,)), [diagnosis()])
    assert len(judge.fired) <= 257


@pytest.mark.parametrize(
    ("when", "says", "column"),
    [
        ("tmp_c > 85", "did you mean temp_c?", 1),
        ("temp_c > 85 and badg:ecc", "did you mean badge?", 17),
        ("verdict:dataloader_wait", "did you mean dataloader_", 1),
        ("idle", "verdict:idle or state:idle", 1),
        ("temp_c", "temp_c > 50", 7),
        ("temp_c >", "needs a value", 9),
        ("temp_c > warm", "not a number", 10),
        ("mem_used_bytes > 10", "10 of what?", 18),
        ("temp_c > 85 power_w > 3", "'and' or 'or' is missing", 13),
        ("ecc or", "is missing", 7),
        ("", "is missing", 1),
        ("(ecc)", "stands where", 1),
        ("throttle_reasons > 0", "bit mask", 1),
        ("__import__('os')", "column", 1),
        ("x" * 401, "at most 400", 401),
    ],
)
def test_a_wrong_condition_is_refused_with_its_column_and_what_was_meant(when: str, says: str, column: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(when)
    assert says in str(caught.value)
    assert caught.value.position + 1 == column


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ("!badge:ecc", True),
        ("!badge:thermal", False),
        ("badge:ecc,thermal", True),
        ("state:starved,idle_allocated", False),
        ("state != starved", True),
        ("!sm_active_pct < 20", None),
        ("TEMP_C > 85 AND THERMAL", True),
        ("xid != 79 or temp_c == 90", True),
        ("temp_c = 90.2", False),
    ],
)
def test_a_condition_negates_and_lists_alternatives_as_a_filter_does(when: str, holds: bool | None) -> None:
    gpu = GpuSample(GpuStatic(0, "GPU-0", "H100"), temp_c=90.0)
    assert parse(when).holds(gpu, diagnosis(0, "working", "working", "thermal")) is holds


def test_a_condition_may_name_a_verdict_that_no_longer_occurs_and_is_told_so() -> None:
    for text in ("low_occupancy", "verdict:low_occupancy and util_pct > 50"):
        condition = parse(text)
        assert condition.retired == ("low_occupancy",) and "no longer occurs" in condition.retired_words
    assert parse("verdict:healthy").retired == () and parse("verdict:healthy").retired_words == ""
    assert "low_occupancy" not in ids()["verdict"]


def test_every_id_and_value_that_the_help_lists_can_be_asked_for() -> None:
    for kind, names in ids().items():
        assert all(parse(f"{kind}:{name}").expression for name in names)
    full = dict.fromkeys(GpuSample.__struct_fields__, 1)
    for key, metric in keys().items():
        number = {"bytes": "1G", "bytes/s": "1G", "bool": "yes", "s": "5m"}.get(metric.unit, "1")
        (term,) = parse(f"{key} >= {number}").expression.terms
        assert key == "gap_pct" or term.field in full


@looks(15)
@given(
    any_text(60)
    | st.lists(st.sampled_from(["ecc", "and", "or", "temp_c", ">", "<", "=", "85", "idle", "badge:", "%", "10G"])).map(
        " ".join
    )
)
def test_any_text_is_a_condition_or_is_refused_in_one_line(text: str) -> None:
    try:
        assert parse(text).expression
    except ExpressionError as error:
        assert "\n" not in str(error) or "\n" in text


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("whn", "x", "did you mean when?"),
        ("name", "Hot Alert", "a-z, 0-9"),
        (
            "when",
            "tmp_c > 1",
            "did you mean temp_c? (at column 1)",
        ),
        ("for", "soon", "must be a time"),
        ("for", True, "must be a time"),
        ("again", "0s", "from 1s"),
        ("again", "90d", "to 30d"),
        ("run", "kubectl cordon {host}", "no shell"),
        ("run", ["kubectl", "cordon", "{hots}"], "did you mean host?"),
        ("run", ["{host}"], "must not be a placeholder"),
        ("run", [], "list of texts"),
        ("run", ["a\0b"], "zero byte"),
        ("notify", "slack://token", "apprise"),
        ("notify_file", "slack", "apprise"),
        ("per", "gpus", "one of gpu, job, node"),
        ("gpus", "all", "acts on one GPU at a time"),
    ],
)
def test_a_wrong_field_is_refused_with_the_alert_and_no_secret(field: str, value: object, says: str) -> None:
    table = {"name": "hot", "when": HOT, field: value}
    with pytest.raises(AlertError) as caught:
        alerts_of([table])
    assert says in str(caught.value)
    assert "token" not in str(caught.value)


def _file(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


TWO = '[[alert]]\nname = "a"\nwhen = "ecc"\n\n[[alert]]\nname = "a"\nwhen = "tmp_c > 1"\nrun = ["x", "hunter2"]\n'


def test_check_names_the_line_of_each_alert_and_every_command_refuses_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _file(tmp_path, TWO + '[[alert]]\nwhen = "ecc"\n[[alert]]\nname = "b"\nwhen = "ecc"\nagain = 0\n')
    found = [line.removeprefix(f"{path}:") for line in problems(path)]
    assert [line.split(":")[0] for line in found] == ["7", "9", "14"]
    assert main(["once", "--config", str(path)]) == 2
    assert "(at column 1)" in capsys.readouterr().err
    assert main(["config", "--config", str(_file(tmp_path, "alert = 3\n"))]) == 2
    assert "[[alert]]" in capsys.readouterr().err


def test_the_settings_that_are_printed_hold_no_argument(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '[[alert]]\nname = "a"\nwhen = "ecc"\nfor = 5\nrun = ["curl", "-H", "hunter2"]\n'
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
    path = str(_file(tmp_path, f'{base}run = ["touch", "{trap}", "--token", "hunter2", "→ {{gpu}}"]\n'))
    assert main(["alerts", VECTOR, "--config", path]) == 1
    printed = capsys.readouterr().out
    assert "would run: touch" in printed and "busy" in printed and "hunter2" not in printed
    assert main(["--ascii", "alerts", VECTOR, "--config", path]) == 1
    assert "→ 0" in printed and "=> 0" in capsys.readouterr().out
    assert main(["alerts", VECTOR, "--json", "--config", path]) == 1
    data = json.loads(capsys.readouterr().out)
    (fired,) = data["fired"]
    assert (fired["alert"], fired["gpu"], fired["until"]) == ("busy", 0, None)
    assert fired["t"] - fired["since"] == pytest.approx(10.0, abs=1.0)
    assert data["begin"] < fired["since"] < fired["t"] < data["end"]
    assert not trap.exists()
    path = str(_file(tmp_path, '[[alert]]\nname = "cold"\nwhen = "temp_c < -5"\n'.replace("-5", "1")))
    assert main(["alerts", VECTOR, "--config", path]) == 0
    assert main(["alerts", VECTOR, "--config", str(_file(tmp_path, ""))]) == 2


def test_a_changed_file_leaves_the_alerts_of_the_start_in_force_and_says_so(tmp_path: Path) -> None:
    path = _file(tmp_path, '[[alert]]\nname = "a"\nwhen = "ecc"\n')
    watch = ConfigWatch(str(path), {}, {}, every_s=1.0, alerts=({"name": "a", "when": "ecc"},))
    _file(tmp_path, '[[alert]]\nname = "a"\nwhen = "ecc"\nrun = ["touch", "x"]\n')
    reload = watch.poll(1.0)
    assert reload is not None and any("those of the start" in text for text in reload.messages)
