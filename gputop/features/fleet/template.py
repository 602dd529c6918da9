"""Templates of PromQL rendered for one exporter: names, units, labels, windows and the user's selection.

A template has placeholders, which PromQL's own braces never look like:

- ``{sm}``: the signal of every GPU, as a ratio or in base units, one series a GPU: replicas of a highly available
  Prometheus are one, MIG instances stay apart.
- ``{sm.avg_over_time.5m}``: the same over a window; ``w`` is eight scrapes.
- ``{job:sm.avg_over_time.w}``: only of GPUs that work for a known job, with the label ``workload``.
- ``{gputop:gpu:state}``: a series that the rules record; ``{util_series|…}``: utilisation with all its labels.
- ``{by}``, ``{host}``: the labels of a GPU, and of its host; ``{up}``: the scraped targets; ``{price}``: the user's.
- ``{a_metric|label="x"}``: a series by its own name. With ``.rate.5m`` and the like over a window.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.features.fleet.exporter_names import BLANK, DIALECTS, RATIO_LIMIT, Signal
from gputop.features.fleet.promql import UNITS_S, max_by, over, renamed, selector, window
from gputop.model.prometheus_names import FB_FREE, HOST_LABEL, NAMES, Generation, gpu_series

Names = Literal["legacy", "4.9", "gputop"]
ALL_NAMES: tuple[Names, ...] = ("legacy", "4.9", "gputop")
NAMES_LABEL = "names"
"""The label of every recorded series that says from whose names it is made."""
SCRAPES = 8
"""The fewest samples that a window must hold to say anything about a GPU."""
SIGNALS: Mapping[str, str] = MappingProxyType({
    "util": "util_pct", "sm": "sm_active_pct", "occupancy": "sm_occupancy_pct", "tensor": "tensor_active_pct",
    "dram": "dram_active_pct", "engine": "graphics_active_pct", "power": "power_w", "power_limit": "power_limit_w",
    "energy": "energy_j", "temp": "temp_c", "memory": "mem_used_bytes", "memory_total": "mem_total_bytes",
    "clock": "sm_clock_mhz", "pcie_rx": "pcie_rx_bytes_per_s", "pcie_tx": "pcie_tx_bytes_per_s",
    "pcie_gen": "pcie_gen", "pcie_width": "pcie_width", "nvlink_rx": "nvlink_rx_bytes_per_s",
    "ecc": "ecc_uncorrected_volatile",
})  # fmt: skip
"""The word of a template → the key of the catalogue."""
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_POD_RANK = r"(.+?)(?:-(?:worker|master|launcher|rank|node|chief|ps)-[0-9]+)?"
"""Pods of one training operator differ in role and number alone: together they are one job."""


class RuleSetting(Struct, frozen=True):
    """How templates are rendered. ``select`` are matchers such as ``cluster="a"``.

    ``scrape_s`` is the time between two scrapes: windows follow from it. With ``recorded`` the long signals
    of jobs are replaced by the names under which the rules record them.
    """

    names: Names = "gputop"
    select: str = ""
    scrape_s: float = 15.0
    recorded: bool = False
    job: str = ""
    """A regular expression of job numbers; empty for all GPUs, also those without a job."""
    price: float | str | None = None
    """The user's own price of a GPU-hour, or the variable of a dashboard that holds it. Without it no question about
    money can be asked."""

    of_sums: str | None = None
    """Matchers of recorded sums, which have no host and no GPU, where they differ from ``select``."""

    @property
    def of_names(self) -> str:
        """The matcher of what is recorded under these names: a cluster may load the rules of several."""
        return f'{NAMES_LABEL}="{self.names}"'

    @property
    def host(self) -> str:
        """The label that names a host."""
        return "instance" if self.names == "gputop" else HOST_LABEL[self.names]

    @property
    def hosts(self) -> str:
        """The labels that may name a host, for ``by``: dcgm-exporter changed its spelling before its names."""
        return "Hostname, hostname" if self.names == "legacy" else self.host

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that name a GPU."""
        dialect = DIALECTS[self.names]
        return ("cluster", self.hosts, *dialect.number, *dialect.instance, *dialect.uuid)

    @property
    def by(self) -> str:
        """The labels that name a GPU, for ``on``."""
        return ", ".join(self.labels)

    @property
    def up(self) -> str:
        """Matchers of the targets that export under these names."""
        return 'job="gputop"' if self.names == "gputop" else 'job=~".*dcgm.*"'


@lru_cache(maxsize=64)
def signal_name(names: Names, key: str) -> Signal | None:
    """The exporter's name of a catalogue key, with the factor from an exported value to base units; None where these
    exporters do not have it."""
    own = next((series for series in gpu_series() if series.key == key), None)
    signal = DIALECTS[names].signals.get(key)
    return None if own is None or signal is None else replace(signal, factor=signal.factor / own.divisor)


def recorded_name(word: str) -> str:
    """The name under which the rules record a signal of jobs: ``job:sm.avg_over_time.w`` is ``gputop:job_sm:avg_w``."""
    short, function, window = word.removeprefix("job:").split(".")
    return f"gputop:job_{short}:{function.removesuffix('_over_time')}_{window}"


def recorded_words(template: str) -> set[str]:
    """The placeholders of a template that can be recorded."""
    return {word for word in _PLACEHOLDER.findall(template) if word.startswith("job:")}


def render(template: str, setting: RuleSetting) -> str:
    """The template in PromQL. Raises KeyError for a word that is neither a signal nor a series."""
    # What is inserted holds PromQL's own braces, and is not looked through again.
    return " ".join(_PLACEHOLDER.sub(lambda found: _filled(found[1], setting), template).split())


def _filled(word: str, setting: RuleSetting) -> str:
    if word in ("by", "host"):
        return setting.by if word == "by" else setting.hosts
    if word == "price":
        return setting.price if isinstance(setting.price, str) else f"{setting.price:.10g}"
    if word == "up":
        return _series("up", setting.up, setting)
    if word == "w":
        return window(_seconds("w", setting))
    if word.startswith("gputop:"):
        recorded, _, matchers = word.partition("|")
        is_sum = recorded.startswith(("gputop:fleet:", "gputop:job:"))
        select = setting.select if setting.of_sums is None or not is_sum else setting.of_sums
        return selector(recorded, setting.of_names, matchers, select)
    if word.startswith("util_series"):
        named = signal_name(setting.names, "util_pct")
        assert named is not None, "every exporter has utilisation"
        return _series(named.name, word.partition("|")[2], setting)
    if word.startswith("job:"):
        return (
            selector(recorded_name(word), setting.of_names)
            if setting.recorded
            else _of_jobs(word.removeprefix("job:"), setting)
        )
    name, _, matchers = word.partition("|")
    if name.partition(".")[0] in SIGNALS:
        return max_by(setting.labels, _signal(name, matchers, setting))
    series, *function = name.split(".")
    if not series.startswith(("gputop_", "DCGM_")):
        raise KeyError(word)
    return _over(_series(series, matchers, setting), function, setting)


def _signal(word: str, matchers: str, setting: RuleSetting) -> str:
    """A signal in base units, over its window if it has one, all labels kept."""
    short, *function = word.split(".")
    key = SIGNALS[short]
    if short == "memory_total" and setting.names != "gputop":
        generation: Generation = setting.names
        free, used = FB_FREE[generation], NAMES[generation]["mem_used_bytes"]
        both = " + ".join(_series(name, matchers, setting) for name in (used.name, free.name))
        return f"({both}){_times(used.divisor)}"
    named = signal_name(setting.names, key)
    if named is None:
        raise KeyError(word)
    value = _over(
        _series(named.name, ",".join((*named.matchers, *filter(None, (matchers,)))), setting), function, setting
    )
    if named.doubtful:
        # Percent under a ratio's name, as DCGM up to 4.6 has it: the highest of all values tells.
        greatest = f"scalar(max({_series(named.name, '', setting)}) > bool {RATIO_LIMIT:g})"
        return f"{value} / (1 + 99 * {greatest})"
    if setting.names != "gputop" and short != "energy" and not {"rate", "increase"}.intersection(function):
        value = f"({value} < {BLANK:g})"
    return value + _times(named.factor)


def _of_jobs(word: str, setting: RuleSetting) -> str:
    """A signal of GPUs whose job is known, by ``workload`` and GPU. Only jobs that are known have stragglers."""
    if setting.names == "gputop":
        infos = (
            renamed(_series("gputop_job_info", _JOB_ID, setting), "workload", "job_id"),
            renamed(_series("gputop_job_info", _POD_UID, setting), "workload", "k8s_pod_uid"),
        )
        jobs = max_by(("workload", *setting.labels), " or ".join(infos))
        values = max_by(setting.labels, _signal(word, "", setting))
        return f"({jobs} * on ({setting.by}) group_left () {values})"
    parts = (
        renamed(_signal(word, _HPC_JOB, setting), "workload", "hpc_job"),
        # Pods of one name in two namespaces are two jobs.
        f"label_join({renamed(_signal(word, _POD, setting), 'workload', 'exported_pod', _POD_RANK)}, "
        '"workload", "/", "exported_namespace", "workload")',
    )
    return max_by(("workload", *setting.labels), " or ".join(parts))


_JOB_ID, _POD_UID = 'job_id!=""', 'job_id="",k8s_pod_uid!=""'
_HPC_JOB, _POD = 'hpc_job!=""', 'hpc_job="",exported_pod!=""'


def _over(series: str, function: list[str], setting: RuleSetting) -> str:
    if not function:
        return series
    name, width, *arguments = function
    return over(name, series, _seconds(width, setting), *(text.replace("_", ".") for text in arguments))


def _seconds(word: str, setting: RuleSetting) -> float:
    """A window in seconds, long enough to hold ``SCRAPES`` samples."""
    least = SCRAPES * setting.scrape_s
    return least if word == "w" else max(least, int(word[:-1]) * UNITS_S[word[-1]])


def _series(name: str, matchers: str, setting: RuleSetting) -> str:
    job = ""
    if setting.job and name.startswith(("gputop_job_info", "gputop_step_")):
        job = f'job_id=~"{setting.job}"'
    elif setting.job and name.startswith("DCGM_"):
        job = f'hpc_job=~"{setting.job}"'
    return selector(name, matchers, setting.select, job)


def _times(factor: float) -> str:
    if factor == 1.0:
        return ""
    return f" / {1.0 / factor:.10g}" if factor < 1.0 else f" * {factor:.10g}"


# What a query is: PromQL, unit, meaning and what to do; grouped by failure mode.

Mode = Literal["health", "throughput", "bottleneck", "breadth", "waste"]
MODES: Mapping[Mode, str] = MappingProxyType({
    "health": "Health: is every GPU there and healthy",
    "throughput": "Throughput: how much work is done",
    "bottleneck": "Bottleneck: what holds it back",
    "breadth": "Breadth: does every GPU of a job keep up",
    "waste": "Waste: GPU time that did no work",
})  # fmt: skip
Unit = Literal[
    "ratio", "watts", "celsius", "bytes", "bytes/s", "joules", "seconds", "GPU-hours", "GPUs", "flag", "1/s", "money"
]  # fmt: skip
Severity = Literal["critical", "warning", "info"]


class Stops(Struct, frozen=True):
    """A value that is there for so many minutes, and no longer."""

    value: float
    minutes: int


Level = float | tuple[float, float] | Stops
"""A constant value, a first value with its rise per minute, or one that ends."""


class Planted(Struct, frozen=True):
    """A scenario for the unit test of an alert. GPUs by what they measure, in base units; other series."""

    gpus: tuple[Mapping[str, Level], ...] = ()
    series: tuple[tuple[str, Level], ...] = ()
    has_job: bool = False
    has_process: bool = True
    """Whether the job runs there: gputop's exporter names jobs by their processes, and pods that have none apart."""


class AlertRule(Struct, frozen=True):
    """When a query's answer is worth a page. ``when`` follows the query; ``lasts`` is how long it must hold.

    ``fires`` and ``silent`` are scenarios in which it must and must not fire, of the same series: they differ in
    numbers alone. ``about`` says whose labels an alert carries.
    """

    name: str
    when: str
    lasts: str
    severity: Severity
    fires: Planted
    silent: Planted
    about: Literal["gpu", "host", "fleet"] = "gpu"


class FleetQuestion(Struct, frozen=True):
    """One question. ``dcgm`` is the template for dcgm-exporter where it differs, None where it cannot answer.

    ``recorded`` is the template for gputop's names where the rules record a sum that it can be made of.
    """

    id: str
    mode: Mode
    title: str
    unit: Unit
    template: str
    meaning: str
    advice: str
    dcgm: str | None = "same"
    alert: AlertRule | None = None
    recorded: str | None = None

    def template_for(self, names: Names) -> str | None:
        """The template for these names; None where nothing exported under them can answer."""
        return self.template if names == "gputop" or self.dcgm == "same" else self.dcgm

    def promql(self, setting: RuleSetting) -> str | None:
        """The query in PromQL, None where it cannot be asked under these names, or needs a price that is not given."""
        template = self.template_for(setting.names)
        if template is None or (self.needs_price and setting.price is None):
            return None
        if setting.recorded and setting.names == "gputop" and self.recorded is not None:
            template = self.recorded
        return render(template, setting)

    def needs_rules(self, names: Names) -> bool:
        """Whether it asks for what the rules record."""
        return "{gputop:" in (self.template_for(names) or "")

    @property
    def needs_price(self) -> bool:
        """Whether it asks about money."""
        return "{price}" in self.template
