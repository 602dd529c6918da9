"""Reads one GPU or MIG device into samples.

Errors of this GPU stay with this GPU. The session lets one thread at a time read it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any, Literal

import pynvml
from msgspec import Struct
from msgspec.structs import replace

from gputop.model.clean_text import clean_text
from gputop.model.metrics import ACTIVITY_KEYS, GPU_METRICS
from gputop.model.sm import SmLack
from gputop.model.snapshot import Event, GpuSample, GpuStatic
from gputop.model.xid_catalogue import XIDS
from gputop.sources.activity.cross_check import CrossCheck, bound
from gputop.sources.activity.fallback_chain import ChainState, FallbackChain, SmReader
from gputop.sources.gpu_process import GpuProcess
from gputop.sources.nvml.device_health import KEYS as HEALTH_KEYS
from gputop.sources.nvml.device_health import recovery_of
from gputop.sources.nvml.driver_processes import COLLECTING, GpuProcesses
from gputop.sources.nvml.field_values import FieldValues
from gputop.sources.nvml.gpm import Gpm
from gputop.sources.nvml.gpu_facts import (
    facts,
    gpu_instance,
    is_vgpu,
    mig_facts,
    mig_slots,
    more_facts,
)
from gputop.sources.nvml.gpu_questions import (
    EVERY_TICK,
    POWER_LIMIT,
    SM_CLOCK_MAX,
    Seldom,
    ask_memory_into,
)
from gputop.sources.nvml.handle import Handle, LostGpu, MetricAnswers
from gputop.sources.nvml.nvml_errors import reason
from gputop.sources.pci_cards import PciCard, card_name
from gputop.sources.selection import MachineOptions

PROCESSES_S = 2.0
SPLIT = "split into MIG instances: see each instance"
NO_MIG = reason(pynvml.NVML_ERROR_NOT_SUPPORTED)
NO_NVLINK = "no NVLink on this GPU"
NVLINK_KEYS = ("nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s")
OF_WHOLE_GPU = "known of the whole GPU alone"
HELD_UNKNOWN = (
    "unified with the host's memory, and the driver does not say what each process holds of it"
)

MoreSmReaders = Callable[[Callable[[], GpuStatic]], list[SmReader]]
"""Makes the sources below GPM for a GPU; the callable gives its facts as known by then."""


def sample_of(
    static: GpuStatic, answers: MetricAnswers, standing: ChainState, now: float, *, bounded: bool
) -> GpuSample:
    """Return the sample of one read at monotonic time ``now``.

    ``bounded`` says that utilisation bounds SM activity on this device.
    """
    activity, source = standing.activity, standing.source
    low, high = bound(answers.values.get("util_pct"), static.sm_count) if bounded else (None, None)
    # A source that merely missed a tick leaves a gap; one without an SM counter leaves the bound.
    if source is not None and (activity is None or standing.lack is None):
        low = high = None
    return GpuSample(
        static,
        sm_source=source or ("none" if high is None else "bound"),
        sm_window_s=activity.window_s if activity else None,
        sm_age_s=max(0.0, now - activity.t) if activity and activity.t is not None else None,
        sm_low_pct=low,
        sm_high_pct=high,
        sm_lack=standing.lack,
        unavailable=answers.missing,
        **answers.values,
    )


def xid_values(xid: int) -> dict[str, Any]:
    """Return the last Xid with its class and NVIDIA's action, where those are known."""
    known = XIDS.get(xid)
    if known is None:
        return {"xid": xid}
    return {"xid": xid, "xid_class": known.cause, "xid_action": known.action}


class Device:
    """One GPU or MIG device.

    Before it is found, and while it is lost or asleep, its samples have reasons instead of values. ``state`` is "new"
    until it is found for the first time, then "there", "lost" until it is found again, or "asleep": it exists, is not
    asked and has no handle. ``why`` is the reason for lost or asleep.
    """

    def __init__(
        self,
        index: int,
        options: MachineOptions,
        more_sm_readers: MoreSmReaders,
        parent: Device | None = None,
        uuid: str | None = None,
    ) -> None:
        self.handle = Handle(None)
        self.stuck = False
        """Set by the session while a call on this GPU does not return."""
        self.static = GpuStatic(index, uuid or f"GPU-unknown-{index}", "unknown GPU")
        self.parent = parent
        self.state: Literal["new", "there", "lost", "asleep"] = "new"
        self.why: str | None = None
        self.lost_since: float | None = None
        """Unix time; until it is not only found again but read."""
        self.times_found = 0
        """Grows with each new handle: what was made with an older one is stale."""
        self.stale = True
        """Whether the handle is to be asked for again, because NVML may have forgotten it."""
        self.processes: tuple[GpuProcess, ...] = ()
        self.vgpu = False
        self._parent_found = 0
        self._mig_known = False
        self._interval_s, self._sm_source = options.interval_s, options.sm.sm_source
        self._more_sm_readers = more_sm_readers
        self._chain = FallbackChain(())
        self._cross_check = CrossCheck()
        self._fields = FieldValues(nvlink=False)
        self._lister = GpuProcesses(self.handle, index)
        self._seldom = Seldom()
        self._recovery: int | None = None
        """The recovery action of a GPU that was lost, if it tells one."""
        self._processes_at = float("-inf")

    @property
    def is_due(self) -> bool:
        """Whether ``find`` has something to do.

        True without a handle, for a lost GPU, and for a handle that may be forgotten.
        """
        outdated = self.parent is not None and self._parent_found != self.parent.times_found
        return self.stale or outdated or self.state in ("new", "lost")

    @property
    def process_trouble(self) -> str | None:
        """Return why the process list could not be read, or None."""
        return self._lister.reason

    def fall_asleep(self, why: str, card: PciCard) -> None:
        """Mark the GPU as asleep without asking the driver."""
        self.processes = ()
        self.state, self.why, self.stale = "asleep", why, True
        if not self.times_found:
            self.static = replace(
                self.static,
                uuid=f"PCI-{card.address}",
                name=card_name(card),
                pci_bus_id=card.address,
            )

    def lose(self, why: str, t: float) -> None:
        """Mark the GPU as lost from Unix time ``t`` on.

        It stays lost until it is found again and read.
        """
        self.processes = ()
        self.state, self.why = "lost", why
        if self.lost_since is None:
            self.lost_since = t

    def find(self, slot: int | str, driver: str | None, t: float) -> str | None:
        """Look at NVML's index ``slot``; return the UUID there, if any.

        For a MIG device ``slot`` is the parent's slot. A text is a PCI address, used while other GPUs sleep, since an
        index would wake those. When it is this GPU, or nothing was known of this one, handle and facts are taken.
        Indices move when a GPU comes or goes: a known GPU stays as it is when another one answers. One that does not
        answer is lost.
        """
        handle, parent = self.handle, self.parent
        try:
            if parent is not None:
                raw = handle.run_bare(
                    "nvmlDeviceGetMigDeviceHandleByIndex", parent.handle.raw, slot
                )
            elif isinstance(slot, str):
                # As NVML writes it: with a domain of eight digits.
                raw = handle.run_bare("nvmlDeviceGetHandleByPciBusId", slot.upper().rjust(16, "0"))
            else:
                raw = handle.run_bare("nvmlDeviceGetHandleByIndex", slot)
            uuid = clean_text(str(handle.run_bare("nvmlDeviceGetUUID", raw))).strip()
            if uuid == self.static.uuid or (not self.times_found and parent is None):
                handle.raw = raw
                if self.is_due:
                    self._take_facts(uuid, driver)
        except pynvml.NVMLError as error:
            self.lose(reason(error.value), t)
            return None
        except UnicodeDecodeError:
            self.lose("the driver gives no readable identity", t)
            return None
        return uuid

    def _take_facts(self, uuid: str, driver: str | None) -> None:
        handle, parent = self.handle, self.parent
        handle.forget()
        if parent is not None:
            static = mig_facts(handle, self.static.index, uuid, parent.static)
        else:
            static = facts(handle, self.static.index, uuid, driver)
            if static.mig_enabled:
                # Its instances take them over when they are found, at once.
                static = more_facts(handle, static)
        self.static = static
        self.vgpu = is_vgpu(handle)
        self._fields = FieldValues(static.nvlink_peak_bytes_per_s is not None)
        self._chain.close()
        forced = self._sm_source != "auto"
        without = (
            f"not asked for: --sm-source {self._sm_source}"
            if forced
            else "no SM counter on this GPU"
        )
        self._chain = FallbackChain(self._sm_readers(), without)
        self._cross_check = CrossCheck()
        self._seldom = Seldom(has_health=parent is None)
        self._recovery = None
        self._processes_at = float("-inf")
        self._parent_found = parent.times_found if parent is not None else 0
        self.times_found += 1
        self.state, self.why, self.stale, self._mig_known = "there", None, False, True

    def _sm_readers(self) -> Iterator[SmReader]:
        """Return the sources of SM activity, best first.

        Those below GPM are created when the first of them is asked for.
        """
        static, parent = self.static, self.parent
        mig: tuple[Any, int] | None = None
        if parent is not None and (instance := gpu_instance(self.handle)) is not None:
            mig = (parent.handle.raw, instance)
        if self.static.is_split or (parent is not None and mig is None):
            return
        if self._sm_source in ("auto", "gpm"):
            yield Gpm(self.handle, self._interval_s, static.architecture, mig, static.name)
        yield from self._more_sm_readers(lambda: self.static)

    def mig_devices(self, now: float, t: float) -> dict[str, int] | None:
        """Return slots of MIG devices by UUID, None where unknown.

        When MIG was switched on or off, the facts are read again: most answers change with it.
        """
        if self.state != "there":
            return None
        try:
            if not self._mig_known and not self._follow_mig_mode(now):
                return None
            self._mig_known = False
            return mig_slots(self.handle) if self.static.mig_enabled else {}
        except LostGpu as gone:
            self.lose(str(gone), t)
        except (pynvml.NVMLError, UnicodeDecodeError):
            # No answer does not mean that there are none.
            return None
        return None

    def _follow_mig_mode(self, now: float) -> bool:
        """Ask for the MIG mode; False without an answer."""
        mode = self.handle.ask(("nvmlDeviceGetMigMode",), (), now)
        on = False if mode == NO_MIG else None if mode.__class__ is str else bool(mode[0])
        if on is not None and on != self.static.mig_enabled:
            self._take_facts(self.static.uuid, self.static.driver)
        return on is not None

    def read(self, now: float, t: float, xid: int | str) -> GpuSample:
        """Return one sample.

        ``now`` is monotonic, ``t`` Unix time, ``xid`` the last Xid or the reason for none.
        """
        if self.state == "asleep":
            why = self.why or ""
            return GpuSample(
                self.static,
                sm_lack=SmLack((why,)),
                asleep=True,
                unavailable=dict.fromkeys(GPU_METRICS, why),
            )
        if self.state != "lost":
            try:
                sample = self._read(now, t, xid)
            except LostGpu as gone:
                self.lose(str(gone), t)
                # A GPU that needs a reset may answer nothing but this.
                self._recovery = recovery_of(self.handle)
            else:
                self.lost_since = None
                return sample
        return self.lost_sample(xid=xid)

    def lost_sample(
        self, why: str | None = None, since: float | None = None, xid: int | str = ""
    ) -> GpuSample:
        """Return a sample with the last facts, last Xid and a reason."""
        why = why or self.why
        return GpuSample(
            self.static,
            recovery_action=self._recovery,
            sm_lack=None if why is None else SmLack((why,)),
            lost_reason=why,
            lost_since=since or self.lost_since,
            **(xid_values(xid) if isinstance(xid, int) else {}),
        )

    def _read(self, now: float, t: float, xid: int | str) -> GpuSample:
        into, begun = MetricAnswers(), monotonic()
        has_memory = self._ask_values(into, now)
        # Counters have the value of the moment at which they are read, which may be late with a slow driver.
        standing = self._ask_activity(into, now + (monotonic() - begun))
        measured = (
            frozenset(standing.activity.values)
            if standing.activity is not None
            else frozenset[str]()
        )
        self._fields.ask_into(self.handle, into, now, measured, now + (monotonic() - begun))
        if isinstance(xid, int):
            into.values.update(xid_values(xid))
        else:
            into.missing["xid"] = xid
        self._say_why(into)
        if now >= self._processes_at:
            first = self._processes_at < 0
            self._processes_at = 0.0 if first else now + PROCESSES_S * 0.95
            # A split GPU lists its instances' processes again: each instance lists its own.
            self.processes = (
                ()
                if self.static.is_split
                else self._lister.read(now, t, into.values.get("util_pct"), brief=first)
            )
        if self._lister.reason is not None:
            into.missing["processes"] = self._lister.reason
        if not has_memory:
            self._use_host_memory(into)
        # The utilisation of others may be in that of a virtual GPU, and of a MIG device.
        bounded = not (self.vgpu or self.static.mig_enabled)
        sample = sample_of(self.static, into, standing, now, bounded=bounded)
        if self.vgpu and sample.sm_lack is not None and sample.sm_lack.kind is None:
            sample = replace(sample, sm_lack=replace(sample.sm_lack, kind="virtual"))
        return sample

    def _ask_values(self, into: MetricAnswers, now: float) -> bool:
        """Ask for all but activity and fields; False without own memory."""
        for question in EVERY_TICK:
            question.ask_into(self.handle, into, now)
        has_memory = ask_memory_into(self.handle, into, now)
        self.handle.end_round()
        seldom = self._seldom.answers
        if not seldom.values and not seldom.missing:
            # The first picture needs only these two; the rest is asked after it.
            for question in (POWER_LIMIT, SM_CLOCK_MAX):
                question.ask_into(self.handle, seldom, now)
        into.values.update(seldom.values)
        into.missing.update(seldom.missing)
        return has_memory

    def _ask_activity(self, into: MetricAnswers, now: float) -> ChainState:
        """Ask the chain for SM activity and its companions."""
        if self.static.is_split:
            standing = ChainState(None, None, SmLack((SPLIT,)))
        else:
            standing = self._cross_check.standing(self._chain, now, into.values.get("util_pct"))
        if standing.activity is None:
            into.miss(ACTIVITY_KEYS, standing.reason or COLLECTING)
        else:
            into.values.update(standing.activity.values)
            into.missing.update(standing.activity.missing)
            others = [
                key for key in ACTIVITY_KEYS if key not in into.values and key not in into.missing
            ]
            into.miss(others, f"not measured by {standing.source}")
            if self.static.nvlink_peak_bytes_per_s is None and not self.static.mig_enabled:
                # GPM counts 0 bytes of links that are not there (an H200 in a virtual machine).
                for key in NVLINK_KEYS:
                    if into.values.get(key) == 0.0:
                        del into.values[key]
            if standing.reason is not None:
                into.missing["sm_active_pct"] = standing.reason
        return standing

    def _say_why(self, into: MetricAnswers) -> None:
        """Give a reason for every missing value that has none."""
        values, missing = into.values, into.missing
        for key in GPU_METRICS:
            if key not in values and key not in missing:
                missing[key] = NO_NVLINK if key in NVLINK_KEYS else COLLECTING
        if self.parent is not None:
            missing.update(dict.fromkeys(HEALTH_KEYS, OF_WHOLE_GPU))
        if self.static.mig_enabled:
            for key in ("util_pct", "mem_util_pct"):
                if key in missing:
                    missing[key] = (
                        SPLIT
                        if self.static.is_split
                        else "NVML gives no utilisation of a MIG instance"
                    )

    def _use_host_memory(self, into: MetricAnswers) -> None:
        """Use the host's memory for a GPU without its own (GB10, Thor, Orin).

        Used memory is the sum of its processes. A virtual GPU, or one that does not list its processes, is left out.
        """
        if (
            self.vgpu
            or self._lister.reason is not None
            or self.parent is not None
            or self.static.is_split
        ):
            return
        if not self.static.unified_memory:
            self.static = replace(self.static, unified_memory=True)
        process_bytes = [process.gpu_mem_bytes for process in self.processes]
        into.put("mem_total_bytes", float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")))
        into.missing.pop("mem_total_bytes", None)
        if None in process_bytes:
            into.missing["mem_used_bytes"] = HELD_UNKNOWN
        else:
            into.put(
                "mem_used_bytes", float(sum(size for size in process_bytes if size is not None))
            )
            into.missing.pop("mem_used_bytes", None)

    def asks_seldom(self, now: float) -> bool:
        """Whether ``ask_seldom`` is due at monotonic ``now``."""
        return self.state == "there" and now >= self._seldom.due_at

    def ask_seldom(self, now: float, t: float) -> None:
        """Ask for values that need not be new in each sample.

        Also for what the first sample left out. Times as for ``read``.
        """
        if not self.asks_seldom(now):
            return
        try:
            if self._seldom.due_at < 0 and not self.static.mig_enabled:
                self.static = more_facts(self.handle, self.static)
            self._seldom.ask(self.handle, now, self.static.index)
        except LostGpu as gone:
            self.lose(str(gone), t)

    def close(self) -> None:
        """Free NVML's resources of this GPU.

        Call it before nvmlShutdown on the reading thread.
        """
        self._chain.close()
        self.stale = True


class GpusReading(Struct, frozen=True):
    """One pass over the chosen GPUs, at Unix time ``t``.

    ``hung`` are indices on which a call did not return. ``chosen`` are the GPUs of a pass under way; empty while the
    driver still lists them. ``awaits_activity`` if a source of SM activity had not answered by then.
    """

    t: float
    gpus: tuple[GpuSample, ...]
    processes: tuple[GpuProcess, ...]
    events: tuple[Event, ...] = ()
    notices: tuple[str, ...] = ()
    hung: tuple[int, ...] = ()
    chosen: tuple[GpuStatic, ...] = ()
    awaits_activity: bool = False


class Pass(Struct):
    """A pass under way: samples so far, and GPUs that hang."""

    samples: list[GpuSample] = []
    hung: list[int] = []
