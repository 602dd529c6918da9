"""Source 4: the hardware counters, through a helper process, only on request.

One program at a time can use the counters, so the helper holds a GPU only while its source is asked, gives it up to
profilers, and dies with this process. A silent helper is killed, and a GPU on which a call hung is not asked again in
this run.
"""

from __future__ import annotations

import threading
from math import inf
from time import monotonic

from msgspec import Struct

from gputop.model.clean_text import clean_text
from gputop.model.snapshot import GpuStatic
from gputop.sources.activity.counters.access import rights, shortest_fix
from gputop.sources.activity.counters.counter_libraries import NoLibraries, find
from gputop.sources.activity.counters.helper_protocol import (
    Bye,
    CostLine,
    GpuLine,
    Hello,
    HelperCommand,
    Line,
    SampleLine,
    doubt,
    shown,
)
from gputop.sources.activity.fallback_chain import MeasuredActivity, SmReadFailed, Waiting
from gputop.sources.capabilities import PERFMON, ambient
from gputop.sources.pci_cards import kernel_address
from gputop.sources.surroundings import is_wsl
from gputop.system.children import our_program, ours
from gputop.system.dialogue import Dialogue, ProgramGone
from gputop.system.worker import Worker

NOT_COUNTED = "not among the counters of this chip's one pass"


def values_of(line: SampleLine) -> tuple[dict[str, float], dict[str, str]]:
    """Return a sample by catalogue key, and reasons for missing values."""
    halves = [line.dram_r, line.dram_w]
    dram = (
        line.dram
        if line.dram is not None
        else None
        if None in halves
        else sum(half or 0.0 for half in halves)
    )
    raw_values = {
        "sm_active_pct": line.sm,
        "graphics_active_pct": line.gr,
        "tensor_active_pct": line.tensor,
        "dram_active_pct": dram,
    }
    values = {key: value for key, raw in raw_values.items() if (value := shown(raw)) is not None}
    return values, {key: NOT_COUNTED for key in raw_values if key not in values}


RESTARTS_S = (2.0, 10.0, 60.0)
"""The pauses before a helper that ended is started again; after the last one it is given up."""
START_S = 15.0
"""How long the helper may take until it says which GPUs there are: it loads 40 MB of libraries, from a cold disk."""
SILENT_S = 5.0
"""A GPU of which the helper has said nothing for so long, and for three intervals, hangs in a call."""
UNUSED_S = 10.0
"""Counters that were not read for so long, and for three intervals, are given back: a better source is in use."""
TERM_S, END_S = 2.0, 0.1
"""How long a helper that hangs may take to end by itself; and how long our own end waits for it."""
LOOK_S = 0.5
GATHER_S = 0.03
"""Once one GPU's line has come the others follow soon: they are read together."""
MODULE = "gputop.sources.activity.counters.helper"


class _Gpu(Struct):
    """State of one GPU; times are monotonic seconds."""

    asked_at: float = -inf
    taken: bool = False
    """Whether the helper was told to take it."""
    heard_at: float = 0.0
    """When it was told so, or last reported on it."""
    state: GpuLine | None = None
    newest: tuple[float, SampleLine] | None = None
    doubt: str | None = None
    hung: bool = False


class CountersClient:
    """One helper, shared by all GPUs.

    Nothing is started before the first ``activity``.
    """

    def __init__(
        self,
        interval_s: float,
        directory: str | None,
        proc: str = "/proc",
        restarts_s: tuple[float, ...] = RESTARTS_S,
    ) -> None:
        """``directory`` has the libraries when they are not in a wheel."""
        self._interval_s, self._directory, self._proc = interval_s, directory, proc
        self._restarts_s = iter(restarts_s)
        self._silent_s = max(SILENT_S, 3 * interval_s)
        self._unused_s = max(UNUSED_S, 3 * interval_s)
        self._lock = threading.Lock()
        self._worker = Worker("counters", self._run, again=self._pause_s)
        self._helper: Dialogue[Line] | None = None
        self._driver: str | None = None
        self._library: str | None = None
        self._gpus: dict[str, _Gpu] = {}
        """By the kernel's PCI addresses."""
        self._known_addresses: frozenset[str] | None = None
        self._trouble: str | None = None
        self._given_up: SmReadFailed | None = None
        self.cost: CostLine | None = None
        """The running helper's own cost, as last reported."""

    def activity(self, gpu: GpuStatic, now: float) -> MeasuredActivity | Waiting:
        """Return a GPU's newest mean; starts the helper if needed.

        Raises SmReadFailed.
        """
        if gpu.mig_enabled or gpu.mig_parent is not None:
            raise SmReadFailed(
                "GPU counters are not read under MIG: they are of the whole GPU", forever=True
            )
        pci = kernel_address(gpu.pci_bus_id)
        if pci is None:
            raise SmReadFailed("GPU counters: the driver gives no PCI address", resting=True)
        if self._given_up is not None:
            raise self._given_up
        with self._lock:
            known = self._gpus.setdefault(pci, _Gpu())
        if known.hung:
            raise SmReadFailed(
                "GPU counters: a call on this GPU hung, so they are left alone for this run", True
            )
        with self._lock:
            known.asked_at = monotonic()
            if self._library is None:
                self._driver = gpu.driver
                try:
                    if is_wsl(self._proc):
                        raise NoLibraries(
                            "there are no GPU counters under WSL", "run gputop on Linux itself"
                        )
                    self._library = find(gpu.driver, self._directory)
                except NoLibraries as missing:
                    self._given_up = SmReadFailed(missing.reason, True, missing.fix)
                    raise self._given_up from None
                self._worker.ask()
        if (
            self._known_addresses is not None
            and pci not in self._known_addresses
            and self._trouble is None
        ):
            raise SmReadFailed("NVIDIA's counter library does not know this GPU", True)
        return self._answer(known, now)

    def _answer(self, gpu: _Gpu, now: float) -> MeasuredActivity | Waiting:
        if self._trouble is not None:
            raise SmReadFailed(f"GPU counters: {self._trouble}")
        state, newest = gpu.state, gpu.newest
        if state is not None and state.state != "ok":
            denied = state.state == "denied"
            raise SmReadFailed(
                clean_text(state.reason)[:200] or state.state,
                resting=True,
                fix=shortest_fix(rights(self._driver, self._proc)) if denied else "",
                kind="denied" if denied else None,
            )
        if newest is None:
            if gpu.doubt is not None:
                raise SmReadFailed(gpu.doubt)
            return Waiting("waiting for the GPU counters")
        t, line = newest
        if now - t > self._silent_s:
            raise SmReadFailed(f"GPU counters: nothing for {now - t:.0f} s")
        values, missing = values_of(line)
        return MeasuredActivity(values, missing, line.t1 - line.t0, t)

    def forget(self, gpu: GpuStatic) -> None:
        """Give a GPU's counters back at the next look."""
        with self._lock:
            if (known := self._gpus.get(kernel_address(gpu.pci_bus_id) or "")) is not None:
                known.asked_at = -inf

    def stop(self) -> None:
        """End the helper within 0.3 s, by force if needed."""
        self._worker.stop()
        self._end(END_S)

    def _run(self) -> None:
        try:
            self._watch()
        except OSError as error:
            self._trouble = f"the helper cannot be started: {error.strerror}"
        finally:
            self._end(TERM_S)

    def _pause_s(self) -> float | None:
        """Return the pause before a restart, None for no restart."""
        error = self._worker.error
        if error is not None:
            self._trouble = f"what the helper writes cannot be read ({type(error).__name__})"
        if self._worker.stopping.is_set() or self._given_up is not None:
            return None
        pause_s = next(self._restarts_s, None)
        if pause_s is None:
            self._given_up = SmReadFailed(f"GPU counters given up: {self._trouble}", True)
        return pause_s

    def _watch(self) -> None:
        """Run the helper to its end; ``_trouble`` is the reason."""
        helper = self._start()
        begun = monotonic()
        self._known_addresses, self._trouble = None, None
        with self._lock:
            for gpu in self._gpus.values():
                gpu.state, gpu.taken = None, False
        while not self._worker.stopping.is_set():
            try:
                for line in helper.heard(LOOK_S, GATHER_S):
                    self._hear(line)
            except ProgramGone as gone:
                self._trouble = self._trouble or f"the helper {clean_text(str(gone))}"
                return
            now = monotonic()
            if self._known_addresses is None:
                if now - begun > START_S:
                    self._trouble = f"the helper has said nothing for {START_S:.0f} s"
                    return
                continue
            self._take_and_give(now)
            for gpu in self._gpus.copy().values():
                gpu.hung = gpu.hung or (gpu.taken and self._is_silent(gpu, now))
            if any(gpu.taken and gpu.hung for gpu in self._gpus.copy().values()):
                self._trouble = "a call of NVIDIA's counter library hung"
                return

    def _is_silent(self, gpu: _Gpu, now: float) -> bool:
        if gpu.state is not None and gpu.state.state != "ok":
            # It is not counting, and need not report that again.
            return False
        return now - gpu.heard_at > (self._silent_s if gpu.state is not None else START_S)

    def _hear(self, line: Line) -> None:
        if isinstance(line, Hello):
            self._known_addresses = frozenset(line.gpus)
        elif isinstance(line, CostLine):
            self.cost = line
        elif isinstance(line, Bye):
            if self._known_addresses is None:
                # It could not even begin, and neither will the next one.
                self._given_up = SmReadFailed(clean_text(line.reason)[:400], True)
                self._trouble = self._given_up.reason
        elif (gpu := self._gpus.get(line.pci)) is not None:
            gpu.heard_at = now = monotonic()
            if isinstance(line, GpuLine):
                gpu.state, gpu.newest = line, None
            else:
                gpu.doubt = doubt(line, self._interval_s)
                gpu.newest = (now, line) if gpu.taken and gpu.doubt is None else None

    def _take_and_give(self, now: float) -> None:
        """Tell the helper which GPUs to take and which to release."""
        known, commands = self._known_addresses or frozenset(), list[HelperCommand]()
        with self._lock:
            for pci, gpu in self._gpus.items():
                is_due = pci in known and now - gpu.asked_at <= self._unused_s
                wanted = is_due and not gpu.hung
                if wanted == gpu.taken:
                    continue
                gpu.taken, gpu.heard_at = wanted, now
                gpu.state, gpu.newest = (None, gpu.newest) if wanted else (gpu.state, None)
                commands.append(HelperCommand("resume" if wanted else "release", pci))
        if (helper := self._helper) is not None:
            for command in commands:
                helper.tell(command)

    def _start(self) -> Dialogue[Line]:
        words = ["--lib", self._library or "", "--interval-ms", str(round(self._interval_s * 1000))]
        if self._driver:
            words += ["--driver", self._driver]
        with self._lock, ambient(PERFMON):
            if self._worker.stopping.is_set():
                raise OSError(0, "stopped")
            self._helper = Dialogue(our_program(MODULE, *words), ours(), Line)
            return self._helper

    def _end(self, wait_s: float) -> None:
        with self._lock:
            helper, self._helper, self.cost = self._helper, None, None
        if helper is not None:
            helper.close(wait_s)
