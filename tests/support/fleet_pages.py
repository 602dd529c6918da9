"""What the exporters of a simulated fleet write: the same GPUs under each dialect's own names, labels and units."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gputop.features.fleet.exporter_names import DIALECTS
from gputop.features.fleet.fleet_reading import GpuReading
from gputop.features.fleet.judge.gpu_state import lost_hours
from gputop.features.fleet.read.simulated_fleet import LATE_S, SimulatedFleet

KEYS = ("util_pct", "sm_active_pct", "tensor_active_pct", "power_w", "mem_used_bytes")
LOST_S = 420.0
"""How long before it a GPU was lost: means of five minutes know nothing of it any more."""
DOWN_S = 150.0
"""How long before the end a host that is down gave its last values."""


def quoted(text: str) -> str:
    """A label's value as the text format has it."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def labels_of(read: GpuReading, instance: str) -> str:
    """The labels of a GPU's series in its dialect, with those that a scrape adds."""
    job = quoted(read.job.removeprefix("slurm "))
    host, address = quoted(read.host), f'instance="{instance}",job="gpu"'
    if read.names == "gputop":
        return f'gpu="{read.gpu}",uuid="{read.uuid}",{address}'
    name = "hostname" if read.names == "4.9" else "Hostname"
    own = f'gpu="{read.gpu}",UUID="{read.uuid}",modelName="{read.model}",{name}="{host}",{address}'
    if read.job.startswith("pod "):
        namespace, _, pod = job.removeprefix("pod ").partition("/")
        return f'{own},exported_namespace="{namespace}",exported_pod="{pod}"'
    return f'{own},hpc_job="{job}"' if job else own


def _rank(read: GpuReading, rank: int, instance: str) -> str:
    """The labels under which gputop gives the steps of a rank of a job, counted over all its hosts."""
    number = read.job.removeprefix("slurm ")
    return f'gpu="{read.gpu}",rank="{rank}",job_id="{number}",instance="{instance}",job="gpu"'


def gpu_lines(read: GpuReading, instance: str) -> Iterator[tuple[str, float]]:
    """(series, value) of one GPU."""
    labels = labels_of(read, instance)
    for key in KEYS:
        value, signal = getattr(read, key), DIALECTS[read.names].signals.get(key)
        if value is not None and signal is not None:
            yield f"{signal.name}{{{labels}}}", value / signal.factor
    if read.names == "gputop":
        yield f'gputop_gpu_state{{{labels},state="{read.own_state}"}}', 1.0
        yield f'gputop_gpu_verdict{{{labels},verdict="{read.own_verdict}"}}', 1.0
        if read.job and read.is_allocated:
            pod = read.job.partition("/")[2]
            yield (
                f'gputop_pod_info{{{labels},k8s_namespace_name="{read.user}",k8s_pod_name="{pod}"}}',
                1.0,
            )
        elif read.job:
            scheduler, _, number = read.job.partition(" ")
            yield (
                f'gputop_job_info{{{labels},scheduler="{scheduler}",job_id="{number}",user="{read.user}"}}',
                1.0,
            )


def host_lines(fleet: SimulatedFleet, host: int, t: float, end: float) -> list[tuple[str, float]]:
    """What one host's exporter says at a time; what went wrong was so before ``end``."""
    name = fleet.host_name(host)
    instance = f"{name}:9400"
    own, is_late = fleet.names_of(host) == "gputop", host == fleet.late and t > end - LATE_S
    found = []
    for number in range(fleet.gpus):
        read = fleet.gpu(host, number, t)
        is_lost = read.is_lost and t > end - LOST_S
        if own and not is_late:
            found.append((f"gputop_gpu_info{{{labels_of(read, instance)}}}", 1.0))
        if is_lost and own:
            found.append((f"gputop_gpu_lost{{{labels_of(read, instance)}}}", 1.0))
        elif not is_lost and not is_late:
            found += gpu_lines(read, instance)
    if own:
        found.append(
            (f'gputop_host_info{{hostname="{name}",instance="{instance}",job="gpu"}}', 1.0)
        )
        found.append((f'gputop_up{{instance="{instance}",job="gpu"}}', float(not is_late)))
    return found


def past(
    fleet: SimulatedFleet,
    end: float,
    span_s: float,
    step_s: float,
    hosts: Iterable[int] | None = None,
) -> Iterator[str]:
    """An hour, say, of the whole fleet as lines with times: of each host in the order of time."""
    steps = int(span_s / step_s)
    for host in range(fleet.hosts) if hosts is None else hosts:
        stops = end - DOWN_S if fleet.is_down(host) else end
        lost: dict[str, float] = {}
        counted: dict[str, float] = {}
        series: dict[str, list[str]] = {}
        for step in range(steps + 1):
            t = end - span_s + step * step_s
            instance = f'instance="{fleet.host_name(host)}:9400",job="gpu"'
            series.setdefault("up", []).append(f"up{{{instance}}} {int(t <= stops)} {t:.3f}\n")
            if t > stops:
                continue
            for name, value in host_lines(fleet, host, t, end):
                series.setdefault(name, []).append(f"{name} {value:.6g} {t:.3f}\n")
            if fleet.names_of(host) == "gputop":
                for number in range(fleet.gpus):
                    read = fleet.gpu(host, number, t)
                    if read.own_state is None:
                        continue
                    rank = _rank(
                        read,
                        (host - fleet.job_of(host).first) * fleet.gpus + number,
                        f"{fleet.host_name(host)}:9400",
                    )
                    for name, seconds in (("step", read.step_s), ("step_wait", read.step_wait_s)):
                        if read.step_s is None or seconds is None:
                            continue
                        count = step_s / read.step_s
                        for part, more in (("sum", count * seconds), ("count", count)):
                            own = f"gputop_{name}_seconds_{part}{{{rank}}}"
                            counted[own] = counted.get(own, 0.0) + more
                            series.setdefault(own, []).append(f"{own} {counted[own]:.9g} {t:.3f}\n")
                    labels = labels_of(read, f"{fleet.host_name(host)}:9400")
                    own = f'gputop_gpu_state_seconds_total{{{labels},state="{read.own_state}"}}'
                    lost[own] = lost.get(own, 0.0) + lost_hours(
                        read.own_state, read.util_pct, step_s
                    )
                    series.setdefault(own, []).append(f"{own} {lost[own]:.6g} {t:.3f}\n")
        for lines in series.values():
            yield from lines
