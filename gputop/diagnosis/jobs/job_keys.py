"""Which GPUs belong to one job: by what its ranks announce, or by their commands and starts.

Ranks of one job are recognised by the first of these that is known: the scheduler's job; the run that
the ranks announce in their environment; a command line that is equal but for the digit directly after a rank word
(``--local_rank=1``, ``TP0``, ``rank 1``), of the same user, and with the same parent or a start within a minute. Four
runs of a sweep (``--seed 1``, ``--seed 2``) are four jobs, and two users' equal commands are two.

Example: ``VLLM::Worker_TP0`` … ``TP3`` of one user, started together, get one key and the ranks 0 to 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from gputop.diagnosis.window.host_activity import GpuHostActivity
from gputop.diagnosis.window.job_of_gpu import JobOfGpu
from gputop.model.ranked_command import RankedCommand, ranked_command
from gputop.model.snapshot import ProcessSample

STARTS_S = 60.0
"""Ranks of one job start within this time of each other."""
MOST_REMEMBERED = 256
"""Limit of processes whose job is remembered after they are gone."""


class JobMember(Struct, frozen=True):
    """The main process of a GPU, as far as its job is concerned."""

    gpu: int
    pid: int
    starttime: int | None
    ppid: int | None
    began: float | None
    user: str | None
    command: RankedCommand
    job_key: str | None
    nccl: bool | None
    scheduled: str | None
    run: str | None
    rank: int | None

    @property
    def identity(self) -> tuple[int, int | None]:
        """Which process it is, also after its pid was used again."""
        return self.pid, self.starttime

    @property
    def parent(self) -> int | None:
        """The process that started it; None where it is the first of all, or not known."""
        return self.ppid if self.ppid is not None and self.ppid > 1 else None

    @property
    def kind(self) -> tuple[str | None, str]:
        """User and command without rank: equal for all ranks of a job."""
        if self.command.numbers or not self.job_key:
            return self.user, self.command.text
        return self.user, f"key {self.job_key}"


def member_of(t: float, gpu: int, process: ProcessSample) -> JobMember:
    """Return the facts that tie a process to its job."""
    static = process.static
    command = ranked_command(static.command or "")
    rank = static.rank
    if rank is None and command.numbers:
        rank = command.numbers[-1]
    return JobMember(
        gpu=gpu,
        pid=process.pid,
        starttime=process.starttime,
        ppid=process.ppid,
        began=None if process.age_s is None else t - process.age_s,
        user=static.user,
        command=command,
        job_key=static.job_key,
        nccl=process.nccl,
        scheduled=static.job,
        run=static.run,
        rank=rank,
    )


def are_near(one: JobMember, other: JobMember) -> bool:
    """True if two processes have one parent, or started within a minute, or nothing is known of that."""
    parents = {one.parent, other.parent}
    if None not in parents and len(parents) == 1:
        return True
    if one.began is None or other.began is None:
        return None in parents
    return abs(one.began - other.began) <= STARTS_S


def groups_of(members: Sequence[JobMember]) -> list[list[JobMember]]:
    """Return processes of one kind in groups that are near each other."""
    groups: list[list[JobMember]] = []
    for member in sorted(members, key=lambda one: (one.began or 0.0, one.pid)):
        near = next(
            (group for group in groups if any(are_near(one, member) for one in group)), None
        )
        if near is None:
            groups.append([member])
        else:
            near.append(member)
    return groups


def are_ranks(members: Sequence[JobMember]) -> bool:
    """True if the numbers after rank words are ranks: distinct, and close together.

    ``--rank 4``, ``8``, ``16`` and ``32`` is a setting of four jobs.
    """
    numbers = [member.command.numbers for member in members]
    if not all(numbers) or len(set(numbers)) < len(numbers):
        return False
    last = [number[-1] for number in numbers]
    return max(last) - min(last) < 2 * len(last)


class JobBook:
    """Remembers the job of each GPU process: a rank that is gone was one all the same."""

    def __init__(self) -> None:
        self._keys: dict[tuple[int, int | None], JobOfGpu] = {}
        self._seen: frozenset[tuple[object, ...]] = frozenset()

    def assign(self, t: float, ticks: Mapping[int, GpuHostActivity]) -> None:
        """Give each GPU's processes their job."""
        primaries = [
            (gpu, tick, tick.primary) for gpu, tick in ticks.items() if tick.primary is not None
        ]
        seen = frozenset((gpu, p.pid, p.starttime, p.nccl, p.static.run) for gpu, _, p in primaries)
        if seen != self._seen:
            self._seen = seen
            self._settle([member_of(t, gpu, p) for gpu, _, p in primaries])
        for _, tick, p in primaries:
            tick.job = self._keys.get((p.pid, p.starttime))

    def _settle(self, members: Sequence[JobMember]) -> None:
        """Find the jobs of the processes that are there now."""
        kinds: dict[tuple[str | None, str], list[JobMember]] = {}
        for member in members:
            kinds.setdefault(member.kind, []).append(member)
        for alike in kinds.values():
            for group in groups_of(alike):
                self._keep(group)
        if len(self._keys) > MOST_REMEMBERED:
            there = {member.identity for member in members}
            self._keys = {who: job for who, job in self._keys.items() if who in there}

    def _keep(self, group: Sequence[JobMember]) -> None:
        """Keep the keys of processes that are alike and near each other."""
        known = [self._keys[one.identity] for one in group if one.identity in self._keys]
        first = group[0]
        new_key = f"command {first.kind[1]} of {first.user} {first.pid}"
        loose_key = next((job.loose_key for job in known), new_key)
        have_ranks = are_ranks(group)
        is_numbered = any(member.command.numbers for member in group)
        for member in group:
            key = strict_key(member, loose_key, are_one=have_ranks or not is_numbered)
            loose = loose_key if have_ranks or not is_numbered else key
            is_announced = member.scheduled is not None or member.run is not None
            if is_announced:
                loose = key
            self._keys[member.identity] = JobOfGpu(key, loose, member.rank, is_announced)


def strict_key(member: JobMember, group_key: str, *, are_one: bool) -> str:
    """Return the key of a process among those that are alike and near each other."""
    if member.scheduled is not None:
        return f"job {member.scheduled}"
    if member.run is not None:
        return f"run {member.run}"
    may_talk = member.nccl is not False or bool(member.command.numbers)
    if are_one and may_talk:
        return group_key
    if are_one and member.parent is not None:
        return f"parent {member.parent} {member.kind[1]}"
    return f"pid {member.pid}"
