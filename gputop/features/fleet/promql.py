"""Write PromQL: its parts as text, and the series of an exporter. Pure.

Rules, alerts, dashboards, ``fleet queries`` and the screen are made of these. A ``Scope``, ``q`` where queries are
written, holds the names of one exporter; ``rule_scope`` makes scopes of rules, ``queries.FleetSchema`` scopes of the
screen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import starmap
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from gputop.features.fleet.exporter_names import (
    BLANK,
    DIALECTS,
    MOMENT_KEYS,
    POD_RANK,
    RATIO_LIMIT,
    Dialect,
)
from gputop.features.fleet.fleet_reading import HOUR_S, WINDOW_S
from gputop.model.prometheus_names import gpu_series

_SPECIAL = re.compile(r"([.+*?()|\[\]{}^$\\])")


def selector(name: str, *matchers: str) -> str:
    """A series by name and matchers; empty matchers are left out."""
    joined = ",".join(part for part in matchers if part)
    return f"{name}{{{joined}}}" if joined else name


def named(names: Iterable[str], *matchers: str) -> str:
    """Series under any of these names."""
    return selector("", any_of("__name__", names), *matchers)


def equal(label: str, value: str) -> str:
    """A matcher for this value."""
    return f'{label}="{value}"'


def any_of(label: str, values: Iterable[str]) -> str:
    """A matcher for any of these values, whatever characters they hold."""
    pattern = "|".join(_SPECIAL.sub(r"\\\1", value) for value in values)
    escaped = pattern.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{label}=~"{escaped}"'


def window(seconds: float) -> str:
    """A duration in its largest whole unit: ``5m``, ``90s``."""
    for unit, length_s in (("h", 3600), ("m", 60)):
        if seconds % length_s == 0:
            return f"{seconds / length_s:.0f}{unit}"
    return f"{seconds:.0f}s"


def over(function: str, series: str, seconds: float, *arguments: str) -> str:
    """Apply a function to a window; ``arguments`` come first, as for a quantile."""
    return f"{function}({', '.join((*arguments, f'{series}[{window(seconds)}]'))})"


def hour_of(function: str, series: str) -> str:
    """A sum or count of one hour's samples.

    A millisecond less than an hour leaves out the sample at its first edge, which older engines take as well.
    """
    return f"{function}({series}[{1000.0 * HOUR_S - 1.0:.0f}ms])"


def max_by(labels: Iterable[str], expr: str) -> str:
    """One series per combination of labels; drops the second of two replicas."""
    return f"max by ({', '.join(dict.fromkeys(labels))}) ({expr})"


def marked(expr: str, label: str, value: str) -> str:
    """The series with one more label."""
    return f'label_replace({expr}, "{label}", "{value}", "", "")'


def renamed(expr: str, to: str, label: str, pattern: str = "(.+)") -> str:
    """Copy a label: ``to`` becomes the pattern's first group in ``label``."""
    return f'label_replace({expr}, "{to}", "$1", "{label}", "{pattern}")'


def union(parts: Iterable[str]) -> str:
    """All series of these; empty for none."""
    return " or ".join(parts)


Names = Literal["legacy", "4.9", "gputop"]
ALL_NAMES: tuple[Names, ...] = ("legacy", "4.9", "gputop")
"""The dialects that rules and dashboards are written in."""
NAMES_LABEL = "names"
"""The label of every recorded series that says from whose names it is made."""
SCRAPES = 8
"""The fewest samples that a window of a rule must hold to say anything about a GPU."""
SIGNALS: Mapping[str, str] = MappingProxyType({
    "util": "util_pct", "sm": "sm_active_pct", "occupancy": "sm_occupancy_pct", "tensor": "tensor_active_pct",
    "dram": "dram_active_pct", "engine": "graphics_active_pct", "power": "power_w", "power_limit": "power_limit_w",
    "energy": "energy_j", "temp": "temp_c", "memory": "mem_used_bytes", "memory_total": "mem_total_bytes",
    "clock": "sm_clock_mhz", "pcie_rx": "pcie_rx_bytes_per_s", "pcie_tx": "pcie_tx_bytes_per_s",
    "pcie_gen": "pcie_gen", "pcie_width": "pcie_width", "nvlink_rx": "nvlink_rx_bytes_per_s",
    "ecc": "ecc_uncorrected_volatile",
})  # fmt: skip
"""A signal in base units, as ratio, bytes or hertz → the key of the catalogue, in the catalogue's own unit."""
ENGINE = SIGNALS["engine"]
MEANS: Mapping[str, str] = MappingProxyType({word: f"gputop:gpu:{word}" for word in ("util", "sm")})
"""Signals whose means over the window of a state are recorded, by name: a state alone names them a dozen times."""
_BASE: Mapping[str, float] = MappingProxyType(
    {series.key: series.divisor for series in gpu_series()}
)
"""The catalogue's unit in base units, by key."""


def base_factor(dialect: Dialect, key: str) -> float:
    """The factor from an exported value to base units."""
    return dialect.signals[key].factor / _BASE[key]


def job_mean(word: str, seconds: float | None = None) -> str:
    """The name under which the rules record ``Scope.of_jobs``."""
    return f"gputop:job_{word}:avg_{'w' if seconds is None else window(seconds)}"


class Scope(Struct, frozen=True):
    """Names, labels and matchers of one exporter's GPUs.

    ``labels`` tell GPUs apart, ``select`` narrows every series. No window is shorter than ``least_s`` seconds. With
    ``uses_records`` the means of jobs and sums over an hour are those that the rules record; ``of_sums`` are the
    matchers of recorded sums, which have no host and no GPU, where they differ from ``select``. ``job`` is a regular
    expression of job numbers, empty for all GPUs. ``price`` is the user's own price of a GPU-hour, or the dashboards'
    variable: without it no question about money is asked.
    """

    dialect: Dialect
    labels: tuple[str, ...]
    select: str = ""
    least_s: float = 0.0
    uses_records: bool = False
    job: str = ""
    price: str = ""
    of_sums: str | None = None

    @property
    def is_own(self) -> bool:
        """Whether gputop's own exporter is asked."""
        return self.dialect.is_own

    @property
    def gpu_labels(self) -> str:
        """The labels that name a GPU, for ``on``."""
        return ", ".join(self.labels)

    @property
    def host(self) -> str:
        """The labels that may name a host, for ``by``."""
        return ", ".join(self.dialect.hosts)

    def series(self, name: str, *matchers: str, **labels: str) -> str:
        """A series within the selection."""
        job = ""
        if self.job and name.startswith(("gputop_job_info", "gputop_step_")):
            job = f'job_id=~"{self.job}"'
        elif self.job and name.startswith("DCGM_"):
            job = f'hpc_job=~"{self.job}"'
        return selector(name, *matchers, *starmap(equal, labels.items()), self.select, job)

    def record(self, name: str, *matchers: str) -> str:
        """A recorded series; a cluster may load the rules of several names."""
        is_sum = name.startswith(("gputop:fleet:", "gputop:job:"))
        select = self.of_sums if is_sum and self.of_sums is not None else self.select
        return selector(name, equal(NAMES_LABEL, self.dialect.id), *matchers, select)

    def up(self) -> str:
        """The targets that export under these names."""
        return self.series("up", self.dialect.targets)

    def exported(self, key: str, *matchers: str) -> str:
        """A key of the catalogue as exported. Raises KeyError if it is not."""
        signal = self.dialect.signals[key]
        return self.series(signal.name, *signal.matchers, *matchers)

    def utilisation(self, *matchers: str) -> str:
        """Utilisation of GPUs, and of MIG instances' engines."""
        engines = self.exported(ENGINE, *self.instances, *matchers)
        return union((self.exported("util_pct", *self.whole, *matchers), engines))

    def moment(self, *matchers: str) -> str:
        """Gauges of the moment: a GPU exists if one of them has a value."""
        return union(self.exported(key, *matchers) for key in MOMENT_KEYS)

    @property
    def whole(self) -> tuple[str, ...]:
        """The matcher of whole GPUs, without MIG instances."""
        return tuple(f'{label}=""' for label in self.dialect.instance)

    @property
    def instances(self) -> tuple[str, ...]:
        """The matcher of MIG instances."""
        return tuple(f'{label}!=""' for label in self.dialect.instance)

    def over(self, function: str, series: str, seconds: float = WINDOW_S, *arguments: str) -> str:
        """A function of a series over a window."""
        return over(function, series, max(seconds, self.least_s), *arguments)

    def per_gpu(self, expr: str, *labels: str) -> str:
        """One series a GPU, and a value of further labels."""
        return max_by((*self.labels, *labels), expr)

    def says(self, name: str, **labels: str) -> str:
        """GPUs whose flag is 1."""
        return f"{self.per_gpu(self.series(name, **labels))} == 1"

    def gpu(self, word: str, function: str = "", seconds: float = WINDOW_S, *arguments: str) -> str:
        """A signal of every GPU in base units, now or over a window."""
        return self.per_gpu(self._measured(word, (), function, seconds, *arguments))

    def mean(self, word: str, seconds: float = WINDOW_S) -> str:
        """A signal's mean over the window of a state, as recorded where it is."""
        if self.uses_records and seconds == WINDOW_S and word in MEANS:
            return self.per_gpu(self.record(MEANS[word]))
        return self.gpu(word, "avg_over_time", seconds)

    def of_jobs(self, word: str, seconds: float | None = None) -> str:
        """A signal's mean of GPUs with a job, by ``workload`` and GPU.

        Over ``seconds``, or over the shortest window; then without MIG instances, which do not wait for each other.
        Each cluster counts its jobs from 1.
        """
        if self.uses_records:
            return self.record(job_mean(word, seconds))
        mean, whole = (
            ("avg_over_time", seconds or self.least_s),
            self.whole if seconds is None else (),
        )
        if self.is_own:
            pods = self.series("gputop_job_info", 'job_id=""', 'k8s_pod_uid!=""', *whole)
            infos = (
                renamed(self.series("gputop_job_info", 'job_id!=""', *whole), "workload", "job_id"),
                renamed(pods, "workload", "k8s_pod_uid"),
            )
            jobs = max_by(("workload", *self.labels), union(infos))
            return f"({jobs} * on ({self.gpu_labels}) group_left () {self.gpu(word, *mean)})"
        pods = self._measured(word, ('hpc_job=""', 'exported_pod!=""', *whole), *mean)
        parts = (
            renamed(self._measured(word, ('hpc_job!=""', *whole), *mean), "workload", "hpc_job"),
            # Pods of one name in two namespaces are two jobs.
            f"label_join({renamed(pods, 'workload', 'exported_pod', f'(.+?)(?:{POD_RANK})?')}, "
            '"workload", "/", "exported_namespace", "workload")',
        )
        return max_by(("workload", *self.labels), union(parts))

    def _measured(
        self, word: str, matchers: tuple[str, ...], function: str, seconds: float, *arguments: str
    ) -> str:
        """A signal in base units, all labels kept."""
        if word == "util":
            of_whole = self._as_exported(
                "util", (*self.whole, *matchers), function, seconds, *arguments
            )
            of_instances = self._as_exported(
                "engine", (*self.instances, *matchers), function, seconds, *arguments
            )
            return f"({of_whole} or {of_instances})"
        return self._as_exported(word, matchers, function, seconds, *arguments)

    def _as_exported(
        self, word: str, matchers: tuple[str, ...], function: str, seconds: float, *arguments: str
    ) -> str:
        key = SIGNALS[word]
        signal = self.dialect.signals[key]
        parts = [
            self.exported(key, *matchers),
            *([self.series(signal.plus, *matchers)] if signal.plus else ()),
        ]
        value = " + ".join(
            self.over(function, part, seconds, *arguments) if function else part for part in parts
        )
        if signal.plus:
            value = f"({value})"
        if signal.doubtful:
            # Percent under a ratio's name, as DCGM up to 4.6 has it: the highest of all values tells.
            return (
                f"{value} / (1 + 99 * scalar(max({self.series(signal.name)}) > bool "
                f"{RATIO_LIMIT:g}))"
            )
        if not self.is_own and key != "energy_j" and function not in ("rate", "increase"):
            value = f"({value} < {BLANK:g})"
        factor = base_factor(self.dialect, key)
        times = (
            ""
            if factor == 1.0
            else f" / {1.0 / factor:.10g}"
            if factor < 1.0
            else f" * {factor:.10g}"
        )
        return value + times


def rule_scope(
    names: Names = "gputop",
    select: str = "",
    *,
    scrape_s: float = 15.0,
    uses_records: bool = False,
    job: str = "",
    price: float | str | None = None,
    of_sums: str | None = None,
) -> Scope:
    """The scope of rules and dashboards; ``scrape_s`` is the time between scrapes."""
    dialect = DIALECTS[names]
    labels = ("cluster", *dialect.hosts, *dialect.number, *dialect.instance, *dialect.uuid)
    text = price if isinstance(price, str) else f"{price:.10g}" if price else ""
    return Scope(dialect, labels, select, SCRAPES * scrape_s, uses_records, job, text, of_sums)


def mean_seconds(q: Scope, name: str, by: str) -> str:
    """The mean of one of gputop's summaries over the window of a state.

    A summary that did not rise has none.
    """
    seconds, times = (q.over("rate", q.series(f"{name}_{part}")) for part in ("sum", "count"))
    return f"sum by ({by}) ({seconds}) / sum by ({by}) ({times} > 0)"


DEAD_S, DEAD_SCRAPES = 120.0, 4
"""A file's values that did not change for so long, and over so many scrapes, are those of an exporter that has ended.
The file's own time is compared with itself: a node's clock may be wrong."""


def unwritten(q: Scope, scrape_s: float = 0.0) -> str:
    """How long ago files were written that are no longer renewed, in seconds."""
    stamp, silent_s = (
        q.series("gputop_last_sample_timestamp_seconds"),
        max(DEAD_S, DEAD_SCRAPES * scrape_s),
    )
    newest, oldest, samples = (
        q.over(f"{function}_over_time", stamp, silent_s) for function in ("max", "min", "count")
    )
    return (
        f"(time() - {stamp}) and on (instance) ({q.series('gputop_up')} == 1) and on (instance) "
        f"({newest} == {oldest}) and on (instance) ({samples} >= {DEAD_SCRAPES - 1})"
    )
