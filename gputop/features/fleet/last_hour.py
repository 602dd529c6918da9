"""Read the GPU time lost in the last hour, by rules or samples.

Records are read once a minute. Without rules the hour is judged from samples every five minutes, beside the screen and
not before its first frame.
"""

from __future__ import annotations

from math import floor

from gputop.features.fleet import state_rules
from gputop.features.fleet.engine import Engine, values
from gputop.features.fleet.engine_client import PromQuery
from gputop.features.fleet.fleet_reading import HOUR_S, LastHour
from gputop.features.fleet.gpu_inventory import FleetInventory
from gputop.features.fleet.hour_samples import MOST_GPUS, read_hour
from gputop.features.fleet.label_cache import LabelCache
from gputop.features.fleet.promql import selector
from gputop.features.fleet.recorded_labels import HostNames, RecordedHost, lost_of, recorded_host
from gputop.model.quantity import count

RULES_EVERY_S, SAMPLES_EVERY_S = 60.0, 300.0
"""Seconds between two readings of the hour."""
MINUTE_S = 60.0


def over_minutes(function: str, series: str) -> str:
    """A sum or count over an hour of a series recorded once a minute.

    Takes the last sample of each minute: two writers of one engine record each minute twice.
    """
    return f"{function}(last_over_time({series}[59999ms])[{1000.0 * HOUR_S - 1.0:.0f}ms:1m])"


def lost_hours_of(select: str) -> str:
    """GPU-hours of the last hour that were no work, by host, owner and state."""
    return f"{over_minutes('sum_over_time', selector(state_rules.HOST_LOST, select))} / 60"


class HourReader:
    """Keeps the newest reading of the last hour."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._recorded: LabelCache[RecordedHost] = LabelCache(recorded_host)
        self._end, self._hour, self._every_s = 0.0, LastHour(), 0.0

    def known(self, t: float) -> LastHour | None:
        """The hour before ``t`` if it was read."""
        return self._hour if 0.0 <= t - self._end < self._every_s + MINUTE_S else None

    def read(self, t: float, names: HostNames, inventory: FleetInventory) -> LastHour | None:
        """The hour before ``t``; None if it was not answered.

        ``inventory`` gives the GPUs whose samples are judged if no rules record the hour.
        """
        if (hour := self.known(t)) is not None:
            return hour
        end = floor(t / MINUTE_S) * MINUTE_S
        hour, every_s = self._by_rules(end, names), RULES_EVERY_S
        if hour is not None and not hour.span_s:
            hour, every_s = self._by_samples(end, inventory), SAMPLES_EVERY_S
        if hour is not None:
            self._end, self._hour, self._every_s = end, hour, every_s
        return hour

    def _by_rules(self, end: float, names: HostNames) -> LastHour | None:
        select = self._engine.select
        # Minutes in which the rules recorded GPUs, whether or not these lost any time.
        minutes = f"max({over_minutes('count_over_time', selector(state_rules.HOST_ADDRESS, select))})"
        questions = {"lost": PromQuery(lost_hours_of(select), end), "minutes": PromQuery(minutes, end)}
        answers = self._engine.asked(questions)
        if len(answers.rows) < len(questions):
            return None
        self._recorded.turn()
        recorded = max((value for _, value in values(answers.rows_of("minutes"), self._recorded)), default=0.0)
        lost = lost_of(list(values(answers.rows_of("lost"), self._recorded)), names)
        return LastHour(lost, min(HOUR_S, MINUTE_S * recorded), source="rules")

    def _by_samples(self, end: float, inventory: FleetInventory) -> LastHour:
        if (gpus := len(inventory.identities)) > MOST_GPUS:
            return LastHour(
                note=f"the last hour of {count(gpus, 'GPU')} takes the rules of `gputop fleet deploy`: load them"
            )
        hour = read_hour(self._engine, inventory, end)
        return LastHour(note="the last hour could not be read from samples") if hour is None else hour
