"""The scope of an alert: each GPU alone, all GPUs of a job, or all GPUs of the node. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from gputop.model.snapshot import ProcessSample

Per = Literal["gpu", "job", "node"]
PER: tuple[Per, ...] = ("gpu", "job", "node")
Share = Literal["any", "all"]
SHARES: tuple[Share, ...] = ("any", "all")
NODE = "node"
"""The group of a whole node, and of GPUs whose job is unknown."""


def jobs_by_gpu(processes: Iterable[ProcessSample]) -> Mapping[int, frozenset[str]]:
    """GPU index → the batch jobs, else the pods, that hold a context there."""
    jobs: dict[int, set[str]] = {}
    for process in processes:
        if process.role == "gpu" and process.gpu is not None:
            name = process.static.job or _pod(process.static.container)
            if name is not None:
                jobs.setdefault(process.gpu, set()).add(name)
    return {gpu: frozenset(names) for gpu, names in jobs.items()}


def group_of(per: Per, uuid: str, jobs: frozenset[str]) -> str:
    """The group of a GPU. GPUs on which the same jobs share the chip are one group; those without a job are another."""
    if per == "gpu":
        return uuid
    return "job " + ", ".join(sorted(jobs)) if per == "job" and jobs else NODE


def _pod(container: str | None) -> str | None:
    return container if container is not None and container.startswith("pod ") else None
