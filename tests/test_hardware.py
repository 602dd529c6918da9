"""The hardware report: every table is printed, also where a step fails or no time is left."""

from __future__ import annotations

import pytest

from tests.hardware.__main__ import report
from tests.hardware.steps import SOURCES, Step, said, steps, two_helpers
from tests.nvperf.stand_in import Counters


def _breaks() -> str:
    raise OSError("no such device")


def test_a_step_that_fails_takes_no_other_with_it() -> None:
    text = report([Step("one", lambda: "1"), Step("two", _breaks), Step("three", lambda: "3")])
    assert "## one (ran" in text and "OSError: no such device" in text and "## three (ran" in text
    assert "left out" in report([Step("late", lambda: "x")], most_s=-1.0)


def test_a_program_that_is_not_here_or_hangs_is_told() -> None:
    with pytest.raises(RuntimeError, match="is not here"):
        said(["no-such-program"])
    with pytest.raises(RuntimeError, match="not done within"):
        said(["sleep", "5"], 0.1)


def test_every_source_is_proved() -> None:
    titles = [step.title for step in steps()]
    assert len(set(titles)) == len(titles) and {f"prove by {source}" for source in SOURCES} <= set(titles)


@pytest.mark.slow
def test_the_exclusive_lock_is_seen_and_freed(counters: Counters, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.hardware import steps as module

    monkeypatch.setattr(module, "HELPER", (*module.HELPER, "--lib", str(counters.libraries), "--interval-ms", "300"))
    first, second, third = two_helpers().splitlines()
    assert "'t': 's'" in first and "'busy'" in second and "'t': 's'" in third
