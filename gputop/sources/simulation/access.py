"""The processes of a simulated machine answer as on a real one, and always say that they are simulated.

No system call is made: a process of this machine that happens to have the same id is never touched.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from types import MappingProxyType

from gputop.model.inspection import DeepLook, Environment, Identity, ProcessSight, SignalOutcome, Stack, ThreadSight
from gputop.model.snapshot import ProcessSample
from gputop.model.threads import SocketGroup, SocketList, ThreadList, ThreadSample
from gputop.sources.simulation.simulated import SimulatedSource

SIMULATED = "simulated: this process exists only in the demo"
GONE = "the process has ended"
ENDING = frozenset((signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGABRT, signal.SIGKILL, signal.SIGTERM))
HOME = "/home/ml/project"
SIMULATED_RX = 9.4e6
"""Bytes a second that a simulated worker receives."""
LOOKS = 3
"""As often as the deep look at a real process takes its stack."""

_TORCH = "torch/utils/data/dataloader.py"
_FETCH = (
    ("_try_get_data", _TORCH, 0),
    ("__next__", _TORCH, 0),
    ("train_epoch", "train.py", 88),
    ("main", "train.py", 141),
)
_STEP = (("backward", "torch/_tensor.py", 0), ("train_epoch", "train.py", 93), ("main", "train.py", 141))
_MAIN: Mapping[str, tuple[tuple[str, str, int], ...]] = MappingProxyType({
    "rl.py": (("forward", "policy.py", 40), ("act", "rl.py", 71), ("rollout", "rl.py", 58), ("main", "rl.py", 120)),
    "fsdp.py": (("all_reduce", "torch/distributed/distributed_c10d.py", 0), ("step", "fsdp.py", 64),
                ("main", "fsdp.py", 102)),
    "vllm.entrypoints.openai.api_server": (("execute_model", "vllm/worker/model_runner.py", 0),
                                           ("run_forever", "asyncio/base_events.py", 0)),
    "ipykernel_launcher": (("select", "selectors.py", 0), ("run_forever", "asyncio/base_events.py", 0)),
})  # fmt: skip
"""Where the main thread stands, by the script; 0 where the line differs from version to version."""
_READING = (("read_image", "dataset.py", 31), ("__getitem__", "dataset.py", 22), ("_worker_loop", _TORCH, 0))
_DECODING = (("decode", "transforms.py", 57), ("__getitem__", "dataset.py", 24), ("_worker_loop", _TORCH, 0))
_CHANNELS = MappingProxyType({"queue": "futex_wait_queue", "disk": "folio_wait_bit_common", "network": "do_epoll_wait"})


class SimulatedThreads:
    """The threads of one simulated process, as of its source's newest snapshot."""

    def __init__(self, source: SimulatedSource, identity: Identity) -> None:
        self._source = source
        self._identity = identity
        self.latest: ThreadList | None = None
        """The newest list; None until it was asked for."""

    def ask(self) -> None:
        """Renew the list where there is a newer snapshot."""
        now = self._source.now
        if now is None or (self.latest is not None and self.latest.t == now.t):
            return
        found = _find(self._source, self._identity)
        if found is None:
            self.latest = ThreadList(now.t, reason=GONE)
            return
        sights = _threads(found)
        threads = tuple(
            ThreadSample(
                sight.tid,
                sight.name,
                sight.state,
                found.main_run_pct if sight.tid == found.pid else 0.0,
                found.main_wait_pct if sight.tid == found.pid else 0.0,
                sight.waiting_on,
            )
            for sight in sights
        )
        self.latest = ThreadList(now.t, threads, int(found.threads or len(threads)), sockets=_sockets(found, now.t))

    def close(self) -> None:
        """Nothing is open."""


class SimulatedAccess:
    """Answers for the processes of a simulated source; see ``ProcessAccess``."""

    def __init__(self, source: SimulatedSource) -> None:
        self._source = source

    def send(self, identity: Identity, number: int) -> SignalOutcome:
        """A signal that ends a process ends its job, with all its loaders; no other is simulated."""
        found = _find(self._source, identity)
        if found is None:
            return SignalOutcome(identity, False, GONE)
        if number not in ENDING:
            return SignalOutcome(identity, False, "the demo simulates only signals that end a process, such as SIGTERM")
        job = found.pid if found.role == "gpu" or found.ppid is None else found.ppid
        self._source.end_job(job)
        return SignalOutcome(identity, True, note=SIMULATED)

    def environment(self, identity: Identity) -> Environment:
        """What such a job usually has, a secret included, so that one sees how it is masked."""
        found = _find(self._source, identity)
        if found is None:
            return Environment(identity, reason=GONE)
        static = found.static
        variables = {
            "CUDA_VISIBLE_DEVICES": str(found.gpu),
            "HOME": f"/home/{static.user}",
            "LANG": "C.UTF-8",
            "NCCL_DEBUG": "WARN",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{HOME}/.venv/bin:/usr/bin:/bin",
            "PWD": HOME,
            "USER": static.user or "",
            "WANDB_API_KEY": "simulated-not-a-key",
        }
        if static.job is not None:
            variables["SLURM_JOB_ID"] = static.job.rpartition(" ")[2]
        return Environment(identity, tuple(sorted(variables.items())), note=SIMULATED)

    def look(self, identity: Identity, loader: Identity | None) -> DeepLook:
        """Stacks that fit what the process is said to do."""
        found = _find(self._source, identity)
        if found is None:
            return DeepLook(ProcessSight(identity, reason=GONE), exists=False)
        words = (found.static.command or "").split()
        beside = None if loader is None else _find(self._source, loader)
        return DeepLook(
            _sight(found, _main_stack(found, words)),
            None if beside is None else _sight(beside, _DECODING if beside.state == "R" else _READING),
            tuple(words),
            HOME,
            note=SIMULATED,
            exists=False,
        )

    def command(self, identity: Identity) -> str:
        """Nothing: a simulated command line has no secret."""
        return ""

    def watch_threads(self, identity: Identity) -> SimulatedThreads:
        """Threads that are generated on request."""
        return SimulatedThreads(self._source, identity)


def _find(source: SimulatedSource, identity: Identity) -> ProcessSample | None:
    now = source.now
    if now is None:
        return None
    return next((p for p in now.processes if (p.pid, p.starttime) == (identity.pid, identity.starttime)), None)


def _sockets(process: ProcessSample, t: float) -> SocketList:
    """A worker that waits for the network has the connections of a client; nobody else has any."""
    if process.waiting_on != "network" or process.role != "loader":
        return SocketList(t)
    return SocketList(t, (SocketGroup(443, False, False, 4, SIMULATED_RX),))


def _main_stack(process: ProcessSample, words: list[str]) -> tuple[tuple[str, str, int], ...]:
    if process.role != "gpu":
        return _READING
    known = next((stack for name, stack in _MAIN.items() if name in words), None)
    return known or (_STEP if process.state == "R" else _FETCH)


def _sight(process: ProcessSample, frames: tuple[tuple[str, str, int], ...]) -> ProcessSight:
    stack = Stack(frames, active=process.state == "R")
    return ProcessSight(Identity(process.pid, process.starttime), _threads(process), (stack,) * LOOKS)


def _threads(process: ProcessSample) -> tuple[ThreadSight, ...]:
    """The main thread and the few others that every such process has."""
    name = (process.static.name or "python")[:15]
    waits = process.waiting_on
    main = ThreadSight(process.pid, name, process.state or "S", waits, _CHANNELS.get(waits or ""))
    if process.role != "gpu":
        return (main,)
    others = ["cuda-EvtHandlr"]
    others += ["pt_nccl_watchdg"] if process.nccl else []
    others += ["pt_data_pin"] if process.pin_memory else []
    return (
        main,
        *(ThreadSight(process.pid + 1 + i, other, "S", "queue", "futex_wait_queue") for i, other in enumerate(others)),
    )
