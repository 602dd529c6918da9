"""Details and signals of simulated processes; no system call is made.

A process of this machine with the same id is never touched.
"""

from __future__ import annotations

import re
import signal

from gputop.model.inspection import (
    DeepLook,
    Environment,
    InspectedProcess,
    InspectedThread,
    ProcessIdentity,
    SignalOutcome,
    SocketGroup,
    SocketList,
    ThreadList,
    ThreadSample,
    ThreadStack,
)
from gputop.model.snapshot import ProcessSample
from gputop.sources.simulation.simulated import SimulatedSource

SIMULATED = "simulated: this process exists only in the demo"
GONE = "the process has ended"
ENDING = frozenset((signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGABRT, signal.SIGKILL, signal.SIGTERM))
HOME = "/home/ml/project"
SIMULATED_RX = 9.4e6
"""Bytes a second that a simulated worker receives."""
LOOKS = 3
"""As often as the deep look at a real process takes its stack."""

Frames = tuple[tuple[str, str, int], ...]


def _stack(text: str) -> Frames:
    """The frames of ``function file:line < caller …``, the innermost first."""
    frames = (re.fullmatch(r"(\S+) (\S+):(\d+)", frame) for frame in text.split(" < "))
    return tuple((frame[1], frame[2], int(frame[3])) for frame in frames if frame)


_TORCH = "torch/utils/data/dataloader.py:0"
_FETCH = _stack(f"_try_get_data {_TORCH} < __next__ {_TORCH} < train_epoch train.py:88 < main train.py:141")
_STEP = _stack("backward torch/_tensor.py:0 < train_epoch train.py:93 < main train.py:141")
_LOOP = "run_forever asyncio/base_events.py:0"
_MAIN = {
    "rl.py": _stack("forward policy.py:40 < act rl.py:71 < rollout rl.py:58 < main rl.py:120"),
    "fsdp.py": _stack("all_reduce torch/distributed/distributed_c10d.py:0 < step fsdp.py:64 < main fsdp.py:102"),
    "vllm.entrypoints.openai.api_server": _stack(f"execute_model vllm/worker/model_runner.py:0 < {_LOOP}"),
    "ipykernel_launcher": _stack(f"select selectors.py:0 < {_LOOP}"),
}
"""Where the main thread stands, by the script; 0 where the line differs from version to version."""
_READING = _stack(f"read_image dataset.py:31 < __getitem__ dataset.py:22 < _worker_loop {_TORCH}")
_DECODING = _stack(f"decode transforms.py:57 < __getitem__ dataset.py:24 < _worker_loop {_TORCH}")
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
        threads = []
        for thread in _threads(process):
            times = (process.main_run_pct, process.main_wait_pct) if thread.tid == process.pid else (0.0, 0.0)
            threads.append(ThreadSample(thread.tid, thread.name, thread.state, *times, thread.waiting_on))
        count = int(process.threads or len(threads))
        self.latest = ThreadList(now.t, tuple(threads), count, sockets=_sockets(process, now.t))

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
        """Return a typical environment with a secret, which is masked."""
        process = _find(self._source, identity)
        if process is None:
            return Environment(identity, reason=GONE)
        user, job = process.static.user, process.static.batch_job
        variables = {
            "CUDA_VISIBLE_DEVICES": str(process.gpu),
            "HOME": f"/home/{user}",
            "LANG": "C.UTF-8",
            "NCCL_DEBUG": "WARN",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{HOME}/.venv/bin:/usr/bin:/bin",
            "PWD": HOME,
            "USER": user or "",
            "WANDB_API_KEY": "simulated-not-a-key",
            **({"SLURM_JOB_ID": job.id} if job is not None else {}),
        }
        return Environment(identity, tuple(sorted(variables.items())), note=SIMULATED)

    def look(self, identity: ProcessIdentity, loader: ProcessIdentity | None) -> DeepLook:
        """Return stacks that fit the process's state."""
        process = _find(self._source, identity)
        if process is None:
            return DeepLook(InspectedProcess(identity, reason=GONE), exists=False)
        words = (process.static.command or "").split()
        main = _inspected_process(process, _main_stack(process, words))
        worker = None if loader is None else _find(self._source, loader)
        if worker is None:
            return DeepLook(main, None, tuple(words), HOME, note=SIMULATED, exists=False)
        works = _inspected_process(worker, _DECODING if worker.state == "R" else _READING)
        return DeepLook(main, works, tuple(words), HOME, note=SIMULATED, exists=False)

    def command(self, identity: ProcessIdentity) -> str:
        """Return nothing: a simulated command line has no secret."""
        return ""

    def watch_threads(self, identity: ProcessIdentity) -> SimulatedThreads:
        """Threads that are generated on request."""
        return SimulatedThreads(self._source, identity)


def _find(source: SimulatedSource, identity: ProcessIdentity) -> ProcessSample | None:
    processes = () if source.now is None else source.now.processes
    return next((p for p in processes if (p.pid, p.starttime) == (identity.pid, identity.starttime)), None)


def _sockets(process: ProcessSample, t: float) -> SocketList:
    """Return a client's connections for a worker that reads the network."""
    if process.waiting_on != "network" or process.role != "loader":
        return SocketList(t)
    return SocketList(t, (SocketGroup(443, False, False, 4, SIMULATED_RX),))


def _main_stack(process: ProcessSample, words: list[str]) -> Frames:
    if process.role != "gpu":
        return _READING
    stack_of_program = next((stack for name, stack in _MAIN.items() if name in words), None)
    return stack_of_program or (_STEP if process.state == "R" else _FETCH)


def _inspected_process(process: ProcessSample, frames: Frames) -> InspectedProcess:
    stack = ThreadStack(frames, active=process.state == "R")
    return InspectedProcess(ProcessIdentity(process.pid, process.starttime), _threads(process), (stack,) * LOOKS)


def _threads(process: ProcessSample) -> tuple[InspectedThread, ...]:
    """Return the main thread and the usual few others."""
    name = (process.static.name or "python")[:15]
    waits = process.waiting_on
    main = InspectedThread(process.pid, name, process.state or "S", waits, _CHANNELS.get(waits or ""))
    if process.role != "gpu":
        return (main,)
    names = ["cuda-EvtHandlr"]
    names += ["pt_nccl_watchdg"] if process.nccl else []
    names += ["pt_data_pin"] if process.pin_memory else []
    others = [
        InspectedThread(process.pid + 1 + i, name, "S", "queue", "futex_wait_queue") for i, name in enumerate(names)
    ]
    return (main, *others)
