"""Which source of SM activity is used when several could be: one at a time, the best that works, never two blended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from math import inf
from typing import Any

import pytest

from gputop.model.sm import SmLack
from gputop.sources.activity.choose_sources import SmReaders
from gputop.sources.activity.dcgm_exporter import Exporter
from gputop.sources.activity.fallback_chain import (
    PROBE_AGAIN_S,
    ChainState,
    FallbackChain,
    MeasuredActivity,
    SmReadFailed,
    Waiting,
)
from tests.support.scenes import gpu

Answer = MeasuredActivity | Waiting | SmReadFailed

COLLECTING = Waiting("collecting")
LOOKING = Waiting("asking", looking=True)


def sm(value: float) -> MeasuredActivity:
    return MeasuredActivity({"sm_active_pct": value}, {}, 1.0, 0.0)


def partly(dram: float = 20.0) -> MeasuredActivity:
    return MeasuredActivity({"dram_active_pct": dram}, {"sm_active_pct": "no SM here"}, 30.0, 0.0, "switch it on")


class SmReader:
    """Answers from a list, the last one for ever."""

    def __init__(self, name: str, *answers: Answer) -> None:
        self._name = name
        self._answers = list(answers)
        self.asked: list[float] = []

    @property
    def name(self) -> Any:
        return self._name

    def read(self, now: float) -> MeasuredActivity | Waiting:
        self.asked.append(now)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, SmReadFailed):
            raise answer
        return answer

    def close(self) -> None:
        self._answers.clear()


def seen(chain: FallbackChain, *times: float) -> list[tuple[str | None, float | None]]:
    """Source and SM activity at each time."""
    found = []
    for now in times:
        standing = chain.read(now)
        values = {} if standing.activity is None else standing.activity.values
        found.append((standing.source, values.get("sm_active_pct")))
    return found


def test_nothing_below_is_begun_while_it_is_looked_whether_a_source_exists() -> None:
    below = SmReader("dcgmi", sm(5.0))
    chain = FallbackChain([SmReader("dcgm-exporter", LOOKING, SmReadFailed("absent", True)), below])
    assert seen(chain, 1.0) == [(None, None)]
    assert below.asked == []
    assert seen(chain, 2.0) == [("dcgmi", 5.0)]


def test_from_one_source_to_the_next_is_one_step_although_the_next_must_first_be_found() -> None:
    failed = SmReadFailed("GPM: timed out")
    chain = FallbackChain([SmReader("gpm", sm(1.0), failed), SmReader("dcgm-exporter", LOOKING, sm(5.0))])
    assert seen(chain, 0, 1, 2, 3, 4) == [("gpm", 1.0), *[("gpm", None)] * 3, ("dcgm-exporter", 5.0)]


def test_a_source_that_never_gave_a_value_is_left_even_for_one_that_must_first_be_found() -> None:
    chain = FallbackChain(
        [SmReader("gpm", COLLECTING, SmReadFailed("no number")), SmReader("dcgm-exporter", LOOKING, sm(5.0))]
    )
    assert seen(chain, 0, 1, 2) == [("gpm", None), (None, None), ("dcgm-exporter", 5.0)]


def test_a_source_that_served_once_is_not_waited_for_when_it_is_needed_again() -> None:
    failed = SmReadFailed("failed")
    above = SmReader("gpm", failed, sm(1.0), failed)
    chain = FallbackChain([above, SmReader("dcgm-exporter", sm(5.0), failed)])
    assert seen(chain, 0, 1, 2, 3, 4) == [("dcgm-exporter", 5.0), ("gpm", 1.0), *[("gpm", None)] * 2, (None, None)]


def test_a_source_below_is_not_touched_while_the_one_above_collects_for_the_first_time() -> None:
    below = SmReader("dcgm-exporter", sm(5.0))
    assert seen(FallbackChain([SmReader("gpm", COLLECTING, sm(1.0)), below]), 0.0, 1.0) == [("gpm", None), ("gpm", 1.0)]
    assert below.asked == []


def test_a_source_is_made_once_when_those_above_it_have_failed() -> None:
    made: list[str] = []

    def sm_readers() -> Iterator[SmReader]:
        for name, *answers in (("gpm", COLLECTING, sm(1.0), SmReadFailed("gone", True)), ("dcgm-exporter", sm(5.0))):
            made.append(str(name))
            yield SmReader(str(name), *answers)

    chain = FallbackChain(sm_readers())
    assert seen(chain, 0, 1) == [("gpm", None), ("gpm", 1.0)]
    assert made == ["gpm"]
    assert seen(chain, 2, 3) == [("dcgm-exporter", 5.0)] * 2
    assert made == ["gpm", "dcgm-exporter"]
    chain.close()


def test_an_exporter_that_is_needed_only_after_the_end_fetches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that reads the GPUs may be within a reading when all is stopped."""
    fetched: list[float] = []
    monkeypatch.setattr(Exporter, "scrape", lambda _self, now: fetched.append(now))
    monkeypatch.setattr(Exporter, "wait_s", lambda _self, now: 3600.0)
    sm_readers, others = SmReaders(1.0, "/proc"), set(threading.enumerate())
    sm_readers.stop()
    (sm_reader,) = sm_readers.of(lambda: gpu().static)
    assert isinstance(sm_reader.read(0.0), Waiting)
    for thread in set(threading.enumerate()) - others:
        thread.join(5.0)
        assert not thread.is_alive()
    assert fetched == []


def test_the_source_below_goes_on_while_the_one_above_is_tried_again() -> None:
    """GPM needs two samples before it has a value again: no hole and no switch to and fro each minute."""
    failed = SmReadFailed("GPM: timed out")
    above = SmReader("gpm", sm(1.0), failed, failed, failed, COLLECTING, failed, failed, COLLECTING, sm(2.0))
    chain = FallbackChain([above, SmReader("dcgm-exporter", sm(5.0))])
    assert seen(chain, 0, 1, 2, 3, 4) == [
        ("gpm", 1.0), ("gpm", None), ("gpm", None), ("dcgm-exporter", 5.0), ("dcgm-exporter", 5.0),
    ]  # fmt: skip
    assert len(above.asked) == 4
    first = 3 + PROBE_AGAIN_S
    assert seen(chain, first, first + 1, first + 2, first + 3) == [("dcgm-exporter", 5.0)] * 4
    assert len(above.asked) == 7
    second = first + 2 + PROBE_AGAIN_S
    assert seen(chain, second, second + 1) == [("dcgm-exporter", 5.0), ("gpm", 2.0)]


@pytest.mark.parametrize("below", [COLLECTING, LOOKING, SmReadFailed("refused"), SmReadFailed("absent", True)])
def test_counters_without_sm_activity_are_used_where_nothing_below_measures_it(below: Answer) -> None:
    chain = FallbackChain(
        [SmReader("gpm", SmReadFailed("no GPM", True)), SmReader("dcgm-exporter", partly()), SmReader("dcgmi", below)]
    )
    assert chain.read(0.0) == ChainState("dcgm-exporter", partly(), SmLack(("no SM here",), "switch it on"))


def test_sm_activity_from_below_goes_before_counters_without_it_from_above() -> None:
    chain = FallbackChain(
        [SmReader("dcgm-exporter", partly()), SmReader("dcgmi", COLLECTING, sm(5.0), COLLECTING, sm(6.0))]
    )
    assert seen(chain, 0, 1, 2, 3) == [("dcgm-exporter", None), ("dcgmi", 5.0), ("dcgmi", None), ("dcgmi", 6.0)]
    assert chain.read(4.0).activity == sm(6.0)


def test_an_exporter_whose_sm_activity_was_switched_on_is_used_at_once() -> None:
    chain = FallbackChain([SmReader("dcgm-exporter", partly(), sm(5.0))])
    assert seen(chain, 0, 1) == [("dcgm-exporter", None), ("dcgm-exporter", 5.0)]
    assert chain.read(2.0).reason is None


def test_all_reasons_are_told_with_the_most_specific_remedy() -> None:
    chain = FallbackChain(
        [
            SmReader("gpm", SmReadFailed("no GPM", True, "use DCGM")),
            SmReader("dcgm-exporter", SmReadFailed("no exporter", True)),
            SmReader("dcgmi", SmReadFailed("refused", True, "start it")),
        ]
    )
    assert chain.read(0.0).lack == SmLack(("no GPM", "no exporter", "refused"), "start it")
    assert chain.read(0.0).reason == "no GPM, no exporter, refused; start it"
    assert chain.read(inf).source is None
