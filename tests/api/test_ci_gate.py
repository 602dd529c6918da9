"""The gate of docs/api.md, run as it stands there on machines that are played."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gputop
from gputop.model.snapshot import Snapshot
from gputop.monitor import Frame, Monitor
from tests.support.scenes import gpu, snap, train

PAGE = (Path(__file__).parents[2] / "docs/api.md").read_text()
_FOUND = re.search(r"^## A gate in CI\n.*?```python\n(.*?)```", PAGE, re.M | re.S)
assert _FOUND is not None
GATE = compile(_FOUND[1], "docs/api.md", "exec")
MOST_S = 60.0


class Played:
    """Frames of a machine, one a second of a clock that the gate reads as well."""

    def __init__(self, moment: Callable[[int], Snapshot]) -> None:
        self._moment = moment
        self.second = 0

    def now(self) -> float:
        return float(self.second)

    def __enter__(self) -> Iterator[Frame]:
        return self._frames()

    def __exit__(self, *_: object) -> None:
        pass

    def _frames(self) -> Iterator[Frame]:
        monitor = Monitor(charts=False)
        while True:
            yield monitor.feed(self._moment(self.second))
            self.second += 1
            assert self.second < 2 * MOST_S, "the gate does not end"


def _run(monkeypatch: pytest.MonkeyPatch, moment: Callable[[int], Snapshot]) -> Played:
    played = Played(moment)
    monkeypatch.setattr(gputop, "snapshot", lambda: moment(0), raising=False)
    monkeypatch.setattr(gputop, "frames", lambda *_: played, raising=False)
    monkeypatch.setattr(time, "monotonic", played.now)
    return played


def _gate() -> None:
    exec(GATE, {})  # noqa: S102 — the page's own code


def _two(second: int, age_s: float = 3600.0, **values: Any) -> Snapshot:
    owners = [train(index, age_s=age_s + second) for index in (0, 1)]
    return snap(second, [gpu(index, **values) for index in (0, 1)], owners)


def test_the_gate_fails_on_a_node_whose_gpus_are_busy_and_do_not_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = _run(monkeypatch, lambda second: _two(second, util=86.0, sm=8.0))
    with pytest.raises(SystemExit) as ended:
        _gate()
    assert "small kernels" in str(ended.value.code) and "(1, " in str(ended.value.code)
    assert 5 <= played.second < 30


def test_the_gate_fails_on_one_broken_card_among_healthy_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def moment(second: int) -> Snapshot:
        cards = [gpu(0), gpu(1, remap_pending=True)]
        return snap(second, cards, [train(0), train(1)])

    _run(monkeypatch, moment)
    with pytest.raises(SystemExit, match="red"):
        _gate()


def test_the_gate_passes_on_a_healthy_node(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played = _run(monkeypatch, lambda second: _two(second))
    _gate()
    assert capsys.readouterr().out == "no GPU is in a red state\n"
    assert 5 <= played.second < 30


def test_the_gate_says_within_a_minute_that_a_starting_node_cannot_be_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = _run(monkeypatch, lambda second: _two(second, 0.0, util=0.0, sm=0.0))
    with pytest.raises(SystemExit) as ended:
        _gate()
    assert "nothing could be judged" in str(ended.value.code)
    assert "starting up" in str(ended.value.code)
    assert played.second <= MOST_S


def test_the_gate_ends_on_a_machine_of_which_no_gpu_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = _run(monkeypatch, lambda second: snap(second, ()))
    with pytest.raises(SystemExit, match="nothing could be judged"):
        _gate()
    assert played.second <= MOST_S


def test_the_gate_judges_the_others_where_one_gpu_cannot_be_judged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def moment(second: int) -> Snapshot:
        blind = gpu(1, util=None, sm=None, unavailable={"util_pct": "not supported"})
        return snap(second, [gpu(0), blind], [train(0)])

    _run(monkeypatch, moment)
    _gate()
    said = capsys.readouterr().out
    assert "GPU 1 is not judged" in said and said.endswith("no GPU is in a red state\n")
