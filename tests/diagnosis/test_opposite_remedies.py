"""What is used up is asked for by no remedy: GPU memory where it is full, power where the GPU is hot."""

from __future__ import annotations

import re

from gputop.diagnosis.rules import RULES
from gputop.diagnosis.rules.remedy_words import ALL_LEFT, Spare
from gputop.model.derived import POWER_CAP, SOFTWARE_THERMAL
from tests.support.scenes import Watch, gpu, snap, train

FOR_MEMORY = re.compile(r"larger batch|keep data on the GPU|fewer GPUs|smaller GPU")
NOTHING_LEFT = {
    name: Spare(False) if isinstance(value, Spare) else value for name, value in ALL_LEFT.items()
}


def test_a_rule_asks_for_memory_where_some_is_left_alone() -> None:
    some, none = (
        [
            rule.id
            for rule in RULES
            if FOR_MEMORY.search(f"{rule.remedy} | {rule.remedy_short}".format(**left))
        ]
        for left in (ALL_LEFT, NOTHING_LEFT)
    )
    assert len(some) >= 5 and none == []


def test_heat_beside_a_power_cap_that_was_there_before_leaves_one_of_them() -> None:
    watch = Watch()
    for tick in range(60):
        hot = SOFTWARE_THERMAL if tick >= 30 else 0
        sample = gpu(
            util=99.0, sm=92.0, sm_clock_mhz=1000.0, power_w=690.0, throttle_reasons=POWER_CAP | hot
        )
        said = watch.feed([snap(tick, sample, [train()])])
        assert {"thermal", "power_capped"} - {badge.id for badge in said.badges}, tick
