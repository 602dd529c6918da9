"""Rules for work that a bus limits: memory bandwidth, communication."""

from __future__ import annotations

from gputop.diagnosis import thresholds
from gputop.diagnosis.rules.base import Rule, RuleResult
from gputop.diagnosis.rules.busy_words import or_stuck, util_words
from gputop.diagnosis.rules.remedy_words import HIDE_COMMUNICATION
from gputop.diagnosis.signals import Signals
from gputop.model.quantity import pct, share


def _tell_memory(s: Signals) -> RuleResult:
    return RuleResult(
        (
            f"DRAM {pct(s.mean.dram)} of its peak, {util_words(s)}, SM {pct(s.mean.sm)}, tensor {pct(s.mean.tensor)}",
        ),
        confidence="high" if s.util_pct >= thresholds.HALF_UTIL.leave else "medium",
    )


MEMORY_BANDWIDTH = Rule(
    id="memory_bandwidth",
    title="memory-bandwidth-bound",
    condition=f"util ≥ {thresholds.MEMORY_UTIL:.0f} %; DRAM / util ≥ {thresholds.MEMORY_RATIO:g} (leaves at "
    f"{thresholds.MEMORY_RATIO.leave:g}); where util is not measured: DRAM ≥ {thresholds.MEMORY_DRAM:.0f} % of its "
    f"peak",
    state="working",
    role="information",
    matches=lambda s: s.conditions.memory,
    tell=_tell_memory,
    remedy="usually inherent (decode): {gpu_memory:larger batch, }FlashAttention, fusion, quantised weights and KV "
    "cache",
    remedy_short="{gpu_memory:larger batch, }fp8 KV",
    checked="decoding on real GPUs has DRAM / util 0.650–0.698; the nearest load that is not memory-bound, tuned "
    "training on an H100, 0.595",
)


def _tell_communication(s: Signals) -> RuleResult:
    certain = s.conditions.moves_data
    if s.mean.nvlink is not None and s.mean.nvlink >= thresholds.COMM_NVLINK.leave:
        line = f"NVLink {share(s.mean.nvlink)}, "
    elif certain:
        line = f"PCIe RX {share(s.mean.pcie_rx)} and TX {share(s.mean.pcie_tx)}, "
    else:
        line = f"NCCL threads, DRAM {pct(s.mean.dram)}, "
    line += f"SM {pct(s.mean.sm)}, tensor {pct(s.mean.tensor)}"
    if s.mean.power is not None:
        line += f", power {share(s.mean.power)}"
    notes = ("suspected: the traffic itself was not measured",) if not certain else ()
    if s.waits_for is not None:
        notes = (*notes, f"it may be waiting for GPU {s.waits_for}: see the straggler badge")
    notes = (*notes, *or_stuck(s))
    evidence = (line,) if s.fabric is None else (line, *s.fabric.evidence())
    title = None if certain else "communication (suspected)"
    return RuleResult(evidence, confidence="high" if certain else "low", notes=notes, title=title)


COMMUNICATION = Rule(
    id="communication",
    title="communication",
    condition=f"A, B or C; tensor < {thresholds.COMM_TENSOR:.0f} %; NVLink ≥ {100 * thresholds.COMM_NVLINK:.0f} %, "
    f"or PCIe ≥ "
    f"{100 * thresholds.COMM_PCIE:.0f} % both ways; suspected without that traffic: NCCL threads run, DRAM < "
    f"{thresholds.COMM_DRAM:.0f} %, power < {100 * thresholds.COMM_POWER:.0f} % of its limit",
    state="busy_not_working",
    matches=lambda s: (
        s.flag is not None and (s.conditions.moves_data or (s.tick.nccl and s.conditions.rests))
    ),
    tell=_tell_communication,
    remedy=HIDE_COMMUNICATION,
    remedy_short="overlap, bucket_cap_mb",
    checked="simulated loads alone: no real load that was recorded waits so long in its collectives",
)
