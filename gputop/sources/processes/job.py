"""Which batch job and which container a process belongs to, from its /proc/PID/cgroup.

Only the path is read: no environment (it may hold secrets, and other users' is denied), no daemon is asked.
"""

from __future__ import annotations

import re

from msgspec import Struct

_SHORT_ID = 12

# Slurm: v1 /slurm/uid_1000/job_8821/step_0, v2 /system.slice/[NODE_]slurmstepd.scope/job_8821/step_0/user/task_0
_SLURM = re.compile(r"(?:^|/)(?:slurm[^/]*|[^/]*slurmstepd\.scope)(?:/uid_\d+)?/job_(\d+)(?:/|$)")
# PBS cgroup hook: /pbs_jobs.service/jobid/12345.server, before that /pbspro.service/jobid/… (also below a .slice)
_PBS = re.compile(r"/pbs(?:_jobs|pro)\.(?:service|slice)/jobid/(\d+(?:\[\d+\])?)")
# LSF: /lsf/CLUSTER/job.1234.PID.TIME
_LSF = re.compile(r"/lsf/[^/]+/job\.(\d+(?:\[\d+\])?)\.")
# Kubernetes: kubepods-burstable-pod<uid with _>.slice under systemd, /kubepods/burstable/pod<uid> without it
_POD = re.compile(r"(?:kubepods[^/]*[-/]|/)pod([0-9a-f]{8}[-_][0-9a-f_-]{20,})")
_CONTAINER_ID = re.compile(
    r"(?:^|/)(?:(?P<scope>docker|libpod|crio|cri-containerd)-)?(?P<id>[0-9a-f]{64})(?:\.scope)?(?:/|$)"
)
_LXC = re.compile(r"/lxc(?:\.payload)?[./]([^/]+)")
_ENGINES = {"docker": "docker", "libpod": "podman", "crio": "cri-o", "cri-containerd": "containerd"}


class JobIdentity(Struct, frozen=True):
    """``job`` such as ``slurm 8821``; ``container`` such as ``docker 0123456789ab``. None: neither was recognised."""

    job: str | None = None
    container: str | None = None


def _job(text: str) -> str | None:
    for scheduler, pattern in (("slurm", _SLURM), ("pbs", _PBS), ("lsf", _LSF)):
        match = pattern.search(text)
        if match:
            return f"{scheduler} {match[1]}"
    return None


def _container(text: str) -> str | None:
    pod = _POD.search(text)
    if pod:
        return f"pod {pod[1].replace('_', '-')}"
    match = _CONTAINER_ID.search(text)
    if match:
        short = match["id"][:_SHORT_ID]
        if match["scope"]:
            return f"{_ENGINES[match['scope']]} {short}"
        if "/docker" in text:
            return f"docker {short}"
        return f"podman {short}" if "libpod" in text else f"container {short}"
    lxc = _LXC.search(text)
    return f"lxc {lxc[1]}" if lxc else None


def job_identity(cgroup: str) -> JobIdentity:
    """Read the text of /proc/PID/cgroup: every hierarchy's line is searched, the first match wins."""
    paths = "\n".join(line.split(":", 2)[-1] for line in cgroup.splitlines())
    job: str | None = None
    container: str | None = None
    for path in paths.split("\n"):
        job = job or _job(path)
        container = container or _container(path)
    return JobIdentity(job, container)
