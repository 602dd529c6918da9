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
)
from gputop.model.snapshot import ProcessSample
from gputop.sources.simulation.simulated import SimulatedSource

SIMULATED = "simulated: this process exists only in the demo"
GONE = "the process has ended"
ENDING = frozenset(
    (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGABRT, signal.SIGKILL, signal.SIGTERM)
)


class SimulatedAccess:
    """Answers for the processes of a simulated source; see ``ProcessAccess``."""

    def __init__(self, source: SimulatedSource) -> None:
        self._source = source

    def send(self, identity: ProcessIdentity, number: int) -> SignalOutcome:
        """End a job and its loaders; other signals are refused."""
        process = self._find(identity)
        if process is None:
            return SignalOutcome(identity, False, GONE)
        if number not in ENDING:
            return SignalOutcome(
                identity,
                False,
                "the demo simulates only signals that end a process, such as SIGTERM",
            )
        job = process.pid if process.role == "gpu" or process.ppid is None else process.ppid
        self._source.end_job(job)
        return SignalOutcome(identity, True, note=SIMULATED)

    def environment(self, identity: ProcessIdentity) -> Environment:
        """Return a reason: simulated processes have no environment."""
        return Environment(identity, reason=SIMULATED)

    def look(self, identity: ProcessIdentity, loader: ProcessIdentity | None) -> DeepLook:
        """Return how a process was started; its threads and stacks are not simulated."""
        process = self._find(identity)
        reason = GONE if process is None else SIMULATED
        words = () if process is None else tuple((process.static.command or "").split())
        return DeepLook(InspectedProcess(identity, reason=reason), argv=words)

    def command(self, identity: ProcessIdentity) -> str:
        """Return nothing: a simulated command line has no secret."""
        return ""

    def watch_threads(self, identity: ProcessIdentity) -> None:
        """Return nothing: threads are not simulated."""

    def _find(self, identity: ProcessIdentity) -> ProcessSample | None:
        processes = () if self._source.now is None else self._source.now.processes
        return next(
            (p for p in processes if (p.pid, p.starttime) == (identity.pid, identity.starttime)),
            None,
        )
