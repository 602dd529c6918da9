"""False alarms on healthy but noisy GPUs.

Every GPU is busy and well used all the time: util wanders between 85 and 100 % and SM with it (autoregressive, 0.9 from
second to second), power, clocks, memory traffic and PCIe wander too, and the host's CPUs, main threads and dataloader
workers do what they like. Whatever yellow or red verdict or badge appears is false. One simulated hour is 3,600
ticks of one GPU through ``Diagnoser.observe``, none left out.
"""

from __future__ import annotations

import random
from typing import Any

from gputop.diagnosis.engine import Diagnoser
from gputop.model.feeders import main_looks
from gputop.model.snapshot import (
    FeedTime,
    GpuSample,
    GpuStatic,
    HostSample,
    Machine,
    ProcessSample,
    ProcessStatic,
    Snapshot,
)

MACHINE = Machine("noise")
PERSISTENCE = 0.9

WAITS = ("queue", "lock", "sleep", "network", "pipe", "disk", "run")
FED_STATES = 7
"""Those of a feeder that are not about what could not be seen."""


class Wander:
    """An autoregressive walk, reflected into its range."""

    def __init__(self, rng: random.Random, low: float, high: float) -> None:
        self._rng = rng
        self._low, self._high = low, high
        self._middle, self._step = (low + high) / 2, (high - low) / 6
        self._value = rng.uniform(low, high)

    def next(self) -> float:
        noise = self._rng.gauss(0.0, self._step)
        value = self._middle + PERSISTENCE * (self._value - self._middle) + noise
        self._value = min(self._high, max(self._low, value))
        return self._value


class NoisyGpu:
    """One healthy GPU, its training process and two workers."""

    def __init__(self, rng: random.Random, index: int) -> None:
        self._rng = rng
        self._static = GpuStatic(index, f"GPU-{index}", "H100", nvlink_peak_bytes_per_s=450e9, mig_enabled=False)
        self._util = Wander(rng, 85.0, 100.0)
        self._ratio = Wander(rng, 0.75, 1.0)
        self._tensor = Wander(rng, 15.0, 60.0)
        self._dram = Wander(rng, 15.0, 58.0)
        self._power = Wander(rng, 400.0, 690.0)
        self._clock = Wander(rng, 1500.0, 1980.0)
        self._pcie = Wander(rng, 0.0, 12e9)
        self._main = Wander(rng, 0.0, 100.0)
        self._workers = [Wander(rng, 0.0, 100.0) for _ in range(2)]
        self._index = index
        self._train = ProcessStatic(user="ml", command=f"python train.py --seed {index}", name="python")
        self._loader = ProcessStatic(user="ml", command="python train.py", name="python", loader="torch")
        self._memory = Wander(rng, 50e9, 70e9)

    def sample(self) -> GpuSample:
        util = self._util.next()
        used = self._memory.next()
        return GpuSample(
            static=self._static,
            util_pct=util,
            sm_active_pct=util * self._ratio.next(),
            sm_occupancy_pct=35.0,
            tensor_active_pct=self._tensor.next(),
            dram_active_pct=self._dram.next(),
            fp32_active_pct=20.0,
            mem_used_bytes=used,
            mem_total_bytes=80e9,
            power_w=self._power.next(),
            power_limit_w=700.0,
            sm_clock_mhz=self._clock.next(),
            sm_clock_max_mhz=1980.0,
            pcie_rx_bytes_per_s=self._pcie.next(),
            pcie_tx_bytes_per_s=1e8,
            pcie_gen=5,
            pcie_gen_max=5,
            pcie_width=16,
            pcie_width_max=16,
            nvlink_rx_bytes_per_s=1e9,
            throttle_reasons=0x4 if self._rng.random() < 0.5 else 0,
            ecc_uncorrected=2,
            sm_source="gpm",
        )

    def processes(self, tick: int, memory: float) -> list[ProcessSample]:
        main = self._main.next()
        pid = 4000 + 100 * self._index
        rows = [
            ProcessSample(
                pid=pid,
                starttime=7000,
                ppid=1,
                role="gpu",
                gpu=self._index,
                gpu_mem_bytes=memory,
                cpu_pct=main,
                main_run_pct=main,
                main_wait_pct=0.0,
                state="D" if self._rng.random() < 0.05 else "S",
                write_bytes_per_s=self._rng.random() * 80e6,
                read_bytes_per_s=0.0,
                throttled_pct=0.0,
                nccl=True,
                age_s=3600.0 + tick,
                feeder_threads=8,
                main_looks=main_looks((self._rng.choice(WAITS), 1) for _ in range(2)),
                listens=self._rng.random() < 0.01,
                **self._feed(self._rng.random() < 0.7),
                static=self._train,
            )
        ]
        for number, worker in enumerate(self._workers):
            run = worker.next()
            rows.append(
                ProcessSample(
                    pid=pid + 1 + number,
                    starttime=7100,
                    ppid=pid,
                    role="loader",
                    gpu=self._index,
                    cpu_pct=run,
                    run_pct=run * 0.7,
                    wait_pct=run * 0.3,
                    state=self._rng.choice("RSSD"),
                    age_s=3600.0 + tick,
                    **self._feed(True),
                    static=self._loader,
                )
            )
        return rows

    def _feed(self, is_read: bool) -> dict[str, Any]:
        """What a feeder did: anything at all, and something different in each sample."""
        if not is_read:
            return {}
        parts = [self._rng.random() for _ in range(FED_STATES + 1)]
        time = FeedTime(*(100.0 * part / sum(parts) for part in parts[:FED_STATES]))
        return {"feed": time, "feed_by": self._rng.choice((None, "socket", "child", "thread"))}


def false_alarms(hours: float, seed: int, gpus: int = 8) -> list[str]:
    """Ids of the yellow and red findings in so many GPU-hours."""
    rng = random.Random(seed)
    machine = [NoisyGpu(rng, index) for index in range(gpus)]
    cpu, pressure = Wander(rng, 5.0, 100.0), Wander(rng, 0.0, 80.0)
    diagnoser = Diagnoser()
    found: list[str] = []
    seen = 0.0
    for tick in range(round(hours * 3600 / gpus)):
        samples = tuple(gpu.sample() for gpu in machine)
        rows = tuple(
            row
            for gpu, sample in zip(machine, samples, strict=True)
            for row in gpu.processes(tick, sample.mem_used_bytes or 0.0)
        )
        host = HostSample(cpu_pct=cpu.next(), psi_cpu_pct=pressure.next(), swap_used_bytes=0.0)
        t = 1.78e9 + tick
        diagnoser.observe(Snapshot(t=t, machine=MACHINE, gpus=samples, processes=rows, host=host))
        findings = diagnoser.findings()
        if findings and findings[-1].t > seen:
            fresh = [finding for finding in findings if finding.t > seen]
            found.extend(f"{finding.kind} {finding.id}" for finding in fresh if finding.level in ("yellow", "red"))
            seen = findings[-1].t
    return found
