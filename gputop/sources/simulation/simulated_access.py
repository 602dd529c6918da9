"""Details and signals of simulated processes; no system call is made.

A process of this machine with the same id is never touched.
"""

from __future__ import annotations

import signal

from gputop.model.inspection import (
    DeepLook,
    Environment,
    InspectedProcess,
    ProcessIdentity,
    SignalOutcome,
    ThreadList,
    ThreadSample,
)
from gputop.model.snapshot import ProcessSample
from gputop.sources.simulation.simulated import SimulatedSource

SIMULATED = "simulated: this process exists only in the demo"
GONE = "the process has ended"
ENDING = frozenset((signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGABRT, signal.SIGKILL, signal.SIGTERM))
_CHANNELS = {"queue": "futex_wait_queue", "disk": "folio_wait_bit_common", "network": "do_epoll_wait"}


class SimulatedThreads:
    """Threads of one simulated process in the newest snapshot."""

    def __init__(self, source: SimulatedSource, identity: ProcessIdentity) -> None:
        self._source = source
        self._identity = identity
        self.latest: ThreadList | None = None
        """The newest list; None until it was asked for."""

    def ask(self) -> None:
        """Renew the list if there is a newer snapshot."""
        now = self._source.now
        if now is None or (self.latest is not None and self.latest.t == now.t):
            return
        process = _find(self._source, self._identity)
        if process is None:
            self.latest = ThreadList(now.t, reason=GONE)
            return
        threads = _threads(process)
        self.latest = ThreadList(now.t, threads, int(process.threads or len(threads)))

    def close(self) -> None:
        """Do nothing: no file is open."""


class SimulatedAccess:
    """Answers for the processes of a simulated source; see ``ProcessAccess``."""

    def __init__(self, source: SimulatedSource) -> None:
        self._source = source

    def send(self, identity: ProcessIdentity, number: int) -> SignalOutcome:
        """End a job and its loaders; other signals are refused."""
        process = _find(self._source, identity)
        if process is None:
            return SignalOutcome(identity, False, GONE)
        if number not in ENDING:
            return SignalOutcome(identity, False, "the demo simulates only signals that end a process, such as SIGTERM")
        job = process.pid if process.role == "gpu" or process.ppid is None else process.ppid
        self._source.end_job(job)
        return SignalOutcome(identity, True, note=SIMULATED)

    def environment(self, identity: ProcessIdentity) -> Environment:
        """Return a reason: simulated processes have no environment."""
        return Environment(identity, reason=SIMULATED)

    def look(self, identity: ProcessIdentity, loader: ProcessIdentity | None) -> DeepLook:
        """Return the threads of a process and its loader, without stacks."""
        process = _find(self._source, identity)
        worker = None if loader is None else _find(self._source, loader)
        if process is None:
            return DeepLook(InspectedProcess(identity, reason=GONE), exists=False)
        words = tuple((process.static.command or "").split())
        return DeepLook(
            _inspected(process), None if worker is None else _inspected(worker), words, note=SIMULATED, exists=False
        )

    def command(self, identity: ProcessIdentity) -> str:
        """Return nothing: a simulated command line has no secret."""
        return ""

    def watch_threads(self, identity: ProcessIdentity) -> SimulatedThreads:
        """Threads that are generated on request."""
        return SimulatedThreads(self._source, identity)


def _find(source: SimulatedSource, identity: ProcessIdentity) -> ProcessSample | None:
    processes = () if source.now is None else source.now.processes
    return next((p for p in processes if (p.pid, p.starttime) == (identity.pid, identity.starttime)), None)


def _inspected(process: ProcessSample) -> InspectedProcess:
    identity = ProcessIdentity(process.pid, process.starttime)
    return InspectedProcess(identity, _threads(process), reason="stacks are not simulated")


def _threads(process: ProcessSample) -> tuple[ThreadSample, ...]:
    """Return the main thread and the usual few others."""
    name = (process.static.name or "python")[:15]
    waits = process.waiting_on
    main = ThreadSample(
        process.pid, name, process.state or "S", process.main_run_pct, process.main_wait_pct, waits,
        channel=_CHANNELS.get(waits or ""),
    )  # fmt: skip
    if process.role != "gpu":
        return (main,)
    runs = {"cuda-EvtHandlr": True, "pt_nccl_watchdg": process.nccl, "pt_data_pin": process.pin_memory}
    names = enumerate((name for name, is_there in runs.items() if is_there), process.pid + 1)
    others = [ThreadSample(tid, name, "S", 0.0, 0.0, "queue", channel="futex_wait_queue") for tid, name in names]
    return (main, *others)
