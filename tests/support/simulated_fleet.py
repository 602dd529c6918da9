"""A small exporter of a large fleet, under each generation of names: 800 GPUs, and a host for each thing that can be.

One page holds all hosts; it is scraped with honor_labels, so that each GPU has its own host.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from http.server import BaseHTTPRequestHandler
from typing import Any

from gputop.diagnosis.types import STATES
from gputop.features.fleet.exporter_names import DIALECTS
from gputop.features.fleet.promql import ALL_NAMES, Names
from tests.support.answering import Answer, answering
from tests.support.planted_alerts import gpu_labels, signal_series

JOBS, GPUS = 100, 8
SLOW, STARVED = ("sim5", "3"), ("sim7", "2")
"""Host and GPU of the planted stragglers."""
ORDINARY = {
    "util": 0.97, "sm": 0.7, "occupancy": 0.3, "tensor": 0.4, "dram": 0.5, "engine": 0.97, "power": 600.0,
    "power_limit": 700.0, "temp": 60.0, "memory": 4e10, "memory_total": 8e10, "clock": 1.5e9, "pcie_rx": 2e9,
    "pcie_tx": 1e9, "pcie_gen": 5.0, "pcie_width": 16.0, "nvlink_rx": 2e10,
}  # fmt: skip
FATES: tuple[Mapping[str, float | None], ...] = (
    {"temp": 90.0},
    {"dram": 0.75},
    {"pcie_rx": 3e9, "dram": 0.05},
    {"sm": 0.1},
    {"util": 0.4, "sm": 0.3},
    {"util": 0.0, "sm": 0.0},
    {"util": 0.0, "sm": 0.0, "memory": 1e8},
    {"sm": None, "occupancy": None, "tensor": None, "dram": None},
    {"util": 0.0, "sm": 0.0, "memory": 1e8},
)
"""What the GPUs of the host ``fates`` do, where they are not ordinary."""
FREE, UNUSED = 6, 8
"""Of these the one that nobody has, and the one that a job has and does not use."""
VERDICTS = ("healthy", "memory_bandwidth", "pcie_transfer", "communication", "dataloader_cpu", "idle_holding_memory",
            "idle", "no_bottleneck_seen", "idle")  # fmt: skip
OWN_STATES = ("working", "working", "starved", "busy_not_working", "starved", "idle_allocated", "idle", "unmeasured",
              "idle")  # fmt: skip


@lru_cache(maxsize=4)
def _steady(names: Names) -> str:
    """The lines that do not change."""
    noise = random.Random(11)
    lines: list[str] = []
    for job in range(JOBS):
        for index in range(GPUS):
            util, sm = 0.97 + noise.uniform(-0.02, 0.02), 0.6 + noise.uniform(-0.05, 0.05)
            if f"sim{job}" in (SLOW[0], STARVED[0]):
                util, sm = 0.98, 0.12 + noise.uniform(-0.02, 0.02)
            if (f"sim{job}", str(index)) == SLOW:
                util, sm = 0.99, 0.9
            if (f"sim{job}", str(index)) == STARVED:
                util, sm = 0.4, 0.35
            labels = _labels(names, f"sim{job}", index, str(1000 + job))
            for short, value in (("util", util), ("sm", sm)):
                lines += _lines(signal_series(names, short, value, labels))
            if names == "gputop":
                info = f'{labels},scheduler="slurm",job_id="{1000 + job}",user="u{job % 7}"'
                lines.append(f"gputop_job_info{{{info}}} 1\n")
    for index, fate in enumerate(FATES):
        labels = _labels(names, "fates", index, "" if index == FREE else "7")
        for short, value in {**ORDINARY, **fate}.items():
            if value is not None:
                lines += _lines(signal_series(names, short, value, labels))
        if names == "gputop":
            lines += _own(labels, index)
    if names == "gputop":
        # A file that nobody writes any more.
        dead = 'instance="dead:9401",job="gputop"'
        lines += [f"gputop_up{{{dead}}} 1\n", f"gputop_last_sample_timestamp_seconds{{{dead}}} 1\n"]
    host = f'{DIALECTS[names].hosts[0]}="fates"'
    if names != "gputop":
        lines.append(f'DCGM_FI_DEV_ROW_REMAP_FAILURE{{{host},gpu="0",UUID="GPU-fates-0"}} 1\n')
        lines.append(f'DCGM_FI_DEV_XID_ERRORS{{{host},gpu="0",UUID="GPU-fates-0"}} 79\n')
    return "".join(lines)


def _labels(names: Names, host: str, index: int, job: str = "") -> str:
    """Those of a GPU that no other exporter has: of one that has two the rules record one."""
    return gpu_labels(names, host, index, job).replace("GPU-", f"GPU-{names}-")


def _own(labels: str, index: int) -> list[str]:
    """What only gputop tells of a GPU."""
    lines = [
        f'gputop_gpu_verdict{{{labels},verdict="{VERDICTS[index]}"}} 1\n',
        f'gputop_gpu_state{{{labels},state="{OWN_STATES[index]}"}} 1\n',
        f'gputop_sm_source{{{labels},source="{"bound" if index == 7 else "gpm"}"}} 1\n',
        f"gputop_gpu_idle_ratio{{{labels}}} 0.5\n",
        f"gputop_loader_queued_ratio{{{labels}}} 0.4\ngputop_loader_disk_ratio{{{labels}}} 0.3\n",
    ]
    if index == UNUSED:
        lines.append(
            f'gputop_pod_info{{{labels},k8s_namespace_name="ml",k8s_pod_name="batch-0"}} 1\n'
        )
    elif index != FREE:
        lines.append(f'gputop_job_info{{{labels},scheduler="slurm",job_id="7",user="ml"}} 1\n')
    if index == 0:
        lines.append(
            f"gputop_gpu_remap_pending{{{labels}}} 1\ngputop_gpu_remap_failed{{{labels}}} 0\n"
        )
        lines.append(f"gputop_gpu_lost{{{labels}}} 1\n")
        lines.append('gputop_up{instance="fates:9401",job="gputop"} 0\n')
    return lines


def page(names: Names, age_s: float) -> str:
    """The page so many seconds after the fleet began."""
    lines = [_steady(names)]
    for index in range(len(FATES)):
        labels = _labels(names, "fates", index, "" if index == FREE else "7")
        lines += _lines(signal_series(names, "energy", 1e6 + 600.0 * age_s, labels))
        lines += _lines(signal_series(names, "ecc", float(int(age_s / 3)), labels))
        if names == "gputop":
            for state in STATES:
                lines.append(
                    f'gputop_gpu_state_seconds_total{{{labels},state="{state}"}} {age_s / 6:.3f}\n'
                )
            lines.append(
                f'gputop_gpu_throttle_seconds_total{{{labels},reason="hardware_thermal"}} {age_s / 2:.3f}\n'
                f'gputop_gpu_xid_errors_total{{{labels},xid="79"}} {int(age_s / 3)}\n'
            )
            slower = 1.5 if index == 3 else 1.0
            rank = f'instance="fates:9401",job="gputop",gpu="{index}",rank="{index}",job_id="7"'
            lines.append(
                f"gputop_step_seconds_sum{{{rank}}} {age_s * slower:.3f}\n"
                f"gputop_step_seconds_count{{{rank}}} {int(age_s * 2)}\n"
                f"gputop_step_wait_seconds_sum{{{rank}}} {age_s * (0.1 if index == 3 else 0.4):.3f}\n"
                f"gputop_step_wait_seconds_count{{{rank}}} {int(age_s * 2)}\n"
                f"gputop_step_samples_total{{{rank}}} {int(age_s * 128)}\n"
            )
    if age_s < 12.0:
        labels = _labels(names, "fates", len(FATES))
        lines += _lines(signal_series(names, "util", 0.9, labels))
    return "".join(lines)


def _lines(series: Mapping[str, Any]) -> list[str]:
    return [f"{name} {value!r}\n" for name, value in series.items()]


@contextmanager
def fleet() -> Iterator[int]:
    """The port of the exporter: ``/legacy``, ``/4.9`` and ``/gputop``."""
    begun = time.monotonic()

    def answer(asked: BaseHTTPRequestHandler, _: bytes) -> Answer:
        names = next(names for names in ALL_NAMES if asked.path == f"/{names}")
        body = page(names, time.monotonic() - begun).encode()
        return 200, body, {"Content-Type": "text/plain; version=0.0.4"}

    with answering(answer) as port:
        yield port
