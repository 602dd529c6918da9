"""Names, units and labels of each exporter: the one table that queries and decoders of pages read.

A fleet often has several exporters at once, and dcgm-exporter renamed its metrics in 4.9: every query uses all the
names that exist. Our own exporter comes first, because it also exports verdicts. The names of others follow their
documentation: dcgm-exporter and DCGM's fields (github.com/NVIDIA/dcgm-exporter), nvidia_gpu_exporter
(github.com/utkuozdemir/nvidia_gpu_exporter, docs/METRICS.md), nvitop-exporter (github.com/XuehaiPan/nvitop), all-smi
(github.com/lablup/all-smi, API.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from gputop.features.fleet.fleet_reading import JobName
from gputop.model.dcgm_names import FB_FREE, HOST_LABEL, NAMES, Generation
from gputop.model.prometheus_names import gpu_series
from gputop.model.snapshot import POD

STATE_KEYS = ("util_pct", "sm_active_pct", "power_w", "mem_used_bytes")
"""The metrics of the catalogue that every GPU of a fleet is asked for: a state follows from them."""
DETAIL_KEYS = ("tensor_active_pct", "dram_active_pct", "graphics_active_pct", "temp_c")
"""Those that are queried only for the hosts on screen."""
GPU_KEYS = (*STATE_KEYS, *DETAIL_KEYS)
MOMENT_KEYS = ("util_pct", "graphics_active_pct", "mem_used_bytes")
"""Gauges of the moment: a GPU is there if one of them speaks of it."""
BLANK = 2.0**47
"""DCGM's values from here on mean that there is none."""
RATIO_LIMIT = 1.5
"""A ratio above this is percent under a ratio's name, as DCGM up to 4.6 exports utilisation."""
PERCENT_SLACK = 1.0
"""A mean of ratios may lie a rounding error above 100 %."""
LIMITS: Mapping[str, tuple[float, float]] = MappingProxyType({
    **dict.fromkeys(
        ("util_pct", "sm_active_pct", "tensor_active_pct", "dram_active_pct", "graphics_active_pct"), (0.0, 100.0)
    ),
    "power_w": (0.0, 1e5), "temp_c": (-60.0, 300.0), "mem_used_bytes": (0.0, 2.0**50),
})  # fmt: skip
"""Least and greatest value of a metric in the catalogue's unit: what an exporter says beyond them is not measured."""


def plausible(key: str, value: float) -> float | None:
    """Limit a value to possible ones; None for an impossible one."""
    lowest, highest = LIMITS.get(key, (-1e300, 1e300))
    slack = PERCENT_SLACK if highest == 100.0 else 0.0
    return min(value, highest) if lowest <= value <= highest + slack else None


class Signal(Struct, frozen=True):
    """A metric under one name. ``factor`` makes the catalogue's unit of an exported value.

    ``labels`` select within the name; the values of ``plus`` are added to it. A ``doubtful`` ratio may be percent in
    older exporters: its greatest value tells.
    """

    name: str
    factor: float = 1.0
    labels: tuple[tuple[str, str], ...] = ()
    doubtful: bool = False
    plus: str = ""

    @property
    def matchers(self) -> tuple[str, ...]:
        """PromQL matchers within the name."""
        return tuple(f'{name}="{value}"' for name, value in self.labels)


class Dialect(Struct, frozen=True):
    """Names and labels of one exporter, for people ``words``.

    ``number``, ``instance``, ``profile``, ``uuid`` and ``model`` are the labels of a GPU. Dialects that rules are
    written for have ``hosts``, the labels that may name a host, and ``targets``, the matcher of their targets.
    ``facts`` is a series that names number and product of a GPU that its values know by its UUID alone. ``processes``
    is a series of each process of a GPU: its label ``user`` names who runs it, ``process`` the program; ``renamed`` are
    labels of a GPU and how that series calls them. A metric without a signal is one that
    the exporter does not measure.
    """

    id: str
    words: str
    signals: Mapping[str, Signal]
    number: tuple[str, ...]
    uuid: tuple[str, ...]
    model: tuple[str, ...]
    instance: tuple[str, ...] = ()
    profile: tuple[str, ...] = ()
    job: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    targets: str = ""
    facts: str = ""
    processes: str = ""
    user: str = ""
    process: str = ""
    renamed: tuple[tuple[str, str], ...] = ()

    @property
    def measures_sm(self) -> bool:
        """Whether the exporter can be set to measure SM activity."""
        return "sm_active_pct" in self.signals

    @property
    def moments(self) -> tuple[str, ...]:
        """Names of gauges of the moment: a GPU is there if one of them speaks of it."""
        return tuple(self.signals[key].name for key in MOMENT_KEYS if key in self.signals)

    @property
    def is_own(self) -> bool:
        """Whether this is gputop's own exporter."""
        return self.id == "gputop"

    @property
    def labels(self) -> tuple[str, ...]:
        """Every label that identifies a GPU, its host or its job."""
        return (
            *HOST_LABELS,
            *CLUSTER_LABELS,
            *self.number,
            *self.instance,
            *self.profile,
            *self.uuid,
            *self.model,
            *self.job,
        )


HOST_LABELS = ("hostname", "Hostname", "node", "exported_hostname", "exported_instance", "instance")
"""In order of preference. all-smi calls its host ``instance``, which Prometheus makes ``exported_instance``."""
_JOB_LABELS = ("exported_pod", "pod", "exported_namespace", "namespace", "container", "hpc_job")
CLUSTER_LABELS = ("cluster", "cluster_name", "cluster_id", "k8s_cluster_name", "k8s_cluster")
"""By which several clusters in one engine are told apart, in order of preference."""


_DCGM_WORDS: Mapping[Generation, str] = {
    "4.9": "dcgm-exporter 4.9 and newer",
    "legacy": "dcgm-exporter up to 4.8",
}
MIB = 2.0**20


def _dcgm(generation: Generation, *hosts: str) -> Dialect:
    signals = {
        row.key: Signal(row.name, row.divisor, doubtful=row.name == "DCGM_FI_DEV_GPU_UTIL_RATIO")
        for row in NAMES[generation].values()
    }
    # Its field for all of the memory is not among those that are exported by default.
    used = signals["mem_used_bytes"]
    signals["mem_total_bytes"] = Signal(used.name, used.factor, plus=FB_FREE[generation].name)
    return Dialect(
        generation,
        _DCGM_WORDS[generation],
        MappingProxyType(signals),
        ("gpu",),
        ("UUID",),
        ("modelName",),
        ("GPU_I_ID",),
        ("GPU_I_PROFILE",),
        _JOB_LABELS,
        (HOST_LABEL[generation], *hosts),
        'job=~".*dcgm.*"',
    )


DIALECTS: Mapping[str, Dialect] = MappingProxyType({row.id: row for row in (
    Dialect(
        "gputop",
        "gputop export",
        # A series of several labels, such as clocks by domain, is one signal each.
        MappingProxyType({one.key: Signal(one.name, one.divisor, one.labels) for one in gpu_series()}),
        ("gpu",), ("uuid",), (), ("mig",), (), (), ("instance",), 'job="gputop"',
    ),
    _dcgm("4.9"),
    # It changed its spelling before its names.
    _dcgm("legacy", "hostname"),
    Dialect(
        "nvidia_gpu_exporter",
        "nvidia_gpu_exporter",
        MappingProxyType({
            "util_pct": Signal("nvidia_smi_utilization_gpu_ratio", 100.0),
            "power_w": Signal("nvidia_smi_power_draw_watts"),
            "temp_c": Signal("nvidia_smi_temperature_gpu"),
            "mem_used_bytes": Signal("nvidia_smi_memory_used_bytes"),
        }),
        # Its values have a UUID alone, without "GPU-" before it; older ones name no number.
        ("index",), ("uuid",), ("name",), facts="nvidia_smi_gpu_info",
        # Only with --collect.compute-apps; it names no user.
        processes="nvidia_smi_compute_app_info", process="process_name",
    ),
    Dialect(
        "nvitop",
        "nvitop-exporter",
        MappingProxyType({
            "util_pct": Signal("gpu_utilization_Percentage"),
            "power_w": Signal("gpu_power_usage_W"),
            "temp_c": Signal("gpu_temperature_C"),
            "mem_used_bytes": Signal("gpu_memory_used_MiB", MIB),
        }),
        ("index",), ("uuid",), ("devicename",), processes="process_gpu_memory_MiB", user="username",
    ),
    Dialect(
        "all-smi",
        "all-smi",
        MappingProxyType({
            "util_pct": Signal("all_smi_gpu_utilization"),
            "power_w": Signal("all_smi_gpu_power_consumption_watts"),
            "temp_c": Signal("all_smi_gpu_temperature_celsius"),
            "mem_used_bytes": Signal("all_smi_gpu_memory_used_bytes"),
        }),
        # Its label "gpu" is the product's name; newer ones have other labels.
        ("index", "gpu_index"), ("uuid", "gpu_uuid"), ("gpu", "gpu_name"),
        # Only with --processes.
        processes="all_smi_process_memory_used_bytes", user="user",
        renamed=(
            ("index", "device_id"), ("gpu_index", "device_id"),
            ("uuid", "device_uuid"), ("gpu_uuid", "device_uuid"),
        ),
    ),
)})  # fmt: skip
"""Every exporter that is understood, in order of preference."""


def exporter_of(page: str) -> Dialect | None:
    """The exporter that wrote a page of metrics; None if unknown."""
    for dialect in DIALECTS.values():
        name = "gputop_up" if dialect.is_own else dialect.signals["util_pct"].name
        if re.search(rf"^(?:# TYPE )?{name}[ {{]", page, re.MULTILINE):
            return dialect
    return None


_BARE_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def known_uuid(uuid: str) -> str:
    """A GPU's UUID as the driver writes it, whatever its exporter left out."""
    return f"GPU-{uuid.lower()}" if _BARE_UUID.fullmatch(uuid) else uuid


def host_of(labels: Mapping[str, str]) -> str:
    """The host of a series; empty where no label names one.

    Exporters in a container often say ``localhost``: the scraped address then says more.
    """
    for name in HOST_LABELS:
        value = labels.get(name, "")
        if value and value.partition(":")[0] not in ("localhost", "127.0.0.1"):
            # A name without its port, unless only the port tells two exporters on one machine apart.
            return split_host(value)[0]
    return labels.get("instance", "")


def split_host(address: str) -> tuple[str, str]:
    """A name and what follows it: a port with its colon, or nothing."""
    port = _PORT.search(address)
    return (address, "") if port is None else (address[: port.start()], port[0])


_PORT = re.compile(r":\d{1,5}$")


def first_of(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    """The first of these labels that has a value, or nothing."""
    return next((value for name in names if (value := labels.get(name))), "")


POD_RANK = "-(?:worker|master|launcher|rank|node|chief|ps)-[0-9]+"
"""How pods of one training operator end, which differ in role and number alone: together they are one job."""
_RANK = re.compile(f"{POD_RANK}$")


def group_of(job: JobName) -> JobName:
    """The key that joins pods of one training job.

    Pods of two namespaces are never one: their names begin with it.
    """
    return JobName(POD, _RANK.sub("", job.name), job.cluster) if job.kind == POD else job
