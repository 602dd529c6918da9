"""Which source of SM activity is used when several could be: one at a time, the best that works, never two blended."""

from __future__ import annotations

import itertools
from math import inf
from typing import Any

import pytest

from gputop.model.sm import SmLack
from gputop.model.snapshot import GpuSample, Snapshot
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import plain_text
from gputop.output.snapshot_text import once_rows
from gputop.paint.main_screen import main_screen
from gputop.paint.view import View
from gputop.sources.activity.fallback_chain import (
    FIRST_PROBE_S,
    PROBE_TIMES,
    ChainState,
    FallbackChain,
    MeasuredActivity,
    SmReadFailed,
    Waiting,
)
from tests.support.recording_frames import rounded
from tests.support.scenes import T0, gpu, snap

Answer = MeasuredActivity | Waiting | SmReadFailed

COLLECTING = Waiting("collecting")
LOOKING = Waiting("asking", looking=True)


def sm(value: float) -> MeasuredActivity:
    return MeasuredActivity({"sm_active_pct": value}, {}, 1.0, 0.0)


def partly(dram: float = 20.0) -> MeasuredActivity:
    return MeasuredActivity(
        {"dram_active_pct": dram}, {"sm_active_pct": "no SM here"}, 30.0, 0.0, "switch it on"
    )


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


def test_from_one_source_to_the_next_is_one_step_although_the_next_must_first_be_found() -> None:
    failed = SmReadFailed("GPM: timed out")
    chain = FallbackChain(
        [SmReader("gpm", sm(1.0), failed), SmReader("dcgm-exporter", LOOKING, sm(5.0))]
    )
    assert seen(chain, 0, 1, 2, 3, 4) == [
        ("gpm", 1.0),
        *[("gpm", None)] * 3,
        ("dcgm-exporter", 5.0),
    ]


def test_the_source_below_goes_on_while_the_one_above_is_tried_again() -> None:
    """GPM needs two samples before it has a value again: no hole and no switch to and fro each time."""
    failed = SmReadFailed("GPM: timed out")
    above = SmReader(
        "gpm", sm(1.0), failed, failed, failed, COLLECTING, failed, failed, COLLECTING, sm(2.0)
    )
    chain = FallbackChain([above, SmReader("dcgm-exporter", sm(5.0))])
    assert seen(chain, 0, 1, 2, 3, 4) == [
        ("gpm", 1.0), ("gpm", None), ("gpm", None), ("dcgm-exporter", 5.0), ("dcgm-exporter", 5.0),
    ]  # fmt: skip
    assert len(above.asked) == 4
    first = 3 + FIRST_PROBE_S
    assert seen(chain, first, first + 1, first + 2, first + 3) == [("dcgm-exporter", 5.0)] * 4
    assert len(above.asked) == 7
    second = first + 2 + PROBE_TIMES * FIRST_PROBE_S
    assert seen(chain, second, second + 1) == [("dcgm-exporter", 5.0), ("gpm", 2.0)]


@pytest.mark.parametrize(
    "below", [COLLECTING, LOOKING, SmReadFailed("refused"), SmReadFailed("absent", True)]
)
def test_counters_without_sm_activity_are_used_where_nothing_below_measures_it(
    below: Answer,
) -> None:
    chain = FallbackChain(
        [
            SmReader("gpm", SmReadFailed("no GPM", True)),
            SmReader("dcgm-exporter", partly()),
            SmReader("dcgmi", below),
        ]
    )
    assert chain.read(0.0) == ChainState(
        "dcgm-exporter", partly(), SmLack(("no SM here",), "switch it on")
    )


def test_a_rejected_source_is_closed_and_never_asked_again() -> None:
    above = SmReader("counters", sm(5.0))
    chain = FallbackChain([above])
    chain.read(0.0)
    chain.reject("counters", "they lie")
    assert (chain.read(1e6).reason, above.asked, above._answers) == ("they lie", [0.0], [])


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


# A change of the source of SM activity: the line breaks, and the place is marked, recorded, replayed and dumped.

FIX = "uncomment DCGM_FI_PROF_SM_ACTIVE"
KINDS = ("gpm", "dcgm-exporter", "dcgmi", "bound", "none", "partly")
EACH = 65
"""Samples of each source: more than a minute, so that the means of whole minutes are tried too."""


def sample(kind: str, sm: float) -> GpuSample:
    """A GPU at 97 % whose SM activity comes from a source; ``partly`` is an exporter without SM_ACTIVE."""
    if kind == "partly":
        given: dict[str, Any] = {
            "sm": None,
            "sm_source": "dcgm-exporter",
            "sm_window_s": 30.0,
            "sm_age_s": 12.0,
        }
        return gpu(
            util=97.0, sm_lack=SmLack(("dcgm-exporter exports no SM activity",), FIX), **given
        )
    if kind in ("bound", "none"):
        nothing: dict[str, Any] = dict.fromkeys(("sm", "tensor_active_pct", "dram"))
        high = 97.0 if kind == "bound" else None
        nothing |= {"sm_window_s": None, "sm_lack": SmLack(("no counter",))}
        return gpu(util=97.0, sm_source=kind, sm_high_pct=high, **nothing)
    return gpu(
        util=97.0, sm=sm, sm_source=kind, sm_window_s=30.0 if kind == "dcgm-exporter" else 1.0
    )


def switching(first: str, second: str) -> list[Snapshot]:
    """A source with SM activity 80, then another with 20."""
    samples = [sample(first, 80.0)] * EACH + [sample(second, 20.0)] * EACH
    return [rounded(snap(tick, each)) for tick, each in enumerate(samples)]


def fed(snapshots: list[Snapshot]) -> Frame:
    monitor = Monitor()
    for snapshot in snapshots:
        frame = monitor.feed(snapshot)
    return frame


def marks(frame: Frame) -> list[tuple[float, str]]:
    return [(t - T0, text) for t, _, text in frame.history.marks]


PAIRS = [
    pytest.param(*pair, marks=() if "gpm" in pair else pytest.mark.slow)
    for pair in itertools.permutations(KINDS, 2)
]
SOURCE = {kind: "dcgm-exporter" if kind == "partly" else kind for kind in KINDS}


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_two_sources_are_never_one_line_and_the_change_is_marked(first: str, second: str) -> None:
    frame = fed(switching(first, second))
    for width_s in (0.5, 1.0, 7.0, 31.0, 60.0, 90.0):
        columns = frame.history.columns(
            "GPU-0", "sm_active_pct", width_s, round(2 * EACH / width_s) + 1
        )
        assert {round(value, 3) for value in columns if value is not None} <= {80.0, 20.0}
        known = [value for value in columns if value is not None]
        if 80.0 in known and 20.0 in known:
            end = len(columns) - 1 - columns[::-1].index(80.0)
            assert columns[end + 1] is None, "the line runs on"
    before, after = SOURCE[first], SOURCE[second]
    assert marks(frame) == (
        [] if before == after else [(float(EACH), f"SM source: {before} → {after}")]
    )
    screen = plain_text(main_screen(frame, View(span_s=300.0), 160, 48).rows)
    assert ("│" in screen) == (before != after)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 36), (160, 48)])
def test_counters_without_sm_activity_are_shown_with_the_remedy(width: int, height: int) -> None:
    frame = fed([snap(tick, sample("partly", 0.0)) for tick in range(60)])
    d = frame.diagnoses[0]
    assert d.verdict == "no_bottleneck_seen"
    assert d.busy_not_working is None and d.efficiency_pct is None
    screen = plain_text(main_screen(frame, View(), width, height).rows)
    assert "DRAM  40" in screen or width < 100
    assert f"for SM activity {FIX}" in screen.splitlines()[1]
    assert FIX in " ".join(" ".join(screen.splitlines()[2:]).split())
    table = plain_text(once_rows(frame, View(), width))
    assert "SM n/a" in table and "DRAM  40" in table
    assert FIX in " ".join(table.split())
