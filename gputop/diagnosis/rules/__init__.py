"""The rules, in the order in which they are tried.

To add one, define it in its family's file and list it here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gputop.diagnosis.rules.bandwidth import COMMUNICATION, MEMORY_BANDWIDTH
from gputop.diagnosis.rules.base import Rule
from gputop.diagnosis.rules.dataloader import DATALOADER_CPU, DATALOADER_DISK, DATALOADER_NETWORK
from gputop.diagnosis.rules.gates import COLLECTING, STARTUP
from gputop.diagnosis.rules.half_working import HALF_WORKING, NO_TENSOR_CORES
from gputop.diagnosis.rules.holds_up import HOLDS_UP
from gputop.diagnosis.rules.idle import IDLE, IDLE_HOLDING_MEMORY, STOPPED
from gputop.diagnosis.rules.low_clock import LOW_CLOCK
from gputop.diagnosis.rules.low_sm import LOW_SM, SMALL_KERNELS
from gputop.diagnosis.rules.main_process import MAIN_PROCESS
from gputop.diagnosis.rules.serving import KV_CACHE_FULL, LOW_DEMAND, LOW_DEMAND_OF_JOB
from gputop.diagnosis.rules.starved import CHECKPOINT_PAUSE, PCIE_TRANSFER, WORKER_RESTART
from gputop.diagnosis.rules.stuck import HANG, STALLED
from gputop.diagnosis.rules.turns import TAKE_FAST_TURNS, TAKE_TURNS
from gputop.diagnosis.rules.unattributed import STARVED_UNATTRIBUTED
from gputop.diagnosis.rules.working import HEALTHY, NO_BOTTLENECK_SEEN, WORKING
from gputop.diagnosis.types import VerdictId

GATES: tuple[Rule, ...] = (COLLECTING, STARTUP)
IDLE_FAMILY: tuple[Rule, ...] = (IDLE_HOLDING_MEMORY, IDLE)
STARVED: tuple[Rule, ...] = (
    TAKE_TURNS,
    KV_CACHE_FULL,
    LOW_DEMAND,
    CHECKPOINT_PAUSE,
    WORKER_RESTART,
    PCIE_TRANSFER,
    DATALOADER_DISK,
    DATALOADER_CPU,
    TAKE_FAST_TURNS,
    MAIN_PROCESS,
    DATALOADER_NETWORK,
)
UNATTRIBUTED: tuple[Rule, ...] = (STOPPED, STARVED_UNATTRIBUTED)
BUSY: tuple[Rule, ...] = (
    HANG,
    MEMORY_BANDWIDTH,
    COMMUNICATION,
    SMALL_KERNELS,
    LOW_SM,
    STALLED,
    LOW_CLOCK,
    NO_TENSOR_CORES,
    HALF_WORKING,
)
END: tuple[Rule, ...] = (HEALTHY, WORKING, NO_BOTTLENECK_SEEN)

CAUSES: tuple[Rule, ...] = (
    HOLDS_UP,
    LOW_DEMAND_OF_JOB,
    TAKE_TURNS,
    *IDLE_FAMILY,
    *STARVED,
)
"""Tried first, turns before idle: a GPU idles between two of them. A named cause of starvation goes before A/B: SM
cannot exceed util."""
WORKS: tuple[Rule, ...] = BUSY + END
RULES: tuple[Rule, ...] = GATES + CAUSES + UNATTRIBUTED + WORKS
"""All that can hold."""
RULE_OF: Mapping[VerdictId, Rule] = MappingProxyType({rule.id: rule for rule in RULES})
"""The words of each verdict: rules that give the same one differ in what they ask alone."""
