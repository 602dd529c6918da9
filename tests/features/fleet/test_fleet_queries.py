"""The query library: complete, in every generation of names, and each put into words that PromQL can have."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.features.fleet.deploy.questions import MODES, QUESTIONS
from gputop.features.fleet.deploy.rules_file import alerts, rules_yaml
from gputop.features.fleet.judge.gpu_state import FLEET_NOT_WORK
from gputop.features.fleet.judge.state_rules import CODES, IN_STATE
from gputop.features.fleet.promql import ALL_NAMES, Names, any_of, rule_scope
from gputop.model.prometheus_names import gpu_series
from tests.support.planted_alerts import PLANTED, planted_series, unit_tests_yaml


def test_every_query_says_what_it_means_and_what_to_do_in_every_names_that_can_answer() -> None:
    assert {query.mode for query in QUESTIONS.values()} == set(MODES)
    for query in QUESTIONS.values():
        assert len(query.meaning) > 20 and query.advice, query.id
        for names in ALL_NAMES:
            asked = query.promql(rule_scope(names, price=2.5))
            assert (
                (asked is None)
                == (names != "gputop" and query.dcgm is None)
                == (not query.is_answered(names))
            )
            if asked is not None:
                assert asked.count("(") == asked.count(")") and asked.count("{") == asked.count("}")
                assert ("DCGM_" in asked) <= (names != "gputop"), query.id
                assert ("gputop_" in asked) <= (names == "gputop"), query.id


def test_a_query_asks_for_no_series_of_ours_that_is_not_exported() -> None:
    page = Path(__file__).parents[3] / "gputop" / "features" / "export" / "metrics_page.py"
    exported = {series.name for series in gpu_series()} | set(
        re.findall(r"gputop_\w+", page.read_text())
    )
    exported |= {f"gputop_loader_{word}_ratio" for word in ("running", "queued", "disk", "network")}
    exported |= {
        f"gputop_step{of}_seconds_{part}" for of in ("", "_wait") for part in ("sum", "count")
    }
    for query in QUESTIONS.values():
        assert set(re.findall(r"\bgputop_\w+", query.promql(rule_scope()) or "")) <= exported, (
            query.id
        )


def test_a_silent_alert_differs_from_the_one_that_fires_in_numbers_alone_and_each_threshold_is_in_parentheses() -> (
    None
):
    for names in ALL_NAMES:
        told = rules_yaml(names)
        for query, alert in alerts(names):
            fires, silent = (
                planted_series(PLANTED[alert.name], names, fires=fires) for fires in (True, False)
            )
            assert fires.keys() == silent.keys() and fires != silent, (names, alert.name)
            if alert.when:
                assert f"){alert.when}" in told, (
                    "a threshold after an `and` would compare what stands there"
                )
            assert query.advice in told.replace("''", "'")


def test_the_selection_is_in_every_series_and_a_window_holds_eight_scrapes() -> None:
    for names in ALL_NAMES:
        for query in QUESTIONS.values():
            asked = query.promql(rule_scope(names, 'cluster="a"')) or ""
            series = re.findall(r"\b(?:gputop_|DCGM_)[A-Za-z_]+|\bup\b|\bgputop:[a-z:_]+", asked)
            assert asked.count('cluster="a"') == len(series), query.id
    assert rule_scope(scrape_s=15.0).of_jobs("sm").count("[2m]") == 1
    assert rule_scope(scrape_s=60.0).mean("sm", 60.0).count("[8m]") == 1
    assert rule_scope(scrape_s=1.0).mean("sm").count("[5m]") == 1


def test_a_matcher_of_any_values_matches_them_and_nothing_else_whatever_they_hold() -> None:
    values = ['a"} or up{x="', "c.*", "d\\", "e\nf", "g|h", "(", "[a]{2}$^"]
    label, _, quoted = any_of("instance", values).partition("=~")
    # A string of PromQL has the escapes of JSON's, as far as these go.
    pattern = re.compile(json.loads(quoted))
    assert label == "instance" and all(pattern.fullmatch(value) for value in values)
    assert not any(pattern.fullmatch(value) for value in ("", "cxx", "g", "aa", 'a"'))


def test_from_starved_on_every_state_but_one_has_idle_time_that_is_lost() -> None:
    lost = {
        state for state, code in CODES.items() if code >= CODES["starved"] and state != "unmeasured"
    }
    assert lost == {*FLEET_NOT_WORK} - {"busy_not_working"}


def test_units_are_those_of_the_base_whoever_exports() -> None:
    legacy = rule_scope("legacy")
    assert "/ 100" in legacy.gpu("util") and "* 1048576" in legacy.gpu("memory")
    assert "/ 1000" in legacy.gpu("energy", "increase", 3600.0)
    assert "> bool 1.5" in rule_scope("4.9").gpu("util"), "a ratio's name may carry percent"


def test_a_query_is_printed_with_its_meaning_a_price_alone_if_given_and_an_unknown_one_with_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert QUESTIONS["cost_no_work"].promql(rule_scope()) is None
    for words, status, says in (
        ("gap --names 4.9", 0, ("DCGM_FI_PROF_SM_UTIL_RATIO", "→")), ("cost_no_work", 0, ("--price",)),
        ("cost_no_work --price 2.5", 0, ("* 2.5",)), ("", 0, [f"# {id}: " for id in QUESTIONS]),
        ("gapp", 2, ("did you mean gap?",)),
    ):  # fmt: skip
        assert main(["fleet", "queries", *words.split()]) == status
        text = "".join(capsys.readouterr())
        assert all(part in text for part in says)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_an_hour_of_recorded_minutes_is_sixty_of_them_whenever_it_is_asked_for(
    tmp_path: Path,
) -> None:
    """Engines before Prometheus 3 count the samples on both edges of a window."""
    hour = QUESTIONS["hours_total"].promql(rule_scope("legacy"))
    assert hour is not None
    told = {
        "series": f'{IN_STATE}{{names="legacy",cluster="a",state="working"}}',
        "values": "5x180",
    }
    asked = [
        {"expr": hour, "eval_time": at, "exp_samples": [{"value": 5, "labels": '{cluster="a"}'}]}
        for at in ("2h", "2h1s", "2h30s", "2h59s")
    ]
    tested = {"tests": [{"interval": "1m", "input_series": [told], "promql_expr_test": asked}]}
    (tmp_path / "hours.yml").write_text(json.dumps(tested))
    done = subprocess.run(
        ["promtool", "test", "rules", "hours.yml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
@pytest.mark.parametrize(
    "names",
    ["gputop", *(pytest.param(names, marks=pytest.mark.weekly) for names in ("legacy", "4.9"))],
)
def test_every_alert_fires_in_its_world_and_is_silent_in_the_other(
    names: Names, tmp_path: Path
) -> None:
    (tmp_path / "gputop.rules.yml").write_text(rules_yaml(names))
    (tmp_path / "gputop.rules.test.yml").write_text(unit_tests_yaml(names, "gputop.rules.yml"))
    assert len(list(alerts(names))) >= 10
    for words in (
        ["check", "rules", "--lint=all", "gputop.rules.yml"],
        ["test", "rules", "gputop.rules.test.yml"],
    ):
        done = subprocess.run(
            ["promtool", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
