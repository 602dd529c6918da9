"""``--format``: a line a GPU for status lines and prompts, with every key of ``--json`` and nothing else."""

from __future__ import annotations

import json

import pytest

from gputop.cli import main
from gputop.model.source import UsageError
from gputop.output import snapshot_data
from gputop.output.format_line import checked, formatted
from gputop.sources.one_reading import OneReading
from tests.support.frames import demo_frame


def test_values_stand_in_the_place_of_keys() -> None:
    template = "{index} {sm_active_pct}/{util_pct}"
    values = {"index": 3, "sm_active_pct": 8.04, "util_pct": 97.0}
    assert formatted(checked(template, values), values) == "3 8/97"
    assert formatted(checked("{gpu}", values), values) == "3", "columns and filters call it gpu"


def test_what_is_not_measured_is_said_and_never_zero() -> None:
    assert formatted("{sm_active_pct}", {"sm_active_pct": None}) == "n/a"


def test_doubled_braces_are_braces_and_nothing_is_evaluated() -> None:
    assert formatted(checked("{{{index}}}", ("index",)), {"index": 1}) == "{1}"
    for hostile in ("{index.__class__}", "{index!r}", "{index:>9}", "{0}", "{}", "{index[0]}"):
        with pytest.raises(UsageError):
            checked(hostile, ("index",))
    for broken in ("{index", "index}"):
        with pytest.raises(UsageError, match="single"):
            checked(broken, ("index",))


def test_a_value_cannot_send_anything_to_the_terminal() -> None:
    assert "\x1b" not in formatted("{name}", {"name": "H100\x1b[2J\n"})


def test_the_keys_of_a_line_are_those_of_the_json_object() -> None:
    frame = demo_frame()
    data = {**snapshot_data.once_data(frame.snapshot), **OneReading(frame.snapshot).data()}
    (first, *_) = snapshot_data.line_values(data)
    assert set(first) == set(snapshot_data.LINE_KEYS)
    assert set(data["gpus"][0]) | (set(data) - {"host", "gpus"}) <= set(first)


def test_the_steps_that_a_job_announces_are_told_beside_its_verdict(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputop.command_line.demo_node.PAST_S", 60.0)
    main(["diagnose", "demo", "useful_work", "--json"])
    (pace,) = json.loads(capsys.readouterr().out)["steps"]
    assert (pace["gpu"], pace["rank"]) == (0, 0)
    assert (
        0.4 < pace["mean_s"] < 0.43
        and 150_000 < pace["tokens_per_s"] < 170_000
        and 40 < pace["mfu_pct"] < 46
    )
    main(["diagnose", "demo", "useful_work"])
    (told,) = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("  steps: ")
    ]
    assert "ms a step" in told and "tokens/s, MFU 4" in told


def test_a_key_that_is_not_there_exits_2_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["once", "--format", "{indexx} {util_pct}"]) == 2
    assert "did you mean index?" in capsys.readouterr().err
