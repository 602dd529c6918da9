"""The diagnosis that GPUs of the demo's scenarios must reach, and after how many seconds."""

from __future__ import annotations

from typing import NamedTuple


class Expected(NamedTuple):
    """One GPU: its verdict, what kind of busy without work it is, and all of its badges."""

    gpu: int
    verdict: str
    flag: str | None
    badges: tuple[str, ...]
    after_s: float


_TABLE = """
scenario                  gpu  verdict               flag  badge          after_s
node                        0  small_kernels         A     –                   40
node                        1  healthy               –     –                   40
node                        2  healthy               –     –                   40
node                        3  dataloader_cpu        –     –                   40
node                        4  communication         A     –                   40
node                        5  memory_bandwidth      –     –                   40
node                        6  dataloader_io         –     –                   40
node                        7  idle_holding_memory   –     –                   40
remedied                    0  healthy               –     –                   40
remedied                    1  healthy               –     –                   40
remedied                    2  healthy               –     –                   40
remedied                    3  healthy               –     –                   40
remedied                    4  healthy               –     –                   40
remedied                    5  healthy               –     –                   40
remedied                    6  healthy               –     –                   40
remedied                    7  idle                  –     –                   40
healthy                     0  healthy               –     –                   40
small_kernels               0  small_kernels         A     –                   40
communication               0  communication         A     fabric_errors       40
useful_work                 0  healthy               –     –                   40
useful_work                 1  low_demand            –     –                   40
step_time                   0  healthy               –     –                   40
dataloader_cpu              0  dataloader_cpu        –     –                   40
dataloader_cpu_throttled    0  dataloader_cpu        –     cpu_limit           40
uneven_workers              0  dataloader_cpu        –     –                   40
dataloader_io               0  dataloader_io         –     –                   40
dataloader_network          0  dataloader_io         –     –                   40
main_process                0  main_process          –     –                   40
pcie_transfer               0  pcie_transfer         –     –                   40
worker_restart              0  worker_restart        –     –                   40
checkpoint_pause            0  checkpoint_pause      –     –                   40
starved_unattributed        0  starved_unattributed  –     –                   40
low_demand                  0  low_demand            –     –                   40
memory_bandwidth            0  memory_bandwidth      –     –                   40
no_tensor_cores             0  no_tensor_cores       –     –                   40
half_working                0  half_working          –     –                   40
half_working                1  half_working          –     –                   40
hollow                      0  small_kernels         C     –                   40
stalled                     0  stalled               –     –                   40
low_sm                      0  low_sm                A     –                   40
no_sm_counter               0  no_bottleneck_seen    –     –                   40
idle_holding_memory         0  idle_holding_memory   –     –                   40
thermal                     0  healthy               –     thermal             40
memory_leak                 0  healthy               –     memory_leak         40
straggler                   2  healthy               –     straggler           40
straggler                   0  half_working          –     straggler           40
straggler                   1  half_working          –     straggler           40
straggler                   3  half_working          –     straggler           40
hang                        0  hang                  A     –                   40
hang                        1  hang                  A     –                   40
hang                        3  hang                  A     –                   40
hang                        2  idle                  –     –                   40
fabric_link                 0  healthy               –     fabric_errors       40
fabric_link                 1  healthy               –     fabric_errors       40
lost_gpu                    0  healthy               –     –                   40
lost_gpu                    2  collecting            –     lost                75
counter_fault               0  no_bottleneck_seen    –     counter_fault       40
one_gpu                     0  dataloader_cpu        –     –                   40
mig                         1  healthy               –     –                   40
mig                         2  healthy               –     –                   40
sixteen                     0  small_kernels         A     –                   40
sixteen                     1  healthy               –     –                   40
sixteen                     2  healthy               –     –                   40
sixteen                     3  dataloader_cpu        –     –                   40
sixteen                     4  communication         A     –                   40
sixteen                     5  memory_bandwidth      –     –                   40
sixteen                     6  dataloader_io         –     –                   40
sixteen                     7  idle_holding_memory   –     –                   40
power_capped                0  healthy               –     power_capped        40
ecc                         0  healthy               –     ecc                 40
pid_namespace               0  starved_unattributed  –     –                   40
unified_memory              0  healthy               –     –                   40
asleep                      0  no_bottleneck_seen    –     –                   40
asleep                      1  collecting            –     –                   40
shared_gpu                  0  healthy               –     shared_gpu          40
"""


def _read() -> dict[str, tuple[Expected, ...]]:
    found: dict[str, tuple[Expected, ...]] = {}
    for line in _TABLE.split("\n")[2:-1]:
        name, gpu, verdict, flag, badge, after_s = line.split()
        badges = () if badge == "–" else (badge,)
        row = Expected(int(gpu), verdict, None if flag == "–" else flag, badges, float(after_s))
        found[name] = (*found.get(name, ()), row)
    return found


EXPECTED = _read()
"""By scenario; the first one is what it shows."""
