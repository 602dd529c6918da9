"""The pollers by a scripted clock: when ticks come, and what they say when something hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from gputop.model.snapshot import GpuSample, GpuStatic, HostSample
from gputop.model.source import FAST_FOR_S, FAST_S, SourceError
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.nvml.gpu_device import GpusReading
from gputop.sources.pollers import nvml, process
from gputop.sources.pollers.machine import HUNG_ONCE_S, HURRIES_EVERY_S, MachinePoller
from gputop.sources.pollers.nvml import LOOK_AGAIN_S, NOTHING_READ
from gputop.sources.pollers.process import HostReading
from gputop.sources.selection import MachineOptions
from tests.support.scripted_loop import ScriptedCall, ScriptedLoop

NVML_S, PROC_S = 0.003, 0.004
"""How long a reading and a pass take where nothing is said."""


class Tick(NamedTuple):
    """When a tick came, how old its late data were, which GPUs hung, and whether its reading was new."""

    t: float
    stale: Mapping[str, float]
    hung: tuple[int, ...]
    is_new: bool
    processes: bool


class Script:
    """A machine whose calls last as long as a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = ScriptedLoop()
        self.ticks: list[Tick] = []
        self.nvml_lasts: Callable[[float], float] = lambda t: NVML_S
        self.proc_lasts: Callable[[float], float] = lambda t: PROC_S
        self.hung: tuple[int, ...] = ()
        self.hangs_since: float | None = None
        """Since when the call on one GPU hangs; set it aside and the others are read."""
        self.set_aside_at: float | None = None
        self.busy = frozenset[int]()
        self.failure: Exception | None = None
        ScriptedCall.loop = self.loop
        lasts = {"nvml": lambda t: self.nvml_lasts(t), "proc": lambda t: self.proc_lasts(t)}
        monkeypatch.setattr(
            ScriptedCall, "lasts", staticmethod(lambda name, t: lasts[name](t)), raising=False
        )
        monkeypatch.setattr(nvml, "Awaited", ScriptedCall)
        monkeypatch.setattr(process, "Awaited", ScriptedCall)
        monkeypatch.setattr(nvml.NvmlPoller, "read", lambda *_: self._read())
        monkeypatch.setattr(process.ProcessPoller, "read", self._pass)

    def _read(self) -> GpusReading:
        if self.failure is not None:
            raise self.failure
        gpus = tuple(
            GpuSample(GpuStatic(index, f"GPU-{index}", "H100"), util_pct=50.0)
            for index in (0,)
            if self.busy
        )
        processes = tuple(GpuProcess(0, pid) for pid in self.busy)
        return GpusReading(self.loop.now, gpus, processes, hung=self.hung)

    @staticmethod
    def _pass(poller: process.ProcessPoller) -> HostReading:
        return HostReading(HostSample(), (), (), poller._known_gpus().is_read)

    def supersede(self, limit_s: float) -> int | None:
        if self.hangs_since is None or self.loop.now - self.hangs_since < limit_s:
            return None
        self.hangs_since, self.set_aside_at = None, self.loop.now
        return 2

    def run(
        self,
        seconds: float,
        at: Mapping[float, Callable[[], object]] | None = None,
        *,
        reads_once: bool = False,
        **options: Any,
    ) -> list[Tick]:
        """The ticks of so many seconds; ``at`` are acts by their times."""
        poller = MachinePoller(MachineOptions(**options), clock=self.loop.time)
        poller.nvml.session = SimpleNamespace(  # type: ignore[assignment]
            ticket=1, supersede=self.supersede, progress=lambda: NOTHING_READ, close=lambda: None
        )
        if reads_once:
            poller.read_twice()
        last: list[Any] = [None]

        def publish() -> None:
            reading = poller.nvml.reading
            self.ticks.append(
                Tick(
                    round(self.loop.now, 3),
                    poller.stale(),
                    () if reading is None else reading.hung,
                    reading is not last[0],
                    poller.host is not None and poller.host.knew_gpus,
                )
            )
            last[0] = reading

        async def main() -> None:
            poller.ask_driver()
            for when, act in (at or {}).items():
                self.loop.call_later(when, act)
            task = self.loop.create_task(poller.run(publish))
            await asyncio.sleep(seconds)
            task.cancel()

        self.poller = poller
        self.loop.run_until_complete(main())
        return self.ticks


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    made = Script(monkeypatch)
    yield made
    made.loop.close()


def test_an_hour_of_ticks_comes_on_time(script: Script) -> None:
    ticks = script.run(3600.0)
    assert [tick.t for tick in ticks[:4]] == [0.008, 0.26, 1.26, 2.26]
    assert len(ticks) == 3601
    assert {round(tick.t % 1.0, 3) for tick in ticks[1:]} == {0.26}
    assert all(tick.is_new and tick.processes and not tick.stale for tick in ticks)


def test_a_late_tick_is_skipped_and_never_made_up_for(script: Script) -> None:
    script.nvml_lasts = lambda t: 1.4 if 5.0 < t < 6.0 else NVML_S
    ticks = script.run(10.0)
    # The reading of 5.253 ends at 6.653, and the next one is due at 7.253.
    assert [tick.t for tick in ticks if 4.0 < tick.t < 9.0] == [4.26, 6.257, 6.657, 7.26, 8.26]
    assert [(tick.t, tick.is_new) for tick in ticks if tick.stale] == [(6.257, False)]


def test_a_call_that_hangs_for_eight_seconds_is_late_and_its_age_is_told(script: Script) -> None:
    script.nvml_lasts = lambda t: 8.0 if 5.0 < t < 6.0 else NVML_S
    ticks = script.run(20.0)
    late = [tick for tick in ticks if tick.stale]
    assert [tick.t for tick in late] == [6.257, 7.257, 8.257, 9.257, 10.257, 11.257, 12.257]
    assert not any(tick.is_new for tick in late)
    # The newest reading ended at 4.256.
    assert all(tick.stale["nvml"] == pytest.approx(tick.t - 4.256) for tick in late)
    after = [tick for tick in ticks if tick.t > 13.0]
    assert [tick.t for tick in after[:3]] == [13.257, 13.261, 14.26]
    assert all(tick.is_new and not tick.stale for tick in after)


def test_one_gpu_that_hangs_is_set_aside_after_two_seconds_and_the_others_go_on(
    script: Script,
) -> None:
    def hang() -> None:
        script.nvml_lasts = lambda t: 1e6 if t < 6.0 else NVML_S
        script.hangs_since = 5.253

    def others() -> None:
        script.hung = (3,)

    ticks = script.run(15.0, {4.9: hang, 6.5: others})
    assert [tick.t for tick in ticks if tick.stale] == [6.257]
    after = [tick for tick in ticks if tick.t > 7.0]
    assert [tick.t for tick in after] == [7.26 + second for second in range(8)]
    assert all(tick.hung == (3,) and tick.is_new for tick in after)


def test_when_every_call_hangs_ticks_go_on_and_say_how_old_the_values_are(script: Script) -> None:
    script.nvml_lasts = lambda t: 1e6 if t > 5.0 else NVML_S
    ticks = script.run(30.0)
    late = [tick for tick in ticks if tick.t > 7.0]
    assert len(late) == 23
    assert all(tick.stale["nvml"] == pytest.approx(tick.t - 4.256, abs=0.01) for tick in late)


def test_a_driver_that_hangs_from_the_start_is_told_by_ticks_without_gpus(script: Script) -> None:
    script.nvml_lasts = lambda t: 1e6
    ticks = script.run(10.0)
    assert len(ticks) >= 9
    assert script.poller.troubles() == [
        f"NVML has not answered for {script.loop.now:.1f} s: is the driver hung?"
    ]


def test_proc_that_hangs_costs_no_reading_of_the_gpus(script: Script) -> None:
    script.proc_lasts = lambda t: 1e6 if t > 5.0 else PROC_S
    ticks = script.run(30.0)
    late = [tick for tick in ticks if tick.t > 7.0]
    assert len(late) == 23 and all(tick.is_new for tick in late)
    # The newest pass ended at 4.26, and each tick waits for the next for 0.15 s.
    assert all(tick.stale["proc"] == pytest.approx(tick.t - 4.26) for tick in late)
    assert any("/proc does not answer" in line for line in script.poller.troubles())


def test_a_first_pass_over_proc_that_is_slow_makes_a_tick_of_its_own(script: Script) -> None:
    script.proc_lasts = lambda t: 0.2 if t < 0.1 else PROC_S
    ticks = script.run(3.0)
    # The pass that finds all others begins with the first reading, which it does not know.
    assert [(tick.t, tick.processes) for tick in ticks[:3]] == [
        (0.153, False),
        (0.204, True),
        (0.26, True),
    ]


def test_a_loop_that_is_held_for_ten_seconds_leaves_a_hole_and_stamps_stay_right(
    script: Script,
) -> None:
    def hold() -> None:
        script.loop.now += 10.0

    ticks = script.run(20.0, {3.5: hold})
    gaps = [(a.t, b.t) for a, b in pairwise(ticks) if b.t - a.t > 1.01]
    assert len(gaps) == 1 and gaps[0][0] == 3.26 and 13.5 <= gaps[0][1] < 13.6
    assert script.poller.nvml.reading is not None
    assert script.poller.nvml.reading.t == pytest.approx(ticks[-1].t - NVML_S - PROC_S)
    assert [tick.t for tick in ticks if tick.t > 13.0][1:3] == pytest.approx(
        [14.51, 15.51], abs=0.01
    )


def test_one_bad_snapshot_ends_no_polling_and_is_told_by_the_next(script: Script) -> None:
    told: list[list[str]] = []
    append = script.ticks.append

    class Bad(list[Tick]):
        def append(self, tick: Tick) -> None:
            told.append(script.poller.troubles())
            if len(told) == 3:
                raise RecursionError("too deep")
            append(tick)

    script.ticks = Bad()
    script.run(5.0)
    assert [len(lines) for lines in told] == [0, 0, 0, 1, 0, 0]
    assert "the snapshot before could not be made" in told[3][0]


def test_a_driver_that_does_not_start_is_asked_again_ever_more_seldom(script: Script) -> None:
    asked: list[float] = []

    def fail(t: float) -> float:
        asked.append(round(t))
        return NVML_S

    script.failure, script.nvml_lasts = SourceError("no driver"), fail
    script.run(200.0)
    assert asked == [0, 3, 8, 17, 34, 67, 128, 189]
    assert script.poller.troubles()[0] == "no driver"


def test_a_start_and_first_kernels_are_read_four_times_a_second_for_a_while(
    script: Script,
) -> None:
    def begin_job() -> None:
        script.busy = frozenset({1})

    def begin_another() -> None:
        script.busy = frozenset({1, 2})

    script.run(
        HURRIES_EVERY_S + 30.0,
        {20.5: begin_job, HURRIES_EVERY_S + 5.5: begin_another},
        is_quick=True,
    )
    steps = [(a.t, round(b.t - a.t, 2)) for a, b in pairwise(script.ticks)]
    assert {step for t, step in steps if 0.5 < t < FAST_FOR_S - 0.5} == {FAST_S}
    # A job soon after the start does not hurry it again.
    assert {step for t, step in steps if FAST_FOR_S + 1.0 < t < HURRIES_EVERY_S} == {1.0}
    fast = [t for t, step in steps if t > HURRIES_EVERY_S and step == FAST_S]
    assert HURRIES_EVERY_S + 5.0 < fast[0] < HURRIES_EVERY_S + 7.5
    assert fast[-1] - fast[0] == pytest.approx(FAST_FOR_S, abs=1.0)


def test_a_tick_that_falls_due_during_a_slow_pass_over_proc_is_not_missed(
    script: Script,
) -> None:
    """A reading that waited for the pass of the tick before was late under load, and called so."""
    asked: list[float] = []

    def note(t: float) -> float:
        asked.append(round(t, 3))
        return NVML_S

    script.nvml_lasts, script.proc_lasts = note, lambda t: 0.06
    ticks = script.run(3.0, interval_s=0.05)
    steps = {round(b - a, 3) for a, b in pairwise(asked[3:])}
    # Each on the beat; one is skipped where a reading still waits for its pass.
    assert steps == {0.05, 0.1}
    assert len(asked) >= 40 and len(ticks) >= 25


def test_every_reading_makes_a_tick_of_its_own(script: Script) -> None:
    """Its events, an Xid among them, are in no other."""
    asked: list[float] = []

    def note(t: float) -> float:
        asked.append(t)
        return NVML_S

    script.nvml_lasts, script.proc_lasts = note, lambda t: 0.14
    ticks = script.run(3.0, interval_s=0.02)
    assert len(asked) - sum(tick.is_new for tick in ticks) <= 2


def test_a_reading_that_ends_a_late_ticks_wait_for_proc_makes_the_tick(script: Script) -> None:
    """Its values are there: a tick that calls those before it late would be wrong."""
    # Late from 6.203 on; the tick of 6.253 waits for a pass until 6.313, and the reading ends at 6.283.
    script.nvml_lasts = lambda t: 1.03 if 5.0 < t < 6.0 else NVML_S
    script.proc_lasts = lambda t: 0.06
    ticks = script.run(10.0)
    assert [tick for tick in ticks if tick.stale or not tick.is_new] == []
    assert [tick.t for tick in ticks if 5.0 < tick.t < 7.0] == [6.373]


def test_a_call_that_hangs_is_set_aside_also_while_proc_hangs(script: Script) -> None:
    """A command that reads once waits for /proc for 0.8 s, in which others of its GPUs can be read."""
    script.nvml_lasts = lambda t: 1e6 if t < 0.5 else NVML_S
    script.proc_lasts = lambda t: 1e6
    script.hangs_since = 0.1
    script.run(3.0, reads_once=True)
    assert script.set_aside_at is not None
    assert 0.1 + HUNG_ONCE_S <= script.set_aside_at <= 0.1 + HUNG_ONCE_S + LOOK_AGAIN_S
    assert script.poller.nvml.readings > 0


def test_gpus_that_go_and_come_are_ticks_like_others(script: Script) -> None:
    """The number of GPUs is the session's to judge: the schedule neither stops nor hurries for ever."""

    def lose_all() -> None:
        script.busy = frozenset()

    def come_back() -> None:
        script.busy = frozenset({7})

    script.busy = frozenset({7})
    ticks = script.run(HURRIES_EVERY_S, {30.1: lose_all, 40.1: come_back}, is_quick=True)
    after = [tick for tick in ticks if tick.t > 20.0]
    assert len(after) == 40 and all(tick.is_new and not tick.stale for tick in after)


def test_a_reading_that_fails_is_told_and_the_next_one_is_asked_for(script: Script) -> None:
    """A call that the driver refuses as a whole; of single values the session keeps the reasons."""
    lines: list[list[str]] = []

    def fail() -> None:
        script.failure = RuntimeError("refused")

    def go_on() -> None:
        lines.append(script.poller.troubles())
        script.failure = None

    ticks = script.run(10.0, {3.5: fail, 6.5: go_on})
    assert lines == [["reading NVML failed: RuntimeError: refused"]]
    # Ticks go on with the values of before, which are late once they are older than two intervals.
    failed = [tick for tick in ticks if 4.0 < tick.t < 7.0]
    assert [tick.is_new for tick in failed] == [False] * 3
    assert [bool(tick.stale) for tick in failed] == [False, True, True]
    assert all(tick.is_new and not tick.stale for tick in ticks if tick.t > 7.0)
    assert script.poller.troubles() == []
