"""A frame as a page of metrics.

The series come from the metric catalogue; docs/fleet_reference.md lists them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter

from msgspec import Struct

from gputop import __version__
from gputop.diagnosis.rules.gates import COLLECTING
from gputop.features.export.exposition import Sample, TextPage, labels, number
from gputop.features.export.run_counters import GpuCounts, RunCounters
from gputop.model.cards import card_shares
from gputop.model.metrics import SM_PROVENANCE
from gputop.model.prometheus_names import FIXED, Series, gpu_series, host_series, process_series
from gputop.model.serving import ServerRow
from gputop.model.sm import MEASURED, SM_SOURCES
from gputop.model.snapshot import (
    POD,
    AnySample,
    CgroupName,
    FabricPort,
    GpuSample,
    GpuStatic,
    ProcessSample,
    Snapshot,
    value,
)
from gputop.monitor import Frame

MOST_JOBS = 8
"""The most jobs exported for one GPU, those with the most memory first."""


def jobs_by_gpu(processes: Iterable[ProcessSample]) -> dict[int, list[str]]:
    """Return the labels of each job by the index of its GPU.

    Jobs that share a GPU have one entry each.
    """
    memory_by_job: dict[int, Counter[str]] = {}
    for process in processes:
        if process.role == "gpu" and process.gpu is not None:
            static = process.static
            named = job_labels(
                static.batch_job or _NO_NAME, static.contained_in or _NO_NAME, static.user
            )
            if named:
                memory_by_job.setdefault(process.gpu, Counter())[named] += int(
                    process.gpu_mem_bytes or 0
                )
    return {
        gpu: sorted(jobs, key=lambda job: (-jobs[job], job))[:MOST_JOBS]
        for gpu, jobs in memory_by_job.items()
    }


@lru_cache(maxsize=256)
def job_labels(job: CgroupName, container: CgroupName, user: str | None) -> str:
    """Return the labels of a process's job; empty where unknown.

    ``scheduler, job_id, user, k8s_pod_uid, container_id``.
    """
    pod = container.id if container.kind == POD else ""
    return labels(
        ("scheduler", job.kind if job.id else "kubernetes" if pod else ""),
        ("job_id", job.id),
        ("user", user),
        ("k8s_pod_uid", pod),
        ("container_id", "" if pod else container.id),
    )


_NO_NAME = CgroupName("")


MOST_PROCESSES = 256
"""The most rows of processes on a page, those with the most device memory first."""
MOST_PAST_VERDICTS = 4
"""The most verdicts of the last hour exported for one GPU besides the current one."""
LANES = (
    ("idle_pct", "gputop_gpu_idle_ratio", "Share of time in which no kernel ran"),
    ("loader_run_pct", "gputop_loader_running_ratio",
     "Share of time the dataloader workers of a GPU's job ran on a core, mean"),
    ("loader_wait_pct", "gputop_loader_queued_ratio", "Share of time they were queued for a core, mean"),
    ("loader_disk_pct", "gputop_loader_disk_ratio", "Share of them that waited for the disk"),
    ("loader_network_pct", "gputop_loader_network_ratio", "Share of them that waited for the network or a pipe"),
    ("main_pct", "gputop_main_thread_running_ratio",
     "Share of time the main thread of a GPU's job ran or was queued for a core"),
)  # fmt: skip
"""The host's lane of the monitor, the series' name, its help."""
SERVER_SERIES = (
    ("running", "requests_running", 1.0, "Requests that an inference server works on"),
    ("queue", "requests_waiting", 1.0, "Requests that wait in it"),
    ("requests_per_s", "requests_per_second", 1.0, "Requests that ended, over the last 30 s"),
    ("tokens_per_s", "tokens_per_second", 1.0, "Tokens that it generated, over the last 30 s"),
    (
        "prompt_tokens_per_s",
        "prompt_tokens_per_second",
        1.0,
        "Tokens of prompts, over the last 30 s",
    ),
    (
        "preemptions_per_s",
        "preemptions_per_second",
        1.0,
        "Requests that lost their KV cache, over the last 30 s",
    ),
    (
        "kv_cache_pct",
        "kv_cache_ratio",
        100.0,
        "Share of the KV cache in use, of the fullest engine",
    ),
    (
        "prefix_hit_pct",
        "prefix_hit_ratio",
        100.0,
        "Share of the prompts' tokens found in it, over the last 30 s",
    ),
)
"""Of a server: the number, its series, what it is divided by, its help."""


class ExporterCost(Struct, frozen=True):
    """gputop's own cost: CPU seconds since its start, resident memory in bytes."""

    cpu_s: float
    rss_bytes: float | None = None


class PageReading(Struct, frozen=True):
    """The newest frame and whether each half of it is still current.

    ``lanes`` are the host's lanes by UUID, percent, see ``Diagnoser.lanes``. ``gpus_t`` is the Unix time of the newest
    values of the GPUs.
    """

    frame: Frame
    gpus_fresh: bool
    host_fresh: bool
    gpus_t: float
    lanes: Mapping[str, Mapping[str, float | None]]


Families = Callable[[TextPage, Sequence[GpuSample], str], None]
"""Adds families of other names: called with the page, the GPUs that are fresh, and the host's name."""


class PageChoice(Struct, frozen=True):
    """The optional content of a page."""

    processes: bool = False
    more: tuple[Families, ...] = ()


def metrics_page(
    reading: PageReading | None, counters: RunCounters, cost: ExporterCost, choice: PageChoice
) -> str:
    """Return the page.

    Without a reading, or with a stale one, ``gputop_up`` is 0 and gauges are absent.
    """
    page = TextPage()
    up = reading is not None and reading.gpus_fresh and bool(reading.frame.snapshot.gpus)
    page.family(
        "gputop_up", "1 while the values are current, 0 when they are late", [("", float(up))]
    )
    page.family("gputop_build_info", "Version of gputop", [(labels(("version", __version__)), 1.0)])
    page.family(
        "gputop_cpu_seconds_total",
        "CPU time that gputop itself has used",
        [("", cost.cpu_s)],
        "counter",
    )
    if cost.rss_bytes is not None:
        page.family(
            "gputop_resident_memory_bytes", "Memory that gputop itself uses", [("", cost.rss_bytes)]
        )
    if reading is not None:
        _reading(page, reading, counters, choice)
    _counters(page, counters)
    return page.text()


PORT_COUNTS = (
    ("drops", "Packets that a port of the fabric dropped"),
    ("retransmits", "Packets that a port of the fabric sent again"),
    ("link_errors", "Errors of a port's link"),
)
"""Counters of a port, since its adapter was reset."""


def _fabric_ports(page: TextPage, ports: Sequence[FabricPort]) -> None:
    """Add ports by name: their faults and what they lose."""
    faults = [
        (labels(("port", port.name), ("kind", port.kind), ("fault", port.trouble)), 1.0)
        for port in ports
        if port.trouble
    ]
    if faults:
        page.family(
            "gputop_fabric_port_fault", "1: the link of this port is down or degraded", faults
        )
    for key, text in PORT_COUNTS:
        counts = []
        for port in ports:
            value: int | None = getattr(port, key)
            if value is not None:
                counts.append((labels(("port", port.name), ("kind", port.kind)), float(value)))
        if counts:
            page.family(f"gputop_fabric_port_{key}_total", text, counts, "counter")


def gpu_labels(static: GpuStatic) -> str:
    """Return the labels of a GPU: ``gpu``, ``uuid``, ``mig``."""
    return labels(("gpu", str(static.index)), ("uuid", static.uuid), ("mig", static.mig_instance))


def _reading(
    page: TextPage, reading: PageReading, counters: RunCounters, choice: PageChoice
) -> None:
    """Add measurements and verdicts, as far as they are current."""
    snapshot = reading.frame.snapshot
    page.family(
        "gputop_last_sample_timestamp_seconds",
        "Unix time of the newest values of the GPUs",
        [("", reading.gpus_t)],
    )
    machine = snapshot.machine
    named = labels(
        ("hostname", machine.hostname), ("driver", machine.driver), ("source", machine.source)
    )
    page.family("gputop_host_info", "The machine", [(named, 1.0)])
    if reading.host_fresh:
        _families(page, host_series(), [(snapshot.host, "")])
        _fabric_ports(page, snapshot.fabric_ports)
    gpus = snapshot.gpus if reading.gpus_fresh else ()
    present = [(gpu, gpu_labels(gpu.static)) for gpu in gpus]
    _gpus(page, present, snapshot)
    _diagnoses(page, present, reading, counters)
    if reading.host_fresh:
        _host_of_gpus(page, present, reading)
        if choice.processes:
            _processes(
                page, {gpu.static.index: named for gpu, named in present}, snapshot.processes
            )
    _servers(page, snapshot.servers)
    for add in choice.more:
        add(page, gpus, machine.hostname)


Present = Sequence[tuple[GpuSample, str]]
"""GPUs with their labels."""


def _gpus(page: TextPage, present: Present, snapshot: Snapshot) -> None:
    infos = [(_info(gpu, named, snapshot.machine.driver), 1.0) for gpu, named in present]
    page.family("gputop_gpu_info", "What a GPU is", infos)
    text = (
        "The part of a whole GPU that this is: a MIG instance's slices, 0 for a GPU that is split "
        "into such"
    )
    page.family("gputop_gpu_share", text, _shares(present))
    lost = [(named, 1.0) for gpu, named in present if gpu.lost_reason is not None]
    page.family("gputop_gpu_lost", "GPUs that the driver cannot read at present", lost)
    _families(page, [series for series in gpu_series() if series.key not in SM_PROVENANCE], present)
    # The other sources give a mean over one interval, up to date every second.
    elsewhere = [
        row
        for row in present
        if SM_SOURCES[row[0].sm_source].slow or row[0].sm_source not in MEASURED
    ]
    _families(page, [series for series in gpu_series() if series.key in SM_PROVENANCE], elsewhere)
    sources = [
        (f'{named},source="{gpu.sm_source}"', 1.0)
        for gpu, named in present
        if gpu.lost_reason is None
    ]
    page.family(
        "gputop_sm_source", "Where SM activity comes from; bound and none are not measured", sources
    )


def _shares(present: Present) -> list[Sample]:
    """Return the share of the card of each GPU.

    An instance names its GPU by the parent's UUID.
    """
    shares = card_shares(gpu.static for gpu, _ in present)
    rows = ((gpu.static, named) for gpu, named in present if gpu.lost_reason is None)
    parents = ((static, named, labels(("parent", static.mig_parent))) for static, named in rows)
    return [
        (f"{named},{parent}" if parent else named, shares[static.uuid])
        for static, named, parent in parents
    ]


def _info(gpu: GpuSample, gpu_label: str, driver: str | None) -> str:
    static = gpu.static
    facts = labels(
        ("model", static.name),
        ("architecture", static.architecture),
        ("driver", static.driver or driver),
        ("pci_bus_id", static.pci_bus_id),
        *((key, None if (fixed := value(gpu, key)) is None else number(fixed)) for key in FIXED),
    )
    return f"{gpu_label},{facts}" if facts else gpu_label


def _families(
    page: TextPage, all_series: Sequence[Series], rows: Sequence[tuple[AnySample, str]]
) -> None:
    """Return the families of the catalogue's measured values."""
    for name, group in groupby(all_series, attrgetter("name")):
        family = [(series, labels(*series.labels)) for series in group]
        samples: list[Sample] = [
            (
                f"{row_label},{series_label}" if series_label else row_label,
                measured / series.divisor,
            )
            for series, series_label in family
            for row, row_label in rows
            if (measured := value(row, series.key)) is not None
        ]
        page.family(name, family[0][0].help, samples, family[0][0].kind)


def _diagnoses(
    page: TextPage, present: Present, reading: PageReading, counters: RunCounters
) -> None:
    judged = [(named, d) for (_, named), d in zip(present, reading.frame.diagnoses, strict=False)]
    states: list[Sample] = []
    levels: list[Sample] = []
    for named, d in judged:
        states.append((f'{named},state="{d.state}"', 1.0))
        levels.append((f'{named},level="{d.level}"', 1.0))
    page.family("gputop_gpu_state", "The state that the GPU's time counts as now", states)
    text = "The level in which gputop shows the GPU: of its verdict, or of a badge that comes before it"
    page.family("gputop_gpu_level", text, levels)
    verdicts = [
        (f'{named},verdict="{verdict}"', float(verdict == d.verdict))
        for named, d in judged
        for verdict in (d.verdict, *_recent(counters, d.uuid, d.verdict))
    ]
    page.family(
        "gputop_gpu_verdict",
        "Verdicts of the last hour: 1 for the one that stands, 0 for the others",
        verdicts,
    )
    badges = [
        (f'{named},badge="{badge.id}"', 1.0)
        for named, d in judged
        for badge in d.badges
        if badge.about is None
    ]
    page.family("gputop_gpu_badge", "Remarks beside the verdict that stand at present", badges)
    scores = [
        (named, d.efficiency_pct / 100.0) for named, d in judged if d.efficiency_pct is not None
    ]
    text = "SM activity as a share of utilisation, over the window of the diagnosis"
    page.family("gputop_gpu_efficiency_ratio", text, scores)


def _recent(counters: RunCounters, uuid: str, current: str) -> list[str]:
    """Return the last verdicts before the current one.

    "collecting" says nothing about a GPU, and every GPU begins with it.
    """
    seen = counters.gpus[uuid].verdicts if uuid in counters.gpus else {}
    before = sorted(seen.keys() - {current, COLLECTING.id})
    return sorted(before, key=seen.__getitem__)[-MOST_PAST_VERDICTS:]


def _host_of_gpus(page: TextPage, present: Present, reading: PageReading) -> None:
    """Add the host's activity for each GPU, and its job."""
    processes = reading.frame.snapshot.processes
    lanes = [(gpu_label, reading.lanes.get(gpu.static.uuid, {})) for gpu, gpu_label in present]
    for key, name, text in LANES:
        page.family(
            name,
            text,
            [(named, share / 100.0) for named, of in lanes if (share := of.get(key)) is not None],
        )
    by_index = {
        gpu.static.index: gpu_label for gpu, gpu_label in present if gpu.lost_reason is None
    }
    loaders = Counter(
        f"{by_index[process.gpu]},{labels(('kind', process.static.loader or 'other'))}"
        for process in processes
        if process.role == "loader" and process.gpu in by_index
    )
    page.family("gputop_loaders", "Dataloader workers of a GPU's job by kind", loaders.items())
    jobs = jobs_by_gpu(processes)
    infos = [
        (f"{gpu_label},{job}", 1.0)
        for index, gpu_label in by_index.items()
        for job in jobs.get(index, ())
    ]
    page.family("gputop_job_info", "The jobs that hold a context on a GPU", infos)


def _processes(
    page: TextPage, by_index: Mapping[int | None, str], processes: Sequence[ProcessSample]
) -> None:
    """Processes that hold a GPU context, by pid, user and name of the executable."""
    owners = [process for process in processes if process.role == "gpu" and process.gpu in by_index]
    owners.sort(key=lambda process: process.gpu_mem_bytes or 0.0, reverse=True)
    rows = []
    for process in owners[:MOST_PROCESSES]:
        named = labels(
            ("pid", str(process.pid)), ("user", process.static.user), ("name", process.static.name)
        )
        rows.append((process, f"{by_index[process.gpu]},{named}"))
    _families(page, process_series(), rows)


def _servers(page: TextPage, servers: Sequence[ServerRow]) -> None:
    """Add the values of inference servers that answer."""
    rows = [(row, labels(("server", row.place), ("kind", row.kind))) for row in servers]
    for key, word, divisor, text in SERVER_SERIES:
        figures = [
            (named, n / divisor) for row, named in rows if (n := getattr(row, key)) is not None
        ]
        page.family(f"gputop_server_{word}", text, figures)


COUNTED: tuple[tuple[str, str, str, Callable[[GpuCounts], Mapping[str, float]]], ...] = (
    ("gputop_gpu_state_seconds_total", "Time of a GPU by state since gputop began to watch it", "state",
     lambda of: of.states.risen),
    ("gputop_gpu_busy_not_working_seconds_total",
     "Of the time in which a GPU was busy and did not work, the part of each cause: the verdict that stood", "cause",
     lambda of: of.causes.risen),
    ("gputop_gpu_lost_seconds_total",
     "GPU time that was held and wasted, by verdict: of each second the part without a kernel, or of the chip unused",
     "cause", lambda of: of.lost.risen),
    ("gputop_gpu_throttle_seconds_total", "Time in which something held the clocks down", "reason",
     lambda of: of.throttled or {}),
    ("gputop_gpu_xid_errors_total", "Xid errors seen while gputop watched", "xid", lambda of: of.xids),
)  # fmt: skip
"""Counters of a GPU: name, help, the label that tells its series apart, and their values by that label."""
_WAIT = "Of the steps that jobs announce, the time in which the rank waited for"
STEPS = (
    ("gputop_step_seconds", "summary", "sum_s", "Training steps that jobs announce, and how long they took"),
    ("gputop_step_last_timestamp_seconds", "gauge", "seen_t",
     "Unix time at which the newest of these steps was heard of"),
    ("gputop_step_wait_seconds", "summary", "wait_s", f"{_WAIT} others, where a job says it"),
    ("gputop_step_data_wait_seconds", "summary", "data_wait_s", f"{_WAIT} its batches, where a job says it"),
    ("gputop_step_samples_total", "counter", "samples", "Training samples in the announced steps, where a job says it"),
    ("gputop_step_tokens_total", "counter", "tokens", "Tokens in the announced steps, where a job says it"),
    ("gputop_step_mfu_ratio", "gauge", "mfu",
     "Model FLOPs utilisation of the newest announced steps, 0 to 1, as the job works it out"),
)  # fmt: skip
"""Of the steps that a rank announces: name, type, the sum's key, of a gauge the attribute; and help."""


def _counters(page: TextPage, counters: RunCounters) -> None:
    """Families that rise over the run; they stay while a frame is late."""
    rows = [(gpu_labels(counts.static), counts) for counts in counters.gpus.values()]
    for name, text, label, of_gpu in COUNTED:
        counted = [
            (f'{named},{label}="{key}"', n) for named, of in rows for key, n in of_gpu(of).items()
        ]
        page.family(name, text, counted, "counter")
    ranks = [
        (labels(("gpu", gpu), ("rank", rank), ("job_id", job)), of)
        for (gpu, rank, job), of in counters.steps.items()
    ]
    for name, kind, key, text in STEPS:
        having = [(named, of) for named, of in ranks if key in of.sums]
        if kind == "summary":
            page.summary(
                name, text, [(named, of.sums[key], of.counts[key]) for named, of in having]
            )
        elif kind == "counter":
            page.family(name, text, [(named, of.sums[key]) for named, of in having], kind)
        else:
            page.family(
                name,
                text,
                [(named, n) for named, of in ranks if (n := getattr(of, key)) is not None],
            )
