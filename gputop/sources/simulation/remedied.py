"""The default machine once more, after the remedy of each GPU was applied: what the tour of the demo shows."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.sources.simulation import node
from gputop.sources.simulation.life import Cpu, GpuLife, HostLife, Load, NodeLife, Workers

HELD_BY_NOBODY_GIB = 0.6
"""What the driver keeps for itself on a GPU without processes."""
RELIEVED_HOST = HostLife(66, 3, 0.6, disk_read_mb=480, disk_write_mb=2, net_rx_mb=1100, net_tx_mb=210)


def remedied(gpus: int = 8) -> NodeLife:
    """The same node with every remedy applied; the GPUs that had none go on as they were."""
    fates = (_whole_batches(), node.healthy(0), node.healthy(1), _fed(), _overlapped(), _batched(), _local(), freed())
    return NodeLife(fates[:gpus], host=RELIEVED_HOST)


def freed() -> GpuLife:
    """A GPU that nobody holds."""
    return GpuLife(Load(power_w=69), HELD_BY_NOBODY_GIB, 31)


def _whole_batches() -> GpuLife:
    life = node.small_kernels()
    job = replace(life.jobs[0], command="python rl.py --batch 512 --cuda-graphs", memory_gib=66.3)
    return replace(life, busy=Load(97, 86, 36, 38, 44, 20, 602, 2.4, 0.3), used_gib=69.4, temp_c=62, jobs=(job,))


def _fed() -> GpuLife:
    """Decoding has left the CPU: the loaders only pass data on, and wait for the GPU."""
    life = node.dataloader_cpu()
    job = replace(
        life.jobs[0],
        command="python train.py --aug gpu",
        busy=node.SPINNING,
        rest=None,
        workers=Workers(8, Cpu(24.0, waits="queue")),
    )
    return _steady(replace(life, busy=Load(97, 88, 46, 38, 46, 18, 640, 12.2, 0.5), temp_c=61, jobs=(job,)))


def _overlapped() -> GpuLife:
    life = node.communication()
    job = replace(life.jobs[0], command="python fsdp.py --nodes 4 --accumulate 8")
    return replace(life, busy=Load(98, 84, 34, 40, 38, 20, 628, 0.8, 0.6, 92, 91), temp_c=60, jobs=(job,))


def _batched() -> GpuLife:
    """Larger batches bring more arithmetic for every byte that is read."""
    life = node.memory_bandwidth()
    server = life.jobs[0].command + " --kv-cache-dtype fp8"
    job = replace(life.jobs[0], command=server)
    return replace(life, busy=Load(99, 93, 46, 44, 52, 24, 642, 1.1, 0.8), jobs=(job,))


def _local() -> GpuLife:
    life = node.dataloader_io()
    workers = Workers(6, Cpu(22.0, waits="queue", read_mb=80.0))
    job = replace(
        life.jobs[0], command="python train.py --data /local/shards", busy=node.SPINNING, rest=None, workers=workers
    )
    return _steady(replace(life, busy=Load(97, 86, 44, 36, 40, 18, 618, 8.0, 0.4), temp_c=60, jobs=(job,)))


def _steady(life: GpuLife) -> GpuLife:
    """Without pauses."""
    return replace(life, period_s=None, duty=1.0)
