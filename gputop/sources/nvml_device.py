"""One GPU, or one MIG device, read into samples. Trouble of this GPU stays with this GPU.

A device is read by one thread at a time; the session sees to that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

from gputop.model.metrics import GPU_METRICS
from gputop.model.snapshot import GpuSample, GpuStatic
from gputop.sources.activity.bound import bound
from gputop.sources.activity.gpm import Gpm
from gputop.sources.activity.ladder import ACTIVITY_KEYS, Activity, Ladder, Rung, Standing
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.nvml_calls import Calls, LostGpu, Values
from gputop.sources.nvml_errors import reason
from gputop.sources.nvml_facts import facts, gpu_instance, is_vgpu, mig_facts
from gputop.sources.nvml_fields import Fields
from gputop.sources.nvml_processes import COLLECTING, GpuProcesses
from gputop.sources.nvml_questions import EVERY_TICK, MEMORY_V1, MEMORY_V2, POWER_LIMIT, SELDOM, SM_CLOCK_MAX

SELDOM_S = 5.0
PROCESSES_S = 2.0
RETRY_LOST_S = 30.0
UNIFIED_MEMORY = "no memory of its own, it shares the host's: see the host's memory"
SPLIT = "split into MIG instances: see each instance"
NO_NVLINK = "no NVLink on this GPU"

MoreRungs = Callable[[GpuStatic], list[Rung]]
"""Gives the rungs below GPM for a GPU."""


class Device:
    """One GPU. Before it was found, and while it is lost, its samples say why instead of what."""

    def __init__(
        self,
        index: int,
        interval_s: float,
        driver: str | None,
        more_rungs: MoreRungs,
        parent: Device | None = None,
        slot: int = 0,
    ) -> None:
        self.calls = Calls(None)
        self.stuck = False
        """Set by the session while a call on this GPU does not return."""
        self.static = GpuStatic(index, f"GPU-unknown-{index}", "unknown GPU", driver=driver)
        self.found = False
        self.lost: str | None = None
        self.lost_since: float | None = None
        self.processes: tuple[GpuProcess, ...] = ()
        self.vgpu = False
        self._parent = parent
        self._slot = slot
        self._interval_s = interval_s
        self._more_rungs = more_rungs
        self._ladder = Ladder(())
        self._fields = Fields(nvlink=False)
        self._lister = GpuProcesses(self.calls, index)
        self._seldom = Values()
        self._seldom_at = self._processes_at = self._retry_at = float("-inf")

    @property
    def _split(self) -> bool:
        """Whether this is a GPU whose work all happens in its MIG instances."""
        return self._parent is None and bool(self.static.mig_enabled)

    def find(self, now: float, t: float) -> None:
        """Get the handle and the facts. A GPU that does not answer is lost, and tried again by ``read``."""
        self._retry_at = now + RETRY_LOST_S
        try:
            self._find()
        except pynvml.NVMLError as error:
            self._lose(reason(error.value), now, t)
        except UnicodeDecodeError:
            self._lose("the driver gives no readable identity", now, t)
        else:
            self.lost = self.lost_since = None

    def _find(self) -> None:
        calls, parent = self.calls, self._parent
        calls.forget()
        if parent is not None:
            calls.handle = calls.run_bare("nvmlDeviceGetMigDeviceHandleByIndex", parent.calls.handle, self._slot)
            static = mig_facts(calls, self.static.index, parent.static)
        else:
            # By UUID once it is known: indices move when a GPU falls off the bus.
            known = self.static.uuid if self.found else None
            if known is not None:
                calls.handle = calls.run_bare("nvmlDeviceGetHandleByUUID", known)
            else:
                calls.handle = calls.run_bare("nvmlDeviceGetHandleByIndex", self.static.index)
            static = facts(calls, self.static.index, self.static.driver)
        self.static = static
        self.vgpu = is_vgpu(calls)
        self._fields = Fields(static.nvlink_peak_bytes_per_s is not None)
        self._ladder.close()
        self._ladder = Ladder(self._rungs())
        self._seldom_at = max(self._seldom_at, 0.0) if self.found else self._seldom_at
        self._processes_at = float("-inf")
        self.found = True

    def _rungs(self) -> list[Rung]:
        static, parent = self.static, self._parent
        if self._split:
            return []
        mig: tuple[Any, int] | None = None
        if parent is not None:
            instance = gpu_instance(self.calls)
            if instance is None:
                return []
            mig = (parent.calls.handle, instance)
        return [Gpm(self.calls, self._interval_s, static.architecture, mig), *self._more_rungs(static)]

    def mig_slots(self) -> list[int]:
        """Slots of this GPU's MIG devices; empty when it is not split."""
        if self._parent is not None or not self.static.mig_enabled or self.lost is not None:
            return []
        return [slot for slot in range(self.calls.number("nvmlDeviceGetMaxMigDeviceCount") or 0) if self._has(slot)]

    def _has(self, slot: int) -> bool:
        try:
            self.calls.run("nvmlDeviceGetMigDeviceHandleByIndex", slot)
        except pynvml.NVMLError:
            return False
        return True

    def read(self, now: float, t: float, xid: int | str) -> GpuSample:
        """One sample. ``now`` is monotonic, ``t`` Unix time, ``xid`` the last Xid or why there is none."""
        if self.lost is not None:
            if now >= self._retry_at:
                self.find(now, t)
            if self.lost is not None:
                return self.lost_sample(xid=xid)
        try:
            return self._read(now, t, xid)
        except LostGpu as gone:
            self._lose(str(gone), now, t)
            return self.lost_sample(xid=xid)

    def lost_sample(self, why: str | None = None, since: float | None = None, xid: int | str = "") -> GpuSample:
        """The last facts, the last Xid, and the reason why there is nothing else."""
        why = why or self.lost
        return GpuSample(
            self.static,
            xid=xid if isinstance(xid, int) else None,
            sm_reason=why,
            lost_reason=why,
            lost_since=since or self.lost_since,
        )

    def _lose(self, why: str, now: float, t: float) -> None:
        self._retry_at = now + RETRY_LOST_S
        self.processes = ()
        self.lost = why
        if self.lost_since is None:
            self.lost_since = t

    def _read(self, now: float, t: float, xid: int | str) -> GpuSample:
        calls, into = self.calls, Values()
        for question in EVERY_TICK:
            question.put(calls, into, now)
        self._put_memory(into, now)
        self._put_seldom(into, now)
        standing = self._ladder.read(now)
        measured: frozenset[str] = frozenset()
        if standing.activity is not None:
            into.values.update(standing.activity.values)
            into.missing.update(standing.activity.missing)
            measured = frozenset(standing.activity.values)
        else:
            into.miss(ACTIVITY_KEYS, SPLIT if self._split else standing.reason or COLLECTING)
        self._fields.put(calls, into, now, measured)
        values, missing = into.values, into.missing
        if isinstance(xid, int):
            values["xid"] = xid
        else:
            missing["xid"] = xid
        for key in GPU_METRICS.keys() - values.keys() - missing.keys():
            missing[key] = NO_NVLINK if key.startswith("nvlink") else COLLECTING
        if self.static.mig_enabled:
            for key in ("util_pct", "mem_util_pct"):
                if key in missing:
                    missing[key] = SPLIT if self._split else "NVML gives no utilisation of a MIG instance"
        if now >= self._processes_at:
            first = self._processes_at < 0
            self._processes_at = 0.0 if first else now + PROCESSES_S * 0.95
            self._list_processes(now, t, values.get("util_pct"), brief=first)
        return self._sample(into, standing, now)

    def _put_memory(self, into: Values, now: float) -> None:
        if MEMORY_V2.put(self.calls, into, now):
            return
        for key in MEMORY_V1.keys:
            refused = into.missing.pop(key)
        if not MEMORY_V1.put(self.calls, into, now) and refused == reason(pynvml.NVML_ERROR_NOT_SUPPORTED):
            into.miss(MEMORY_V1.keys, UNIFIED_MEMORY)

    def _put_seldom(self, into: Values, now: float) -> None:
        if now >= self._seldom_at:
            first = self._seldom_at < 0
            fresh = Values()
            # The very first read leaves out what the first picture can do without; it follows at the second.
            for question in (POWER_LIMIT, SM_CLOCK_MAX) if first else SELDOM:
                question.put(self.calls, fresh, now)
            self._seldom = fresh
            # GPUs take turns, so that the slow questions of all of them do not fall into one tick.
            self._seldom_at = 0.0 if first else now + SELDOM_S * (0.8 + 0.05 * (self.static.index % 8))
        into.values.update(self._seldom.values)
        into.missing.update(self._seldom.missing)

    def _list_processes(self, now: float, t: float, util_pct: float | None, *, brief: bool) -> None:
        # A split GPU lists its instances' processes again: each instance lists its own.
        if self._split:
            self.processes = ()
        else:
            self.processes = self._lister.read(now, t, util_pct, brief=brief)

    @property
    def process_trouble(self) -> str | None:
        """Why the process list could not be had, or None."""
        return self._lister.reason

    def _sample(self, into: Values, standing: Standing, now: float) -> GpuSample:
        values, missing = into.values, into.missing
        activity: Activity | None = standing.activity
        if standing.source is not None:
            return GpuSample(
                self.static,
                sm_source=standing.source,
                sm_window_s=activity.window_s if activity else None,
                sm_age_s=max(0.0, now - activity.t) if activity and activity.t is not None else None,
                sm_reason=None if activity else standing.reason,
                unavailable=missing,
                **values,
            )
        why = SPLIT if self._split else standing.reason
        low, high = (None, None) if self._no_bound() else bound(values.get("util_pct"), self.static.sm_count)
        return GpuSample(
            self.static,
            sm_source="none" if high is None else "bound",
            sm_low_pct=low,
            sm_high_pct=high,
            sm_reason=why,
            unavailable=missing,
            **values,
        )

    def _no_bound(self) -> bool:
        """Whether this entry's utilisation may be that of other tenants too, so that it bounds nothing."""
        return self.vgpu or bool(self.static.mig_enabled)

    def close(self) -> None:
        """Free what NVML holds for this GPU. Before nvmlShutdown, on the reading thread."""
        self._ladder.close()
