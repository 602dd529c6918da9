"""Rules R1 to R5: identify loader processes and threads by name.

Pure: no I/O. The rules use names and command lines alone. Each answer carries its rule, so that a wrong one can be
traced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from gputop.model.command_facts import A_COMPILER, NEVER, Rule, not_a_loader, why_words
from gputop.model.feeders import PIN_MEMORY_THREAD

# A descendant without a rule counts as a loader only while it works or waits for a disk at least this much.
BUSY_HELPER_SHARE = 0.3

_TORCH_WORKER = b"pt_data_w"
_LOADERS: Mapping[bytes, str] = MappingProxyType({
    b"multiprocessing.spawn": "python",
    b"multiprocessing.forkserver": "python",
    b"multiprocess.spawn": "python",
    b"multiprocess.forkserver": "python",
    b"billiard.spawn": "python",
    b"popen_loky_posix": "python",
})  # fmt: skip
"""Text in a loader's command line, and the kind of loader."""
_FORKSERVER = b"multiprocessing.forkserver"
_RAY = b"ray::"
_RAY_OWN = (
    b"ray::IDLE",
    b"ray::DashboardAgent",
    b"ray::RuntimeEnvAgent",
    b"ray::SPILL",
    b"ray::RESTORE",
)
"""Ray's own processes, which carry no task."""


class DescendantRole(Struct, frozen=True):
    """Role of a descendant of a GPU process.

    ``may_feed``: a busy helper of this kind counts as a loader (R5).
    """

    role: Literal["loader", "helper"]
    loader: str | None
    rule: Rule
    match: str
    may_feed: bool = False

    @property
    def reason(self) -> str:
        """The rule and its evidence, for people."""
        return why_words(self.rule, self.match)


def identify(
    comm: bytes, command: bytes, parent_command: bytes, parent_runs_job: bool
) -> DescendantRole:
    """Return the role of a GPU process's descendant.

    ``comm`` is the kernel's name of its main thread; the commands are the raw text of /proc/PID/cmdline.
    ``parent_runs_job``: the parent is the GPU process or one of its loaders, not a helper such as a shell.
    """
    if comm.startswith(_TORCH_WORKER):
        return DescendantRole("loader", "torch", "R1", f"comm {comm.decode('utf-8', 'replace')}")
    why = A_COMPILER if comm in _COMPILERS else not_a_loader(command.decode("utf-8", "replace"))
    if why is not None:
        return DescendantRole("helper", None, NEVER, why)
    if _FORKSERVER in command and command != parent_command:
        return DescendantRole("helper", None, NEVER, "multiprocessing's fork server")
    for mark, loader in _LOADERS.items():
        if mark in command:
            return DescendantRole("loader", loader, "R2", f"command line has {mark.decode()}")
    if is_working_ray_task(command):
        return DescendantRole("loader", "ray", "R4", "ray task below the GPU process")
    if command and command == parent_command and parent_runs_job:
        return DescendantRole("loader", "python", "R3", "same command line as its parent")
    return DescendantRole("helper", None, "R5", "other descendant", may_feed=True)


def busy_helper(comm: bytes) -> DescendantRole:
    """Return the role of a helper that counts as a loader."""
    return DescendantRole(
        "loader", comm.decode("utf-8", "replace"), "R5", "busy descendant", may_feed=True
    )


def is_working_ray_task(command: bytes) -> bool:
    """Return whether a command line shows a Ray worker's task.

    Ray writes the task's name there.
    """
    return command.startswith(_RAY) and not command.startswith(_RAY_OWN)


def is_python(command: bytes) -> bool:
    """Return whether argv[0] is a Python interpreter.

    A supervisor written in Python is excluded, see ``supervisord``.
    """
    executable = command.split(b"\0", 1)[0].rsplit(b"/", 1)[-1]
    return executable.startswith((b"python", b"pypy")) and b"supervisord" not in command


_COMPILERS = frozenset(
    b"cc1 cc1plus gcc g++ c++ clang clang++ as ld collect2 ld.lld nvcc cicc cudafe++ ptxas fatbinary nvlink".split()
)
"""Compilers and their child programs, by the kernel's names."""

# Threads of a GPU process that are neither its main thread nor host threads that could feed it.
_OWN_THREADS = (
    "cuda",
    "nv_",
    "nccl",
    "pt_nccl",
    "pt_autograd",
    "pt_gloo",
    "gloo",
    "pt_tcpstore",
    "pt_data_pin",
)
_RANK_THREADS = ("nccl", "pt_nccl", "pt_gloo", "gloo", "pt_tcpstore")
_THREAD_LOADERS = (("[dali]", "DALI threads"), ("tf_data_", "tf.data threads"))


_FRAMEWORKS = (
    ("pt_", "torch"),
    ("jax", "jax"),
    ("tf_data_", "tensorflow"),
    ("tf_compute", "tensorflow"),
)
"""Prefixes of the thread names of each framework; XLA's own names are shared by several frameworks and left out."""


def thread_framework(names: Iterable[str]) -> str | None:
    """Return the framework that named the threads, or None."""
    lowered = [name.lower() for name in names]
    return next(
        (kind for prefix, kind in _FRAMEWORKS if any(name.startswith(prefix) for name in lowered)),
        None,
    )


def is_host_thread(name: str) -> bool:
    """Return whether a thread belongs to the host thread pool.

    Pool threads could prepare data. The main thread is not checked.
    """
    return not name.lower().startswith(_OWN_THREADS)


def is_backward_thread(name: str) -> bool:
    """Return whether PyTorch computes gradients in a thread.

    The main thread waits for such threads in ``backward()``.
    """
    return name.startswith("pt_autograd")


def is_nccl_thread(name: str) -> bool:
    """Return whether a thread is NCCL's or PyTorch's watchdog over NCCL.

    NCCL names its threads with NCCL_SET_THREAD_NAME=1.
    """
    return name.lower().startswith(("nccl", "pt_nccl"))


def is_rank_thread(name: str) -> bool:
    """Return whether a thread serves communication between the ranks."""
    return name.lower().startswith(_RANK_THREADS)


def is_pin_memory_thread(name: str) -> bool:
    """Return whether a thread belongs to DataLoader(pin_memory=True)."""
    return name.startswith(PIN_MEMORY_THREAD)


def thread_loader(names: Iterable[str]) -> str | None:
    """Return the kind of loader that runs as threads, or None.

    The names of the GPU process's threads decide.
    """
    lowered = [name.lower() for name in names]
    for prefix, kind in _THREAD_LOADERS:
        if any(name.startswith(prefix) for name in lowered):
            return kind
    return None
