"""Chooses the best working source of SM activity for one GPU.

A source has measured, is collecting, or has failed with a reason. The chain goes one source down after three failures
and tries the upper one again, soon and then each minute, while the lower one goes on. It never blends two sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import Protocol

from msgspec import Struct

from gputop.model.metrics import GPU_METRICS, IMPOSSIBLE
from gputop.model.sm import LackKind, SmLack, SmSource

BAD_TICKS = 3
FIRST_PROBE_S, PROBE_AGAIN_S = 2.0, 60.0
"""How soon a source that failed is tried again: soon after its first failures, then ever more seldom."""
PROBE_TIMES = 4.0
"""How much longer each further failure in a row is waited for than the one before [judged]."""


class MeasuredActivity(Struct, frozen=True):
    """Values of one source by catalogue key, and reasons for missing ones.

    ``t`` is their monotonic time, ``window_s`` the time that they are the mean of; None where unknown. A source
    without ``sm_active_pct`` says why under ``missing``; ``fix`` is what would help.
    """

    values: Mapping[str, float]
    missing: Mapping[str, str]
    window_s: float | None
    t: float | None
    fix: str = ""


class Waiting(Struct, frozen=True):
    """No value yet, and no failure.

    ``looking`` while it is unknown whether the source exists. ``kind`` is "collecting" for a source that needs a
    second sample.
    """

    reason: str
    looking: bool = False
    kind: LackKind | None = None


def believed(
    ratios: Mapping[str, float], scale: float, who: str
) -> tuple[dict[str, float], dict[str, str]]:
    """Return ratios as percentages, and reasons against impossible ones.

    ``scale`` converts to percent.
    """
    values: dict[str, float] = {}
    missing: dict[str, str] = {}
    for key, ratio in ratios.items():
        if (value := GPU_METRICS[key].believed(ratio * scale)) is not None:
            values[key] = value
        else:
            missing[key] = f"{who} gives {IMPOSSIBLE} ({ratio:g})"
    return values, missing


class SmReadFailed(Exception):
    """No value this time.

    ``forever`` when asking again is pointless on this GPU; ``fix`` is what would help. ``resting`` when the source
    pauses on purpose: lower sources are then asked at once, and asking it again costs nothing. ``kind`` is "denied"
    for the hardware counters.
    """

    def __init__(
        self,
        reason: str,
        forever: bool = False,
        fix: str = "",
        *,
        resting: bool = False,
        kind: LackKind | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason, self.fix, self.kind = reason, fix, kind
        self.forever, self.resting = forever, resting


class SmReader(Protocol):
    """Protocol of one way to measure one GPU."""

    @property
    def name(self) -> SmSource: ...

    def read(self, now: float) -> MeasuredActivity | Waiting:
        """Return the newest value; ``now`` is monotonic. Raises SmReadFailed."""

    def close(self) -> None:
        """Free resources; called on the reading thread."""


class SharedReader(Struct, frozen=True):
    """One GPU's part of a source that all GPUs share; the owner stops that source."""

    name: SmSource
    read: Callable[[float], MeasuredActivity | Waiting]
    close: Callable[[], None] = lambda: None


class ChainState(Struct, frozen=True):
    """The source in use (None below all), its values, and why SM is missing."""

    source: SmSource | None
    activity: MeasuredActivity | None = None
    lack: SmLack | None = None

    @property
    def reason(self) -> str | None:
        """``lack`` in words."""
        return None if self.lack is None else self.lack.words


class _Step(Struct):
    sm_reader: SmReader
    in_use: bool = False
    """Whether it is in use and has given a value: only then a failure is waited out."""
    failed: bool = False
    """Whether it has failed since its last value: if so, it is not waited for while it collects."""
    bad: int = 0
    retry_at: float = -inf
    probe_s: float = FIRST_PROBE_S
    reason: str = ""
    fix: str = ""
    kind: LackKind | None = None


class FallbackChain:
    """The sources of one GPU, best first."""

    def __init__(
        self, sm_readers: Iterable[SmReader], without: str = "no SM counter on this GPU"
    ) -> None:
        """``without`` is the reason when no source gives one.

        A source is taken from ``sm_readers`` when those above have failed for the first time, so that unneeded ones
        are not created.
        """
        self._steps: list[_Step] = []
        self._further = iter(sm_readers)
        self._without = without

    def read(self, now: float) -> ChainState:
        """Ask from the top; stop at the first source with SM activity.

        Counters without SM activity are used only when no lower source has it either.
        """
        standing = self._look(now)
        for step in self._steps:
            step.in_use = step.in_use and step.sm_reader.name == standing.source
        return standing

    def _look(self, now: float) -> ChainState:
        partly: tuple[SmSource, MeasuredActivity] | None = None
        for step in self._due(now):
            try:
                got = step.sm_reader.read(now)
            except SmReadFailed as failure:
                if self._is_passed_over(step, failure, now):
                    continue
                return ChainState(
                    step.sm_reader.name, None, SmLack((failure.reason,), kind=failure.kind)
                )
            if isinstance(got, MeasuredActivity):
                step.in_use, step.failed, step.bad = True, False, 0
                step.probe_s = FIRST_PROBE_S
                step.reason, step.fix, step.kind = (
                    got.missing.get("sm_active_pct", ""),
                    got.fix,
                    None,
                )
                if not step.reason:
                    return ChainState(step.sm_reader.name, got)
                partly = partly or (step.sm_reader.name, got)
                continue
            if got.looking:
                # Answered in a moment, one way or the other: nothing below is begun for that, dcgmi least of all, and
                # what stood before is not left for the bound in between.
                if partly is not None:
                    break
                in_use = next((step.sm_reader.name for step in self._steps if step.in_use), None)
                return ChainState(in_use, None, self._lack())
            # After a failure a source that only collects is still bad: it has dropped its pair and given no value.
            if step.failed and self._still_bad(step, now):
                continue
            if partly is None or step.in_use:
                why = step if step.reason else got
                return ChainState(step.sm_reader.name, None, SmLack((why.reason,), kind=why.kind))
        if partly is None:
            return ChainState(None, None, self._lack())
        # Other counters, where no source measures SM activity.
        name, activity = partly
        return ChainState(
            name, activity, SmLack((activity.missing["sm_active_pct"],), activity.fix)
        )

    def _is_passed_over(self, step: _Step, failure: SmReadFailed, now: float) -> bool:
        """Whether to go on to lower sources after a failure."""
        step.failed, step.reason, step.fix, step.kind = (
            True,
            failure.reason,
            failure.fix,
            failure.kind,
        )
        if failure.forever:
            step.retry_at = inf
        elif failure.resting:
            step.failed, step.bad = False, 0
        else:
            return self._still_bad(step, now)
        return True

    def _due(self, now: float) -> Iterator[_Step]:
        """Yield the sources that do not rest after a failure."""
        yield from (step for step in self._steps if now >= step.retry_at)
        for sm_reader in self._further:
            step = _Step(sm_reader)
            self._steps.append(step)
            yield step

    def reject(self, source: SmSource, why: str) -> None:
        """Never ask a source again: its values cannot be true."""
        for step in self._steps:
            if step.sm_reader.name == source:
                step.retry_at, step.in_use, step.reason, step.fix, step.kind = (
                    inf,
                    False,
                    why,
                    "",
                    None,
                )
                step.sm_reader.close()

    def close(self) -> None:
        for step in self._steps:
            step.sm_reader.close()

    def _still_bad(self, step: _Step, now: float) -> bool:
        """Count a tick without a value; True to ask lower sources now.

        Only a source in use is waited for.
        """
        step.bad += 1
        if step.bad < BAD_TICKS:
            return not step.in_use
        step.bad, step.retry_at = 0, now + step.probe_s
        step.probe_s = min(PROBE_AGAIN_S, PROBE_TIMES * step.probe_s)
        return True

    def _lack(self) -> SmLack:
        """Return all reasons from the top and the most specific remedy."""
        below = list(reversed(self._steps))
        return SmLack(
            tuple(step.reason for step in self._steps if step.reason) or (self._without,),
            next((step.fix for step in below if step.fix), ""),
            next((step.kind for step in below if step.kind), None),
        )
