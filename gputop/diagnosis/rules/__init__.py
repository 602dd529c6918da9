"""The rules, in the order in which they are tried. To add one, define it in its family's file and list it here."""

from __future__ import annotations

from gputop.diagnosis.rules import badges_gpu, badges_host
from gputop.diagnosis.rules.base import BadgeRule, Rule
from gputop.diagnosis.rules.busy import (
    COMMUNICATION,
    LOW_OCCUPANCY,
    LOW_SM,
    MEMORY_BANDWIDTH,
    NO_TENSOR_CORES,
    SMALL_KERNELS,
)
from gputop.diagnosis.rules.dataloader import DATALOADER_CPU, DATALOADER_DISK, DATALOADER_NETWORK
from gputop.diagnosis.rules.end import HEALTHY, NO_BOTTLENECK_SEEN, WORKING
from gputop.diagnosis.rules.gates import COLLECTING, STARTUP
from gputop.diagnosis.rules.idle import IDLE, IDLE_HOLDING_MEMORY, STOPPED
from gputop.diagnosis.rules.main_process import MAIN_PROCESS
from gputop.diagnosis.rules.starved import (
    CHECKPOINT_PAUSE,
    LOW_DEMAND,
    PCIE_TRANSFER,
    WORKER_RESTART,
)
from gputop.diagnosis.rules.unattributed import STARVED_UNATTRIBUTED

GATES: tuple[Rule, ...] = (COLLECTING, STARTUP)
IDLE_FAMILY: tuple[Rule, ...] = (IDLE_HOLDING_MEMORY, IDLE)
STARVED: tuple[Rule, ...] = (
    LOW_DEMAND,
    CHECKPOINT_PAUSE,
    WORKER_RESTART,
    PCIE_TRANSFER,
    DATALOADER_DISK,
    DATALOADER_CPU,
    MAIN_PROCESS,
    DATALOADER_NETWORK,
)
UNATTRIBUTED: tuple[Rule, ...] = (STOPPED, STARVED_UNATTRIBUTED)
BUSY: tuple[Rule, ...] = (
    MEMORY_BANDWIDTH,
    COMMUNICATION,
    SMALL_KERNELS,
    LOW_SM,
    NO_TENSOR_CORES,
    LOW_OCCUPANCY,
)
END: tuple[Rule, ...] = (HEALTHY, WORKING, NO_BOTTLENECK_SEEN)

CAUSES: tuple[Rule, ...] = GATES + IDLE_FAMILY + STARVED
"""Tried first. A named cause of starvation goes before A/B: SM cannot exceed util."""
WORKS: tuple[Rule, ...] = BUSY + END

BADGES: tuple[BadgeRule, ...] = (
    badges_gpu.ECC,
    badges_gpu.THERMAL,
    badges_gpu.POWER_BRAKE,
    badges_gpu.XID,
    badges_gpu.COUNTER_FAULT,
    badges_gpu.MEMORY_LEAK,
    badges_gpu.MEMORY_FULL,
    badges_gpu.STRAGGLER,
    badges_gpu.PCIE_DEGRADED,
    badges_host.FABRIC_ERRORS,
    badges_host.CORE_SHORTAGE,
    badges_host.CPU_LIMIT,
    badges_host.SWAP,
    badges_gpu.POWER_CAPPED,
    badges_gpu.STOP_START,
    badges_host.SHARED_GPU,
)
"""In the order in which they are shown: what stops a GPU comes first."""
