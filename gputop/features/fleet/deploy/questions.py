"""Every question to a fleet, with its alert, as rows of two tables.

Rules, dashboards, ``fleet queries`` and docs are made of these. A row of ``_QUESTIONS`` is an id, a title, a unit, and
what an answer means → what to do; the PromQL of each id is in ``question_queries``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from gputop.diagnosis.thresholds import IDLE_PCT
from gputop.diagnosis.types import NOT_WORKING, STATE_WORDS
from gputop.features.fleet.deploy.question_queries import QUERIES, Query
from gputop.features.fleet.judge.gpu_state import UNUSED
from gputop.features.fleet.judge.state_rules import share
from gputop.features.fleet.promql import Names, Scope
from gputop.model.text_table import table_rows

Mode = Literal["health", "throughput", "bottleneck", "breadth", "waste"]
MODES: Mapping[Mode, str] = MappingProxyType({
    "health": "Health: is every GPU there and healthy",
    "throughput": "Throughput: how much work is done",
    "bottleneck": "Bottleneck: what holds it back",
    "breadth": "Breadth: does every GPU of a job keep up",
    "waste": "GPU time that did no work: wasted or idle",
})  # fmt: skip
"""What questions are grouped by."""
Severity = Literal["critical", "warning", "info"]


class AlertRule(Struct, frozen=True):
    """When a question's answer is worth a page.

    ``when`` follows the query, ``lasts`` is how long it must hold. ``about`` says whose labels an alert carries: a
    target is known by its address alone.
    """

    name: str
    when: str
    lasts: str
    severity: Severity
    about: Literal["gpu", "host", "target", "fleet"]


class FleetQuestion(Struct, frozen=True):
    """One question; ``dcgm`` is its query for dcgm-exporter, None where that cannot answer."""

    id: str
    mode: Mode
    title: str
    unit: str
    meaning: str
    advice: str
    query: Query
    dcgm: Query | None
    alert: AlertRule | None

    def is_answered(self, names: Names) -> bool:
        """Whether something exported under these names can answer."""
        return names == "gputop" or self.dcgm is not None

    def promql(self, q: Scope) -> str | None:
        """The query in PromQL; None if it cannot be asked."""
        query = self.query if q.dialect.is_own else self.dcgm
        return None if query is None or (self.needs_price and not q.price) else query(q)

    @property
    def needs_price(self) -> bool:
        """Whether it asks about money."""
        return self.unit == "money"


_QUESTIONS: Mapping[Mode, str] = MappingProxyType(
    {
        "health": """
    down  Exporters down  GPUs  The last scrapes of this target all failed: the host, its network or its exporter is
      down. → Check whether the host answers at all; then systemctl status gputop-export, or the pod of the DaemonSet.
    absent  No exporter at all  flag  Prometheus scrapes no exporter of these names: its discovery lost them, or they
      have another job's name. → See the targets' page of Prometheus, and the job's name in its configuration.
    fewer_targets  Fewer exporters than within the last day  GPUs  Targets that were scraped within the last day are
      no longer configured or discovered. → Nothing, where nodes come and go on purpose: leave this alert out there.
    late  Drivers late or hung  GPUs  The exporter answers and has no current values: the driver hangs, or there is no
      GPU. → Run gputop doctor on the host: it says which call hangs. A driver that hangs usually needs a reboot.
    dead  Exporters whose file stays  seconds  Nobody writes the file of `gputop export --textfile` any more, and
      node_exporter goes on serving it. The value is its age; that it does not change is what counts. → See why the
      exporter ended; remove the file until it runs again.
    vanished  GPUs that vanished  GPUs  Fewer GPUs of this host are exported than within the last day; MIG instances
      are not counted. → dmesg | grep -i xid on the host. Xid 79 means that the GPU fell off the bus: drain the node
      and reset it.
    lost  Unreadable GPUs  flag  The driver lists the GPU and calls on it fail or hang. → Drain the node; reset the
      GPU or reboot.
    temperature  Temperature  celsius  Temperature of the chip. What matters is whether clocks are cut for it: see
      throttled. → Airflow, fans, dust, inlet temperature; neighbours in the same chassis.
    throttled  Time with clocks held down by heat or power brake  ratio  Share of time in which heat or the power
      brake cut the clocks. A power cap, under which a busy GPU normally runs, is not among them. → Cooling, or the
      power supply of the chassis. The job that runs there slows all its peers down.
    ecc_uncorrected  Uncorrected ECC, last hour  GPUs  Uncorrected ECC errors: what this GPU computed may be wrong,
      and its job usually dies. → Drain the node, reset the GPU; replace it when they come back or row remapping has
      failed.
    xid  Xid errors  GPUs  Xid errors of the last ten minutes by number. 13, 31, 43 and 45 point at the program; 48,
      63, 64, 74, 79, 94 and 95 at the hardware. dcgm-exporter gives the last number and no count: there the value is
      that number. → Cordon the node at 48, 63, 64, 74, 79, 94, 95; tell the job's owner at the others.
    row_remap  Row remap due or failed  flag  Memory rows wait for a reset to be remapped, or could not be. → Drain
      and reset the GPU; where it failed, replace it.
    """,
        "throughput": """
    utilization  Utilisation  ratio  Share of time in which at least one kernel ran, on however little of the chip. →
      Never judge by it alone: see sm_active and gap.
    sm_active  SM activity  ratio  Share of the multiprocessors that had a warp, averaged over cycles. dcgm-exporter
      comes with it switched off. → To switch it on there, add the line `DCGM_FI_PROF_SM_ACTIVE, gauge, SM activity`
      to its counters file.
    occupancy  SM occupancy  ratio  Resident warps as a share of those that the multiprocessors could hold; 0.25 is
      enough for many kernels. → Worth a look only where SM activity is low: larger batch, fewer registers a thread.
    tensor  Tensor pipes  ratio  Share of cycles in which a tensor pipe was active: the best single number of training
      throughput. → Near 0 in training: matrices in FP32, or shapes that are not multiples of 8; bf16, torch.compile.
    dram  Device memory bandwidth  ratio  Bandwidth used of the theoretical peak; kernels reach about 0.8. → See
      memory_bound.
    memory_share  Device memory in use  ratio  Memory held, not memory used: a framework's cache keeps it while the
      GPU idles. → A job that holds little might share a GPU, or take a larger batch.
    power  Power  watts  Power of the board. The same matrix product draws up to two thirds more or less by its data
      alone, so it ranks GPUs, and is no measure of work. → Compare GPUs of one job: they should draw alike.
    cluster_power  Power of all GPUs  watts  Boards alone, without hosts and cooling. → For capacity planning.
    energy  Energy in the last hour  joules  What the boards took, by host. → Divide by 3.6 million for kWh.
    steps_per_second  Training steps a second  1/s  Steps as jobs announce them: whether a job became faster. →
      Announce steps from the job with gputop.watch().
    samples_per_second  Training samples a second  1/s  Samples in all announced steps of a job, where it says how
      many a step has. → Announce them with gputop.watch(): work(samples=…), or step(batch_size=…).
    step_seconds  Time of a training step  seconds  Mean over five minutes. → Record a run with gputop record where it
      rises.
    efficiency  SM activity as a share of utilisation  ratio  How much of the chip works while the GPU counts as busy.
      → Below 0.3: see gap and its verdict.
    """,
        "bottleneck": f"""
    gap  {NOT_WORKING.capitalize()}  ratio  Kernels run all the time, on less than a third of the chip: small kernels,
      NCCL that spins, or one block that keeps a whole GPU busy. The value is utilisation minus SM activity. → On the
      host gputop says which: the verdict small_kernels, communication or low_sm, with evidence and remedy.
    memory_bound  Bound by memory bandwidth  ratio  Three quarters of the bandwidth that kernels reach. SM activity is
      high meanwhile, as warps wait for memory. → Inherent in decoding; larger batch, FlashAttention, fused kernels,
      quantised weights.
    pcie_saturation  PCIe traffic as a share of the link  ratio  The busier direction against what the link carries at
      its present generation and width. → pin_memory=True and non_blocking copies; keep data on the GPU; check that
      the link runs at its full width.
    communication  Waits for other GPUs  ratio  The GPU is busy and not working because its kernels wait in NCCL.
      Under dcgm-exporter's names, where traffic over NVLink is what is seen, it may be small kernels as well. → Find
      the rank that the others wait for: straggler_slow, straggler_starved. Overlap communication.
    hang  Waits inside a kernel  flag  The GPU spins in a collective, or on a lock, for what does not come. Only
      gputop on the node can tell that from small kernels. → On its host gputop diagnose names the rank that differs;
      of a job over several hosts, look where no GPU of it waits. py-spy dump on that rank.
    starved_by_cause  Starved GPUs by cause  GPUs  GPUs that wait for their host, by what the host did meanwhile:
      loaders short of cores, on disk or network, the main thread, copies. → Each verdict has its remedy: gputop help
      verdicts.
    starved  Starved GPUs  ratio  Share of time in which no kernel ran on a GPU that a job holds. → On the host:
      gputop, or gputop diagnose for a ticket.
    loaders_waiting  Loaders short of cores  ratio  Share of time the dataloader workers were runnable and had no
      core. → Fewer workers a GPU, more cores a job; decode on the GPU.
    loaders_on_disk  Loaders that wait for the disk  ratio  Share of the dataloader workers that waited for the disk.
      → Larger files, local NVMe, a cache; more workers help only where the disk has room.
    """,
        "breadth": """
    straggler_slow  GPUs that the others of their job wait for  ratio  All GPUs of the job are busy, and this one does
      more: the others wait for it in NCCL. The value is how far its SM activity lies above the median. → Compare its
      clocks, temperature and link with the others'; uneven batches or layers; drain it if it is the hardware.
    straggler_starved  GPUs that starve while their job is busy  ratio  One GPU of the job, or all GPUs of one host,
      are not busy while all others are. The value is how far its utilisation lies below the median. → On its host
      gputop names what it waits for: loaders, disk, network or the main thread.
    straggler_step  Ranks whose steps take longer  ratio  A rank's step against the median of its job, where ranks
      announce steps. Ranks that wait for each other have equal steps. → See straggler_slow and straggler_starved for
      jobs that wait for each other in every step.
    straggler_own_step  Ranks whose own part of a step takes longer  ratio  A rank's step without what it waited for
      others, against the median of its job, where ranks announce both. → On its host gputop names what it does;
      compare clocks, temperature and data there.
    """,
        "waste": f"""
    gpus_by_state  GPUs by state  GPUs  The state that each GPU's time counts as now; a MIG instance counts as one. →
      Those that are not working come first: gap, starved.
    hours_busy_not_working  {NOT_WORKING.capitalize()}: last hour  GPU-hours  Kernels ran, the chip did not work.
      Counted second by second on the host by gputop; from dcgm-exporter's numbers minute by minute. → See gap and the
      verdicts.
    hours_starved  Starved: last hour  GPU-hours  A job held the GPU and no kernel ran. → See starved_by_cause.
    hours_idle_allocated  {STATE_WORDS["idle_allocated"].capitalize()}: last hour  GPU-hours  Nothing runs and nobody
      else can use it: a forgotten notebook, usually. → gputop shows whose process it is; ask, then end it.
    hours_idle  Idle: last hour  GPU-hours  Nobody holds memory there and no kernel ran. → Capacity, not waste of a
      job.
    hours_allocated_unused  {UNUSED.capitalize()}: last hour  GPU-hours  A job held the GPU, and no process used it. →
      A job that asks for fewer GPUs; idle limits.
    hours_total  All GPUs: last hour  GPU-hours  The total of which the other states are parts. → Nothing to do.
    unmeasured  GPUs without SM activity  GPUs  Nothing measures SM activity there: neither waste nor work. → gputop
      doctor on the host says what would measure it. In dcgm-exporter add DCGM_FI_PROF_SM_ACTIVE to the counters file.
    waste_by_job  No work, by job and user: last hour  GPU-hours  Busy and not working, starved and idle, under the
      job that had the GPU in that minute. → Start with the first: one job often wastes more than all others together.
    idle_with_memory  Idle GPUs that hold memory  bytes  No kernel ran, and at least 1 GiB is held: nobody else can
      use it. → Ask the owner; idle limits for notebooks.
    allocated_unused  GPUs that a job holds and does not use  flag  The scheduler or the kubelet gave the GPU to a
      job, and no process of it uses the GPU or holds memory there. → Ask the owner: a job that asks for fewer GPUs
      leaves this one to another.
    waste_share  No work: share, last hour  ratio  Wasted and idle time, of the time in which it is known. Unmeasured
      GPUs are in neither number. → Track it by week: it is the number to bring down.
    cost_no_work  Cost of GPU time that did no work, last hour  money  GPU-hours that did no work, at the price of a
      GPU-hour that you gave. → Give your own price: --price 2.50.
    cost_by_job  Cost by job and user, last hour  money  What each job's GPUs cost while they did no work, minute by
      minute under the job that had them then. → Start with the first. Give your own price: --price 2.50.
    """,
    }
)
_ALERTS: Mapping[str, AlertRule] = {
    "down": AlertRule("GpuExporterDown", "", "1m", "critical", "target"),
    "absent": AlertRule("GpuExportersAbsent", "", "5m", "critical", "fleet"),
    "fewer_targets": AlertRule("GpuExportersFewer", "", "1h", "info", "fleet"),
    "late": AlertRule("GpuDriverLate", "", "5m", "critical", "host"),
    "dead": AlertRule("GpuExporterDead", "", "1m", "critical", "host"),
    "vanished": AlertRule("GpuVanished", "", "2m", "critical", "host"),
    "lost": AlertRule("GpuLost", "", "2m", "critical", "gpu"),
    "temperature": AlertRule("GpuHot", " > 85", "10m", "warning", "gpu"),
    "throttled": AlertRule("GpuThrottled", " > 0.1", "10m", "warning", "gpu"),
    "ecc_uncorrected": AlertRule("GpuUncorrectedEcc", "", "0m", "critical", "gpu"),
    "xid": AlertRule("GpuXid", "", "0m", "warning", "gpu"),
    "gap": AlertRule("GpuBusyNotWorking", "", "15m", "warning", "gpu"),
    "pcie_saturation": AlertRule("GpuPcieSaturated", " > 0.9", "15m", "info", "gpu"),
    "hang": AlertRule("GpuStuck", "", "2m", "warning", "gpu"),
    "starved": AlertRule("GpuStarved", f" > {share(IDLE_PCT)}", "30m", "info", "gpu"),
    "straggler_slow": AlertRule("GpuStragglerSlow", "", "1m", "warning", "gpu"),
    "straggler_starved": AlertRule("GpuStragglerStarved", "", "1m", "warning", "gpu"),
    "idle_with_memory": AlertRule("GpuIdleWithMemory", "", "30m", "info", "gpu"),
    "allocated_unused": AlertRule("GpuAllocatedUnused", "", "30m", "info", "gpu"),
}
"""By the question."""


def _questions() -> Iterator[FleetQuestion]:
    for mode, table in _QUESTIONS.items():
        for id, title, unit, text in table_rows(table):
            meaning, _, advice = text.partition(" → ")
            yield FleetQuestion(
                id, mode, title, unit, meaning, advice, *QUERIES[id], _ALERTS.get(id)
            )


QUESTIONS: Mapping[str, FleetQuestion] = MappingProxyType({row.id: row for row in _questions()})
"""Every question by its id, in the order of the failure modes."""
