"""Rung 2: a dcgm-exporter that already runs, scraped passively. For data-centre GPUs without GPM.

Fetched on a thread of its own, so that a slow exporter delays nobody. Joins on the UUID, never on an index: indices of
an exporter are those of its container.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from math import isfinite
from time import monotonic
from typing import Literal

from gputop.model.metrics import GPU_METRICS
from gputop.sources.activity.ladder import Activity, RungFailed, Waiting
from gputop.sources.base import UsageError

DEFAULT_URL = "http://localhost:9400/metrics"
PROBE_TIMEOUT_S = 0.3
TIMEOUT_S = 1.0
MOST_BYTES = 4 << 20
CLOSEST_S, FARTHEST_S = 1.0, 10.0
"""Limits of the distance of two scrapes: a third of the exporter's own interval, once that is known."""
TOO_OLD_S = 300.0
BLANK = 1e15
"""DCGM's blank values, which mean that there is none, lie above this."""
PERCENT_ABOVE = 1.5
"""Ratios are 0 to 1, but some builds print percent: a value above this gives such a build away."""
FIX = "uncomment DCGM_FI_PROF_SM_ACTIVE in the counters file of dcgm-exporter and restart it"

NAMES = {
    "DCGM_FI_PROF_SM_ACTIVE": "sm_active_pct",
    "DCGM_FI_PROF_SM_UTIL_RATIO": "sm_active_pct",
    "DCGM_FI_PROF_SM_OCCUPANCY": "sm_occupancy_pct",
    "DCGM_FI_PROF_SM_OCCUPANCY_RATIO": "sm_occupancy_pct",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "tensor_active_pct",
    "DCGM_FI_PROF_TENSOR_UTIL_RATIO": "tensor_active_pct",
    "DCGM_FI_PROF_DRAM_ACTIVE": "dram_active_pct",
    "DCGM_FI_PROF_DRAM_UTIL_RATIO": "dram_active_pct",
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": "fp64_active_pct",
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": "fp32_active_pct",
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": "fp16_active_pct",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "graphics_active_pct",
}
"""Exporter names of both generations → catalogue key."""

_ROW = re.compile(r'^(DCGM_FI_PROF_\w+)\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\}[ \t]+(\S+)', re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Fetch = Callable[[str, float], str]


def parse(text: str) -> dict[str, dict[str, float]]:
    """Ratios as exported, by UUID of whole GPUs and catalogue key. Rows of MIG instances and blanks are left out."""
    rows: dict[str, dict[str, float]] = {}
    for name, labels, number in _ROW.findall(text):
        key = NAMES.get(name)
        if key is None:
            continue
        label = {k.lower(): v for k, v in _LABEL.findall(labels)}
        uuid = label.get("uuid")
        try:
            value = float(number)
        except ValueError:
            continue
        if uuid is None or label.get("gpu_i_id") or not isfinite(value) or not 0.0 <= value < BLANK:
            continue
        rows.setdefault(uuid, {})[key] = value
    return rows


def fetch(url: str, timeout_s: float) -> str:
    """The body of one GET, at most 4 MiB. Raises OSError, and ValueError for what cannot be metrics."""
    # Imported here: they cost more than everything else in this file, and most machines never get so far.
    from http.client import HTTPException
    from urllib.request import ProxyHandler, build_opener

    try:
        with build_opener(ProxyHandler({})).open(url, timeout=timeout_s) as response:
            body: bytes = response.read(MOST_BYTES + 1)
    except HTTPException as error:
        raise ValueError(f"does not speak HTTP ({type(error).__name__})") from error
    if len(body) > MOST_BYTES:
        raise ValueError(f"answers with more than {MOST_BYTES >> 20} MiB")
    return body.decode(errors="replace")


class Exporter:
    """One exporter, shared by all GPUs of the machine. Nothing happens before the first ``activity``."""

    def __init__(self, url: str | None = None, fetch: Fetch = fetch) -> None:
        """``url`` as the user gave it; None looks once at the usual place. Raises UsageError for another scheme."""
        if url is not None and not url.startswith(("http://", "https://")):
            raise UsageError(f"--dcgm-url {url}: give an address like {DEFAULT_URL}")
        self._url = url or DEFAULT_URL
        self._given = url is not None
        self._fetch = fetch
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._rows: Mapping[str, Mapping[str, float]] | None = None
        self._trouble: str | None = None
        self._absent = False
        self._percent = False
        self._body: int | None = None
        self._first_at = 0.0
        self._changed_at: float | None = None
        self._period_s: float | None = None

    def activity(self, uuid: str, now: float) -> Activity | Waiting:
        """As ``newest``, with a thread that keeps fetching from the first call on."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gputop-dcgm-exporter", daemon=True)
            self._thread.start()
        return self.newest(uuid, now)

    def newest(self, uuid: str, now: float) -> Activity | Waiting:
        """The newest value of a GPU; its time is None until a change of the values was seen. Raises RungFailed."""
        rows, trouble = self._rows, self._trouble
        if self._absent:
            raise RungFailed(f"no dcgm-exporter at {self._url}", forever=True)
        if trouble is not None:
            raise RungFailed(f"dcgm-exporter at {self._url}: {trouble}")
        if rows is None:
            return Waiting(f"asking dcgm-exporter at {self._url}", looking=True)
        row = rows.get(uuid)
        if row is None or "sm_active_pct" not in row:
            what = "does not know this GPU" if row is None else "exports no SM activity"
            raise RungFailed(f"dcgm-exporter at {self._url} {what}", fix=FIX)
        age = now - (self._changed_at or self._first_at)
        if age > TOO_OLD_S:
            raise RungFailed(f"dcgm-exporter at {self._url} has repeated itself for {age:.0f} s")
        scale = 1.0 if self._percent else 100.0
        values, missing = {}, {}
        for key in set(NAMES.values()):
            value = row.get(key)
            if value is None:
                missing[key] = "not exported by dcgm-exporter"
            elif GPU_METRICS[key].is_valid(value * scale):
                values[key] = value * scale
            else:
                missing[key] = f"dcgm-exporter gives an impossible value ({value:g})"
        if "sm_active_pct" not in values:
            raise RungFailed(f"SM activity: {missing['sm_active_pct']}")
        return Activity(values, missing, self._period_s, self._changed_at)

    def stop(self) -> None:
        """End the thread, if there is one, after the fetch in hand. Returns at once."""
        self._stop.set()

    def scrape(self, now: float) -> None:
        """One fetch, on whichever thread calls."""
        first = self._rows is None and self._trouble is None
        try:
            body = self._fetch(self._url, PROBE_TIMEOUT_S if first and not self._given else TIMEOUT_S)
        except (OSError, ValueError) as error:
            self._absent = first and not self._given
            self._trouble = str(getattr(error, "reason", error)) or type(error).__name__
            return
        self._trouble = None
        # The exporter stamps nothing: a body that differs anywhere (energy always does) is a new collection.
        mark, before = hash(body), self._body
        self._body = mark
        if before is None:
            self._first_at = now
        elif mark != before:
            if self._changed_at is not None:
                self._period_s = now - self._changed_at
            self._changed_at = now
        rows = parse(body)
        if any(value > PERCENT_ABOVE for row in rows.values() for value in row.values()):
            self._percent = True
        self._rows = rows

    def _run(self) -> None:
        while not self._stop.is_set() and not self._absent:
            self.scrape(monotonic())
            self._stop.wait(min(FARTHEST_S, max(CLOSEST_S, (self._period_s or 0.0) / 3)))


class DcgmExporter:
    """The rung of one whole GPU."""

    def __init__(self, exporter: Exporter, uuid: str) -> None:
        self._exporter = exporter
        self._uuid = uuid

    @property
    def name(self) -> Literal["dcgm-exporter"]:
        return "dcgm-exporter"

    def read(self, now: float) -> Activity | Waiting:
        return self._exporter.activity(self._uuid, now)

    def close(self) -> None:
        """Nothing of this GPU is held: the exporter is shared, and stopped by who made it."""
