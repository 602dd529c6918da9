"""Asks one NVML device; turns failures into remembered reasons.

The questions are in ``gpu_questions.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from time import monotonic
from typing import Any, NamedTuple

import pynvml

from gputop.model.clean_text import clean_text
from gputop.model.metrics import GPU_METRICS, IMPOSSIBLE
from gputop.sources.nvml.nvml_errors import FAILED_CODES, LOST_CODES, NEVER_CODES, reason

RETRY_S = 60.0
"""How long a refusal that may end (no permission, an unknown error) is remembered at most."""
FIRST_RETRY_S = 0.9
"""How soon a question that failed is asked again: at the next of ticks that are a second apart."""
RETRY_TIMES = 4.0
"""How much longer each further failure in a row is remembered than the one before [judged]."""
LOST_ROUNDS = 2
"""Rounds in which no question that every working GPU answers was answered, until the GPU counts as lost: a driver may
fail once."""
NO_VALUE = 0xFFFFFFFF
"""What NVML writes into an unsigned int that has no value (NVML_VALUE_NOT_AVAILABLE)."""
NO_VALUES = (NO_VALUE, 0x7FFFFFFF)
"""The same, and of a signed one (DCGM#83)."""
PSTATE_UNKNOWN = 32
BOUNDS = {
    key: (-inf if metric.low is None else metric.low, inf if metric.high is None else metric.high)
    for key, metric in GPU_METRICS.items()
}
"""The catalogue's bounds, as in ``Metric.is_valid``, for what is asked at every tick."""


class LostGpu(Exception):
    """The GPU itself no longer answers; the text says why."""


class Refusal(NamedTuple):
    """Why a question was not answered, and until when it is not asked again."""

    why: str
    until: float


class Handle:
    """Asks one device, which NVML knows as ``raw``.

    ``call`` and ``call_since`` (monotonic seconds) tell a watchdog the call in flight.
    """

    __slots__ = (
        "_answered", "_bad_rounds", "_failed_once", "_is_answered", "_refused", "_retry_s", "_why_unanswered", "call",
        "call_since", "knows_memory_v2", "raw",
    )  # fmt: skip

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self.knows_memory_v2 = False
        """The driver has answered the newer question for memory."""
        self.call: str | None = None
        self.call_since = 0.0
        self._bad_rounds = 0
        self._is_answered = False
        self._why_unanswered: str | None = None
        self._failed_once: set[object] = set()
        self._refused: dict[object, Refusal] = {}
        self._retry_s: dict[object, float] = {}
        """How long the newest refusal of each failing question is remembered."""
        self._answered: set[object] = set()
        """Questions that had an answer since the GPU was found: this GPU can answer them."""

    def refusal(self, key: object, now: float) -> str | None:
        """Return why a question is not worth asking now, or None."""
        refused = self._refused.get(key)
        if refused is None:
            return None
        if now < refused.until:
            return refused.why
        del self._refused[key]
        return None

    def retry_at(self, key: object) -> float:
        """Return when a failed question may be asked again, monotonic s.

        Infinity for one that did not fail, or whose answer will stay the same.
        """
        refused = self._refused.get(key)
        return inf if refused is None else refused.until

    def forget(self) -> None:
        """Ask everything again after the GPU was lost and found."""
        self._refused.clear()
        self._failed_once.clear()
        self._retry_s.clear()
        self._answered.clear()

    def end_round(self) -> None:
        """End a round of ``core`` questions.

        Raises LostGpu where the driver answered none in two rounds. Unsupported questions are no failure, and a driver
        that takes too long hangs: neither means a loss.
        """
        why, self._why_unanswered = self._why_unanswered, None
        if self._is_answered or why is None:
            self._bad_rounds = 0
        else:
            self._bad_rounds += 1
        self._is_answered = False
        if why is not None and self._bad_rounds >= LOST_ROUNDS:
            raise LostGpu(why)

    def run(self, name: str, *arguments: Any) -> Any:
        """Call a function of pynvml on this handle. Raises NVMLError."""
        return self.run_bare(name, self.raw, *arguments)

    def run_bare(self, name: str, *arguments: Any) -> Any:
        """Call a function of pynvml without the handle. Raises NVMLError."""
        function = getattr(pynvml, name, None)
        if function is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        self.call_since = monotonic()
        self.call = name
        try:
            return function(*arguments)
        finally:
            self.call = None

    def ask(
        self,
        names: tuple[str, ...],
        arguments: tuple[Any, ...],
        now: float,
        core: bool = False,
        run: Callable[..., Any] | None = None,
    ) -> Any | str:
        """Return the answer to the first known of equivalent calls.

        Without an answer returns the reason (a str); an answer is never a str. ``run`` makes the call in place of
        ``run_bare``. Raises LostGpu when the driver says that the GPU is gone; ``end_round`` finds out where no
        ``core`` call is answered.
        """
        key = (names[0], arguments)
        # Most GPUs refuse something, so most questions are looked up here and not found.
        if key in self._refused and (refused := self.refusal(key, now)) is not None:
            return refused
        if run is None:
            run = self.run_bare
        code = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
        for name in names:
            try:
                answer = run(name, self.raw, *arguments)
            except pynvml.NVMLError as error:
                code = error.value
                if code in (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_DEPRECATED):
                    continue
                break
            if core:
                self._is_answered = True
                self._failed_once.discard(key)
            self.note_answer(key)
            return answer
        return self.refused(key, code, now, core=core)

    def refused(self, key: object, code: int, now: float, *, core: bool = False) -> str:
        """Return the reason of a refusal and remember it.

        It is remembered for as long as asking again is pointless: a failure that may end for a moment, then longer.
        "Not supported" is for ever, unless the question was answered before. Raises LostGpu.
        """
        why = reason(code)
        if code in LOST_CODES:
            raise LostGpu(why)
        if core and code in FAILED_CODES:
            self._why_unanswered = why
        if code in NEVER_CODES and key not in self._answered:
            self._refused[key] = Refusal(why, inf)
        elif core and key not in self._failed_once:
            # It may be a slip: what every picture needs is asked again at once.
            self._failed_once.add(key)
        else:
            retry_s = self._retry_s.get(key, FIRST_RETRY_S)
            self._refused[key] = Refusal(why, now + retry_s)
            self._retry_s[key] = min(RETRY_S, RETRY_TIMES * retry_s)
        return why

    def note_answer(self, key: object) -> None:
        """Remember that a question was answered."""
        self._answered.add(key)
        if self._retry_s:
            self._retry_s.pop(key, None)

    def text(self, name: str) -> str | None:
        """Return a printable text fact, or None."""
        try:
            return clean_text(str(self.run(name))).strip() or None
        except (pynvml.NVMLError, UnicodeDecodeError):
            return None

    def number(self, name: str, *arguments: Any) -> int | None:
        """Return an unsigned fact, or None where unknown."""
        try:
            value = self.run(name, *arguments)
        except pynvml.NVMLError:
            return None
        return int(value) if value != NO_VALUE else None


class MetricAnswers:
    """Metrics of one read: values by key, and reasons for missing ones."""

    __slots__ = ("missing", "values")

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.missing: dict[str, str] = {}

    def put(self, key: str, value: Any) -> None:
        """Keep a value within the catalogue's bounds, else a reason.

        Never clamps.
        """
        if (value.__class__ is int and value in NO_VALUES) or (
            key == "pstate" and value == PSTATE_UNKNOWN
        ):
            self.missing[key] = "the driver gives no value"
            return
        low, high = BOUNDS[key]
        if value.__class__ is bool or low <= value <= high:
            self.values[key] = value
        else:
            self.missing[key] = f"the driver gives {IMPOSSIBLE} ({value:g})"

    def miss(self, keys: Iterable[str], why: str) -> None:
        """Set the reason why these keys have no value."""
        for key in keys:
            self.missing[key] = why

    def without(self, keys: Iterable[str]) -> MetricAnswers:
        """Return a copy that lacks these keys."""
        copy = MetricAnswers()
        copy.values, copy.missing = self.values.copy(), self.missing.copy()
        for key in keys:
            copy.values.pop(key, None)
            copy.missing.pop(key, None)
        return copy
