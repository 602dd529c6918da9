"""Answers of a size that an assistant can use: what matters first, on request the rest, and each foreign text labelled.
And the files that it may ask about.

A process may be named "ignore your instructions": a reader must be able to tell gputop's words from such text.
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gputop.model.quantity import clean_text
from gputop.model.source import UsageError

MOST_BYTES = 20_000
"""Of an answer that was not asked for in full: some 7,000 tokens."""
SUFFIX = "_untrusted"
MOST_TEXT = 500
MOST_ITEMS = 10_000
OWN = frozenset({
    "badge", "busy_not_working", "category", "cause", "condition", "confidence", "energy_from", "family",
    "id", "in_sample", "kind", "level", "measure", "phase", "rank_from", "remedy", "role", "sm_source", "source",
    "state", "tables_are", "title", "unit", "verdict",
})  # fmt: skip
"""Keys whose texts come from gputop's own tables. All other texts are labelled."""


def labelled(data: Any) -> Any:
    """JSON-able data with the label on each key that holds a text from outside; texts cleaned, endless lists cut."""
    if isinstance(data, Mapping):
        return dict(_entry(str(key), value) for key, value in data.items())
    if isinstance(data, (list, tuple)):
        return [labelled(value) for value in data[:MOST_ITEMS]]
    if isinstance(data, str):
        return clean_text(data)[:MOST_TEXT]
    return data


def _entry(key: str, value: Any) -> tuple[str, Any]:
    if key in OWN or not _has_text(value):
        return key, labelled(value)
    if isinstance(value, Mapping):
        # Such as reasons by metric: the keys are gputop's, the texts are not.
        return f"{key}{SUFFIX}", {str(k)[:MOST_TEXT]: labelled(v) for k, v in value.items()}
    return f"{key}{SUFFIX}", labelled(value)


def _has_text(value: Any) -> bool:
    """Whether a value is a text, or a flat collection that holds one; what is nested labels its own keys."""
    if isinstance(value, str):
        return True
    if isinstance(value, Mapping):
        return bool(value) and all(isinstance(v, str) for v in value.values())
    return isinstance(value, (list, tuple)) and any(isinstance(v, str) for v in value)


def compact(data: Mapping[str, Any], *, full: bool) -> str:
    """The answer's text: JSON without blanks. Unless it is wanted in full, the largest lists are cut until it is small
    enough, and ``left_out`` says how many entries of each."""
    shortened = dict(data)
    text = _json(shortened)
    if full or len(text.encode()) <= MOST_BYTES:
        return text
    left_out: dict[str, int] = {}
    while len(text.encode()) > MOST_BYTES:
        longest = max(_lists(shortened, ""), key=lambda list_found: list_found[0], default=None)
        if longest is None:
            break
        _, path, values = longest
        keep = len(values) // 2
        left_out[path] = left_out.get(path, 0) + len(values) - keep
        del values[keep:]
        text = _json({**shortened, "left_out": left_out})
    return text


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _lists(data: Any, path: str) -> Iterable[tuple[int, str, list[Any]]]:
    """Every list of two and more entries that holds no other such list, with its size and where it stands."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _lists(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, list):
        inner = [inner_list for value in data for inner_list in _lists(value, f"{path}[]")]
        yield from inner
        if len(data) > 1 and not inner:
            yield len(_json(data)), path, data


# --- what is said by default ----------------------------------------------------------------------------------------

_GPU = (
    "index", "name", "uuid", "util_pct", "sm_active_pct", "sm_source", "sm_low_pct", "sm_high_pct", "tensor_active_pct",
    "dram_active_pct", "gap_pct", "in_sample", "mem_used_bytes", "mem_total_bytes", "power_w",
    "power_limit_w", "temp_c", "lost_reason", "asleep",
)  # fmt: skip
_ALWAYS = ("util_pct", "sm_active_pct")
_PROCESS = (
    "pid", "name", "user", "role", "gpu_mem_bytes", "gpu_time_pct", "cpu_pct", "main_run_pct", "state", "waiting_on",
    "loader", "server",
)  # fmt: skip
_HOST = (
    "hostname", "driver", "source", "cpu_pct", "cpu_count", "mem_used_bytes", "mem_total_bytes", "psi_cpu_pct",
    "psi_io_pct", "psi_mem_pct", "disk_read_bytes_per_s", "net_rx_bytes_per_s",
)  # fmt: skip
TOP_PROCESSES = 3


def snapshot_brief(data: Mapping[str, Any], *, gpu: int | None, top: int | None) -> dict[str, Any]:
    """Each GPU's main numbers and the processes that hold most of its memory; of one GPU more of these."""
    most_processes = top if top is not None else TOP_PROCESSES if gpu is None else 4 * TOP_PROCESSES
    gpu_rows = [gpu_row for gpu_row in data["gpus"] if gpu is None or gpu_row["index"] == gpu]
    return {
        "t": data["t"],
        "host": _present(data["host"], _HOST),
        "gpus": [_gpu_brief(gpu_row, data["processes"], most_processes) for gpu_row in gpu_rows],
        "loader_workers": sum(process["role"] == "loader" for process in data["processes"]),
        "notices": data["notices"],
    }


def _gpu_brief(gpu: Mapping[str, Any], processes: Sequence[Mapping[str, Any]], most_processes: int) -> dict[str, Any]:
    own_processes = [process for process in processes if process["gpu"] == gpu["index"]]
    own_processes.sort(key=lambda process: -(process["gpu_mem_bytes"] or 0.0))
    missing = {key: reason for key, reason in gpu["unavailable"].items() if key in _GPU}
    return {
        **dict.fromkeys(_ALWAYS),
        **_present(gpu, _GPU),
        "process_count": len(own_processes),
        "processes": [_present(process, _PROCESS) for process in own_processes[:most_processes]],
        **({"unavailable": missing} if missing else {}),
    }


def _present(data: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: data[key] for key in keys if data.get(key) is not None}


def diagnosis_brief(data: Mapping[str, Any], *, gpu: int | None) -> dict[str, Any]:
    """The verdicts without their histories. Raises UsageError for a GPU that is not there."""
    there = [gpu_row["index"] for gpu_row in data["gpus"]]
    if gpu is not None and gpu not in there:
        raise UsageError(f"no such GPU: {gpu}; there are {', '.join(map(str, there))}")
    gpus = [
        {key: value for key, value in gpu_row.items() if key != "timeline" and value not in (None, [], {})}
        for gpu_row in data["gpus"]
        if gpu is None or gpu_row["index"] == gpu
    ]
    return {**data, "gpus": gpus}


def doctor_brief(data: Mapping[str, Any]) -> dict[str, Any]:
    """GPUs that answer alike are said once, with all their numbers."""
    alike: dict[str, dict[str, Any]] = {}
    for gpu in data.get("gpus", ()):
        rest = {key: value for key, value in gpu.items() if key not in ("index", "uuid", "pci")}
        alike.setdefault(_json(rest), {"indices": [], **rest})["indices"].append(gpu.get("index"))
    return {**data, "gpus": list(alike.values())}


_RANK_GPU = (
    "index", "name", "steps", "step_ms", "share_pct", "util_pct", "verdict", "level", "cause", "headline",
    "best_case_step_ms",
)  # fmt: skip
_TABLES = ("kernels", "categories", "collectives", "syncs", "stream_waits", "under", "at_work")


def trace_brief(data: Mapping[str, Any], *, worst: int | None, top: int) -> dict[str, Any]:
    """A line a rank, and the ``worst`` one in detail with the ``top`` rows of its tables."""
    ranks = data["ranks"]
    shown = next((rank for rank in ranks if rank["rank"] == worst), ranks[0])
    brief = {key: value for key, value in data.items() if key not in ("ranks", "files")}
    if len(ranks) > 1:
        brief["ranks"] = [
            {"rank": rank["rank"], "file": rank["file"], "gpus": [_present(gpu, _RANK_GPU) for gpu in rank["gpus"]]}
            for rank in ranks
        ]
    return {**brief, "detail": {**shown, "gpus": [_trace_gpu(gpu, top) for gpu in shown["gpus"]]}}


def _trace_gpu(gpu: Mapping[str, Any], top: int) -> dict[str, Any]:
    brief = {key: value for key, value in gpu.items() if key != "steps_table" and value not in (None, [])}
    brief["idle_cause_pct"] = {cause: share for cause, share in gpu["idle_cause_pct"].items() if share}
    brief |= {table: gpu[table][:top] for table in _TABLES if gpu[table]}
    slow = [row for row in gpu["steps_table"] if row["flag"] == "slow"][:top]
    return brief | ({"slow_steps": slow} if slow else {})


def memory_brief(data: Mapping[str, Any], *, top: int) -> dict[str, Any]:
    """Each device with the ``top`` rows of its tables, and of failed allocations the last."""
    devices = []
    for device in data["devices"]:
        failures = [{**failure, "alive": failure["alive"][:top]} for failure in device["out_of_memory"][-1:]]
        tables = {name: device[name][:top] for name in ("alive", "survived", "growth")}
        devices.append({**device, **tables, "out_of_memory": failures})
    return {**data, "devices": devices}


# The files that an assistant may name: those below the user's folders, without links that lead out of them.

MOST_FILES = 200
RECORDINGS = (".gputop.jsonl", ".gputop.jsonl.gz")
_PROFILER = (b'"traceEvents"', b'"deviceProperties"', b'"schemaVersion"', b'"ph":', b'"ph" :')
_HEAD_BYTES = 1 << 16


class Outside(Exception):
    """A file that may not be read, or is not a file. Names it and quotes nothing of it."""


class Folders:
    """Raises Outside for a path that is not a folder."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._roots = [os.path.realpath(folder) for folder in folders]
        for folder, root in zip(folders, self._roots, strict=True):
            if not os.path.isdir(root):
                raise Outside(f"{folder} is not a folder")

    def file(self, name: str) -> str:
        """The path of a file. Raises Outside."""
        shown = clean_text(name)[:200]
        if "\0" in name:
            raise Outside(f"{shown}: no such file")
        for root in self._roots:
            path = os.path.realpath(os.path.join(root, name))
            if path != root and os.path.commonpath((root, path)) == root:
                try:
                    kind = os.stat(path).st_mode
                except OSError:
                    continue
                if stat.S_ISDIR(kind):
                    self._check_folder(path, root, shown)
                    return path
                if stat.S_ISREG(kind):
                    return path
        raise Outside(f"{shown}: no such file below the folders that gputop mcp was given")

    def _check_folder(self, folder: str, root: str, shown: str) -> None:
        """Raises Outside for a folder that contains a link out of the root, or anything but files and folders: asking
        about a folder reads everything in it."""
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    inside = os.path.commonpath((root, os.path.realpath(entry.path))) == root
                    if not inside or not (entry.is_file() or entry.is_dir()):
                        raise Outside(f"{shown}: holds {clean_text(entry.name)[:200]}, which may not be read")
        except OSError:
            raise Outside(f"{shown}: cannot be read") from None

    def files(self) -> dict[str, list[str]]:
        """What can be asked about below the folders, by kind, as ``file`` takes it."""
        files: dict[str, list[str]] = {"recordings": [], "traces": [], "memory_snapshots": []}
        for root in self._roots:
            for folder, _, names in os.walk(root):
                for name in sorted(names):
                    path = os.path.join(folder, name)
                    kind = None if os.path.islink(path) or not os.path.isfile(path) else _kind(path)
                    if kind is not None and sum(map(len, files.values())) < MOST_FILES:
                        files[kind].append(os.path.relpath(path, root))
        return files

    def named(self, data: Any) -> Any:
        """The same data with paths as an assistant names them: from the folder on."""
        if isinstance(data, dict):
            return {key: self.named(value) for key, value in data.items()}
        if isinstance(data, (list, tuple)):
            return [self.named(value) for value in data]
        if isinstance(data, str):
            for root in self._roots:
                data = data.replace(root + os.sep, "")
        return data


def _kind(path: str) -> str | None:
    """The kind of a file by its name, and of a .json by its first bytes."""
    if path.endswith(RECORDINGS):
        return "recordings"
    if path.endswith(".sqlite"):
        return "traces"
    if path.endswith((".pickle", ".pkl")):
        return "memory_snapshots"
    if not path.endswith((".json", ".json.gz")):
        return None
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
        if path.endswith(".gz"):
            head = zlib.decompressobj(31).decompress(head, _HEAD_BYTES)
    except (OSError, zlib.error):
        return None
    return "traces" if any(word in head for word in _PROFILER) else None
