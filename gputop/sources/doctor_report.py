"""Collects the data behind ``gputop doctor``.

Uses the same source as everything else, so that it reports what a screen would show. Prints nothing.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from gputop.model.extras import DISTRIBUTION, EXTRAS
from gputop.model.metrics import GPU_METRICS, IMPOSSIBLE
from gputop.model.quantity import count, which_gpus
from gputop.model.sm import NO_OPTIONS, SmOptions
from gputop.model.snapshot import GpuSample, Snapshot
from gputop.model.source import SourceError
from gputop.sources.activity.choose_sources import exporter_url
from gputop.sources.activity.dcgm_exporter import Exporter
from gputop.sources.activity.fallback_chain import SmReadFailed
from gputop.sources.doctor_sources import ask_dcgmi, counters_here, source_rows
from gputop.sources.local import LocalSource
from gputop.sources.nvml.device_health import NONE_DOWN
from gputop.sources.one_reading import WAIT_S, OneReading
from gputop.sources.selection import MachineOptions

SCHEMA = 1
INITIAL_PID_NAMESPACE = 4026531836
"""Inode of the first PID namespace (PROC_PID_INIT_INO in linux/proc_ns.h)."""
DISTRIBUTIONS = (DISTRIBUTION, "textual", "nvidia-ml-py", "msgspec")
KERNEL_FILES = {"schedstat": "self/schedstat", "psi": "pressure/cpu", "wait_channel": "self/wchan"}


def examine(
    gpus: str | None = None,
    visible: bool = False,
    sm: SmOptions = NO_OPTIONS,
    terminal: Mapping[str, Any] | None = None,
    proc: str = "/proc",
    wait_s: float = WAIT_S,
    slow: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Return the whole report as data for JSON.

    Takes about a third of a second, and at most ``wait_s`` where the driver is slow. ``schema``, ``driver``, ``gpus``
    and ``problems`` always exist; a machine without a driver has no GPUs and says so under ``problems``, as do GPUs
    that could not be read in time (``complete`` is then false). ``slow`` gets a message after a second of waiting.
    ``terminal`` is handed through. ``sm`` may ask dcgmi as well, which takes up to five seconds more. Raises
    UsageError for a GPU that does not exist.
    """
    source = LocalSource(MachineOptions(gpus=gpus, visible=visible, sm=sm, proc=proc))
    reading: OneReading | None = None
    problems: list[str] = []
    try:
        reading = source.read_once(wait_s, slow)
    except SourceError as error:
        problems.append(str(error))
    finally:
        library = _mapped_library(proc)
        source.close()
    snapshot = reading.snapshot if reading is not None else None
    exporter = Exporter(exporter_url(sm))
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "driver": snapshot.machine.driver if snapshot else None,
        "nvml": source.nvml_version,
        "library": library,
        "gpus": [],
        **(reading.data() if reading is not None else {"complete": False, "missing_gpus": []}),
        "host": platform.node(),
        "kernel": {
            "release": platform.release(),
            **{key: _readable(proc, name) for key, name in KERNEL_FILES.items()},
        },
        "permissions": _permissions(proc),
        "pid_namespace": _pid_namespace(proc),
        "versions": {
            "python": platform.python_version(),
            **{name: _version(name) for name in DISTRIBUTIONS},
        },
        "extras": _extras(),
        "terminal": dict(terminal or {}),
    }
    if snapshot is not None:
        exporter.scrape(0.0)
        dcgmi_uuids = ask_dcgmi(sm.dcgmi)
        counters = report["counters"] = counters_here(
            snapshot.machine.driver, proc, sm.perf_lib or None
        )
        report["gpus"] = [_gpu(gpu, sm, exporter, dcgmi_uuids, counters) for gpu in snapshot.gpus]
        problems += gpu_problems(snapshot)
    problems += _machine_problems(report)
    report["problems"] = problems
    return report


def _gpu(
    gpu: GpuSample,
    sm: SmOptions,
    exporter: Exporter,
    dcgmi_uuids: Collection[str] | SmReadFailed,
    counters: Mapping[str, Any],
) -> dict[str, Any]:
    static = gpu.static
    return {
        "index": static.index,
        "uuid": static.uuid,
        "name": static.name,
        "architecture": static.architecture,
        "sm_source": gpu.sm_source,
        "sm_active_pct": gpu.sm_active_pct,
        "lost_reason": gpu.lost_reason,
        "health": _health(gpu),
        "rungs": source_rows(gpu, exporter, dcgmi_uuids, counters),
        "unavailable": dict(gpu.unavailable),
    }


HEALTH = (
    "recovery_action", "recovery", "xid", "xid_class", "xid_action", "ecc_corrected_per_s", "ecc_corrected_volatile",
    "ecc_uncorrected_volatile", "remapped_rows_corrected", "remapped_rows_uncorrected", "remap_pending", "remap_failed",
    "retired_pending", "nvlink_count", "nvlink_active", "nvlink_down", "module_power_w",
)  # fmt: skip
FACTS = ("pci_bus_id", "serial", "persistence", "compute_mode", "cuda")


def _health(gpu: GpuSample) -> dict[str, Any]:
    """Return what decides whether a GPU must be reset, and the facts of its board."""
    data: dict[str, Any] = {key: getattr(gpu, key) for key in HEALTH}
    data |= {key: getattr(gpu.static, key) for key in FACTS}
    return data


def gpu_problems(snapshot: Snapshot) -> list[str]:
    """Return the GPUs' problems, each once with all its GPUs."""
    indices: dict[str, list[int]] = {}
    for gpu in snapshot.gpus:
        for problem in _problems_of(gpu):
            indices.setdefault(problem, []).append(gpu.static.index)
    return [
        *snapshot.notices,
        *(f"{which_gpus(gpus)}: {problem}" for problem, gpus in indices.items()),
    ]


def _problems_of(gpu: GpuSample) -> Iterator[str]:
    if gpu.recovery_action:
        yield f"the driver asks for recovery: {gpu.recovery} (recovery action {gpu.recovery_action})"
    if gpu.lost_reason is not None:
        yield gpu.lost_reason
    elif gpu.sm_active_pct is None and not gpu.static.is_split:
        yield f"SM activity is not measured: {gpu.sm_reason}"
    refused = gpu.unavailable.get("util_pct")
    if refused is not None and not gpu.static.mig_enabled and not gpu.asleep:
        yield f"utilisation is not measured: {refused}"
    for key, why in gpu.unavailable.items():
        if IMPOSSIBLE in why:
            yield f"{GPU_METRICS[key].label} is not measured: {why}"
    if gpu.remap_failed:
        yield "a row remap has failed: replace the card"
    if gpu.nvlink_down not in (None, NONE_DOWN):
        down = f"{gpu.nvlink_down} of {gpu.nvlink_count}"
        yield f"NVLinks down: {down}; nvidia-smi nvlink --status, then reset the GPU"
    if gpu.retired_pending:
        yield "a page retirement is pending: drain the node and reset the GPU"
    if gpu.remap_pending:
        yield "a row remap is pending: drain the node and reset the GPU"
    if gpu.ecc_uncorrected_volatile:
        n = count(int(gpu.ecc_uncorrected_volatile), "uncorrected memory error")
        yield f"{n} since the driver was loaded: nvidia-smi -q -d ECC,ROW_REMAPPER"


def _machine_problems(report: Mapping[str, Any]) -> list[str]:
    kernel, may = report["kernel"], report["permissions"]
    problems = {
        "inside a container with its own PID namespace: GPU processes cannot be matched; run it with --pid=host": (
            report["pid_namespace"] == "private"
        ),
        "no /proc/PID/schedstat: waiting for a core is unknown; needs CONFIG_SCHED_INFO": not kernel[
            "schedstat"
        ],
        "no pressure figures (/proc/pressure): boot with psi=1, or needs Linux 4.20 with CONFIG_PSI": not kernel[
            "psi"
        ],
        "other users' processes are hidden (hidepid): run as root to see what starves their GPUs": (
            not may["other_users_processes"]
        ),
        "other users' I/O and wait channels are closed to this user: run as root for disk evidence": (
            may["other_users_processes"] and not may["root"]
        ),
    }
    return [problem for problem, is_there in problems.items() if is_there]


def _permissions(proc: str) -> dict[str, Any]:
    control = Path("/dev/nvidiactl")
    return {
        "root": os.geteuid() == 0,
        "nvidia_device": os.access(control, os.R_OK | os.W_OK) if control.exists() else None,
        "other_users_processes": _readable(proc, "1/stat"),
    }


def _readable(proc: str, name: str) -> bool:
    """Whether a file of /proc can really be read.

    Some can be opened and refuse only the read.
    """
    with suppress(OSError), open(Path(proc, name), "rb") as file:
        file.read(64)
        return True
    return False


def _pid_namespace(proc: str) -> str:
    """Return ``host``, ``private``, or ``unknown``."""
    with suppress(OSError):
        is_first = os.readlink(Path(proc, "self/ns/pid")) == f"pid:[{INITIAL_PID_NAMESPACE}]"
        return "host" if is_first else "private"
    return "unknown"


def _mapped_library(proc: str) -> str | None:
    """Return the path of the loaded NVML library."""
    with suppress(OSError):
        lines = Path(proc, "self/maps").read_text(errors="replace").splitlines()
        return next((line.split(maxsplit=5)[5] for line in lines if "libnvidia-ml" in line), None)
    return None


def _extras() -> dict[str, dict[str, str | None]]:
    """Return each extra with its version, None if not installed."""
    return {
        name: {
            "for": extra.purpose,
            "distribution": extra.distribution,
            "version": _version(extra.distribution),
        }
        for name, extra in EXTRAS.items()
    }


def _version(distribution: str) -> str | None:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(distribution)
    return None
