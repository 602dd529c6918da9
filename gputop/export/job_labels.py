"""Whose job a GPU works for, as labels. From the cgroup path alone: no command line, no environment.

Only what runs now is exported, so that a day of changing jobs leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from gputop.export.text_format import labels
from gputop.model.snapshot import ProcessSample, ProcessStatic

MOST_JOBS = 8
"""The most jobs exported for one GPU, those with the most memory first."""


def jobs_by_gpu(processes: Iterable[ProcessSample]) -> dict[int, list[str]]:
    """GPU index → the labels of each job that holds a context there. Jobs that share a GPU have one entry each."""
    held: dict[int, dict[str, float]] = {}
    for process in processes:
        if process.role != "gpu" or process.gpu is None:
            continue
        identity = job_labels(process.static)
        if identity:
            of_gpu = held.setdefault(process.gpu, {})
            of_gpu[identity] = of_gpu.get(identity, 0.0) + (process.gpu_mem_bytes or 0.0)
    return {gpu: sorted(sorted(jobs), key=jobs.__getitem__, reverse=True)[:MOST_JOBS] for gpu, jobs in held.items()}


def job_labels(static: ProcessStatic) -> str:
    """``scheduler, job_id, user, k8s_pod_uid, container_id`` of a process; empty where none of them is known."""
    return _labels(static.job or "", static.container or "", static.user)


@lru_cache(maxsize=256)
def _labels(job: str, contained: str, user: str | None) -> str:
    """Kept: a job has many processes, and each scrape asks for all of them."""
    scheduler, _, job_id = job.partition(" ")
    kind, _, container = contained.partition(" ")
    pod = container if kind == "pod" else ""
    return labels(
        ("scheduler", scheduler if job_id else "kubernetes" if pod else ""),
        ("job_id", job_id),
        ("user", user),
        ("k8s_pod_uid", pod),
        ("container_id", "" if pod else container),
    )
