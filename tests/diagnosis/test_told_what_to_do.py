"""Wrong words get the right ones: what was meant is named, and what was done is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.cli import main
from gputop.features.alerts.alert_table import parse as parse_condition
from gputop.model.expression import ExpressionError
from gputop.paint.process_filter import parse as parse_filter


def test_an_alert_on_a_verdict_that_is_a_state_is_told_the_state() -> None:
    with pytest.raises(ExpressionError, match="state:starved is one"):
        parse_condition("verdict:starved")


def test_state_is_a_process_in_filters_and_a_gpu_in_alerts_and_each_tells_of_the_other() -> None:
    with pytest.raises(ExpressionError, match="in a filter a process's"):
        parse_condition("state:D")
    with pytest.raises(ExpressionError, match="of a GPU write verdict:starved"):
        parse_filter("state:starved")
    assert parse_filter("state:D")


def test_a_written_configuration_says_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.toml"
    assert main(["--config", str(path), "config", "--init"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{path}\n" and "commented out" in captured.err
