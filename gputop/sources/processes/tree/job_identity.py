"""Batch job and container of a process, from its /proc/PID/cgroup.

Only the path is read: no environment.
"""

from __future__ import annotations

import re

from msgspec import Struct

from gputop.model.snapshot import POD, CgroupName

_SHORT_ID = 12

# Slurm: v1 /slurm/uid_1000/job_8821/step_0, v2 /system.slice/[NODE_]slurmstepd.scope/job_8821/step_0/user/task_0
_SLURM = r"(?:^|/)(?:slurm[^/]*|[^/]*slurmstepd\.scope)(?:/uid_\d+)?/job_(\d+)(?:/|$)"
# PBS cgroup hook: /pbs_jobs.service/jobid/12345.server, before that /pbspro.service/jobid/… (also below a .slice)
_PBS = r"/pbs(?:_jobs|pro)\.(?:service|slice)/jobid/(\d+(?:\[\d+\])?)"
# LSF: /lsf/CLUSTER/job.1234.PID.TIME
_LSF = r"/lsf/[^/]+/job\.(\d+(?:\[\d+\])?)\."
# Kubernetes: kubepods-burstable-pod<uid with _>.slice under systemd, /kubepods/burstable/pod<uid> without it
_POD = r"(?:kubepods[^/]*[-/]|/)pod([0-9a-f]{8}[-_][0-9a-f_-]{20,})"
_CONTAINER_ID = r"(?:^|/)(?:(?P<scope>docker|libpod|crio|cri-containerd)-)?(?P<id>[0-9a-f]{64})(?:\.scope)?(?:/|$)"
_ID_LENGTH = 64
_LXC = r"/lxc(?:\.payload)?[./]([^/]+)"
_ENGINES = {"docker": "docker", "libpod": "podman", "crio": "cri-o", "cri-containerd": "containerd"}


class JobIdentity(Struct, frozen=True):
    """Batch job and container of a process.

    ``job`` is for example ``slurm 8821``, ``container`` is ``docker 0123456789ab``. None if not recognised.
    """

    job: CgroupName | None = None
    container: CgroupName | None = None


def _job(text: str) -> CgroupName | None:
    for scheduler, pattern in (("slurm", _SLURM), ("pbs", _PBS), ("lsf", _LSF)):
        # Plain search first: most machines need none of these patterns, and compiling them takes a millisecond.
        if scheduler in text and (match := re.search(pattern, text)):
            return CgroupName(scheduler, match[1])
    return None


def _container(text: str) -> CgroupName | None:
    if "pod" in text and (pod := re.search(_POD, text)):
        return CgroupName(POD, pod[1].replace("_", "-"))
    if len(text) >= _ID_LENGTH and (match := re.search(_CONTAINER_ID, text)):
        short = match["id"][:_SHORT_ID]
        if match["scope"]:
            return CgroupName(_ENGINES[match["scope"]], short)
        return CgroupName(
            "docker" if "/docker" in text else "podman" if "libpod" in text else "container", short
        )
    if "/lxc" in text and (lxc := re.search(_LXC, text)):
        return CgroupName("lxc", lxc[1])
    return None


def job_identity(cgroup: str) -> JobIdentity:
    """Parse the text of /proc/PID/cgroup.

    The lines of all hierarchies are searched; the first match wins.
    """
    paths = "\n".join(line.split(":", 2)[-1] for line in cgroup.splitlines())
    job: CgroupName | None = None
    container: CgroupName | None = None
    for path in paths.split("\n"):
        job = job or _job(path)
        container = container or _container(path)
    return JobIdentity(job, container)
