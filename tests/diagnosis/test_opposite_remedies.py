"""What is used up is asked for by no remedy beside the badge that says so: every verdict with every such badge."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from gputop.diagnosis.engine import Diagnoser
from gputop.diagnosis.rules import RULES
from gputop.diagnosis.rules.badges import BADGES
from gputop.diagnosis.rules.base import Rule
from gputop.diagnosis.rules.remedy_conditions import ALL_LEFT, Spare
from gputop.diagnosis.rules.remedy_rows import REMEDIES, plain_words
from gputop.model.derived import POWER_CAP, SOFTWARE_THERMAL
from gputop.model.snapshot import Snapshot
from gputop.sources.simulation.scenarios import SCENARIOS
from gputop.sources.simulation.simulated import SimulatedSource
from tests.diagnosis.test_simulated_verdicts import SHORT_PAST_S, Clock
from tests.support.scenes import GIB, Watch, gpu, snap, train

ASKS_FOR = {
    "GPU memory": r"larger batch|keep data on the GPU|fewer GPUs|smaller GPU",
    "one more process": r"(?<!not )(more|raise) (num_)?workers|num_workers=|(?<!not )more (processes|feeders|worker "
    r"proc|\{kind\}|helpers|Ray)|several child processes|load in processes|cache decoded",
    "power": "raise the power limit",
}
USED_UP = {
    "memory_full": "GPU memory", "swap": "one more process", "core_shortage": "one more process", "thermal": "power",
}  # fmt: skip
"""What each badge says that there is too much of."""
NOTHING_LEFT = {name: Spare(False) if isinstance(value, Spare) else value for name, value in ALL_LEFT.items()}


def asked_for(words: str) -> set[str]:
    return {what for what, pattern in ASKS_FOR.items() if re.search(pattern, words)}


def used_up(snapshot: Snapshot) -> Snapshot:
    """The same, with full memory, a host that swaps and has no core free, and heat below the power limit."""
    gpus = tuple(
        replace(
            one,
            mem_used_bytes=0.99 * (one.mem_total_bytes or GIB),
            mem_total_bytes=one.mem_total_bytes or GIB,
            throttle_reasons=POWER_CAP | SOFTWARE_THERMAL,
        )
        for one in snapshot.gpus
    )
    host = replace(
        snapshot.host, swap_used_bytes=20 * GIB, psi_mem_pct=40.0, psi_cpu_pct=80.0, cpu_pct=99.0,
    )  # fmt: skip
    return replace(snapshot, gpus=gpus, host=host)


def test_the_patterns_know_what_is_asked_for_when_all_is_left() -> None:
    rules = [rule.remedy.format(**ALL_LEFT) for rule in RULES] + [plain_words(row) for row in REMEDIES]
    assert sum("GPU memory" in asked_for(words) for words in rules) >= 6
    assert sum("one more process" in asked_for(words) for words in rules) >= 9
    assert {rule.id for rule in BADGES} >= set(USED_UP)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_asks_for_no_memory_where_none_is_left(rule: Rule) -> None:
    words = " ".join(text.format(**NOTHING_LEFT) for text in (rule.remedy, rule.remedy_short))
    assert "GPU memory" not in asked_for(words), words


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name.startswith("dataloader") else pytest.mark.slow) for name in SCENARIOS]
)
def test_no_verdict_asks_for_what_a_badge_beside_it_has_used_up(name: str) -> None:
    source, diagnoser = SimulatedSource(name, clock=Clock()), Diagnoser()
    for snapshot in source.past(SHORT_PAST_S):
        for d in diagnoser.observe(used_up(snapshot)):
            gone = {what for badge in d.badges if badge.remedy and (what := USED_UP.get(badge.id))}
            asked = {what for badge in d.badges for what in asked_for(badge.remedy)}
            if snapshot.t >= Clock().t - 60.0:
                asked |= asked_for(f"{d.remedy} {d.remedy_short}")
            assert not gone & asked, (d.verdict, d.remedy, d.badges)


def test_heat_beside_a_power_cap_that_was_there_before_leaves_one_of_them() -> None:
    watch = Watch()
    for tick in range(60):
        hot = SOFTWARE_THERMAL if tick >= 30 else 0
        sample = gpu(util=99.0, sm=92.0, sm_clock_mhz=1000.0, power_w=690.0, throttle_reasons=POWER_CAP | hot)
        said = watch.feed([snap(tick, sample, [train()])])
        assert {"thermal", "power_capped"} - {badge.id for badge in said.badges}, tick
