"""Restricts snapshots to the GPUs that one job uses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec.structs import replace

from gputop.model.snapshot import ProcessSample, Snapshot

HELD_FRAMES = 100
"""Frames kept until the job first uses a GPU, so that its start-up on that GPU is not lost."""


class OwnGpus:
    """Collects the GPUs of a job and cuts snapshots down to them.

    ``is_member`` says whether a process on a GPU belongs to the job, ``is_pid_member`` whether a pid does.
    """

    def __init__(
        self, is_member: Callable[[ProcessSample], bool], is_pid_member: Callable[[int], bool]
    ) -> None:
        self._is_member = is_member
        self._is_pid_member = is_pid_member
        self._uuids: set[str] = set()
        self._held_back: deque[Snapshot] = deque(maxlen=HELD_FRAMES)

    @property
    def any(self) -> bool:
        """Whether the job has used a GPU yet."""
        return bool(self._uuids)

    def take(self, snapshot: Snapshot) -> list[Snapshot]:
        """Return the snapshots to use, cut down to the job's GPUs.

        None before the job has used a GPU; then those held back and this one.
        """
        used = {p.gpu for p in snapshot.processes if p.role == "gpu" and self._is_member(p)}
        first = not self._uuids
        self._uuids.update(gpu.static.uuid for gpu in snapshot.gpus if gpu.static.index in used)
        if not self._uuids:
            self._held_back.append(snapshot)
            return []
        earlier = [self._cut(held_back) for held_back in self._held_back] if first else []
        self._held_back.clear()
        return [*earlier, self._cut(snapshot)]

    def _cut(self, snapshot: Snapshot) -> Snapshot:
        gpus = tuple(gpu for gpu in snapshot.gpus if gpu.static.uuid in self._uuids)
        indices = {gpu.static.index for gpu in gpus}
        return replace(
            snapshot,
            gpus=gpus,
            processes=tuple(process for process in snapshot.processes if process.gpu in indices),
            events=tuple(
                event for event in snapshot.events if event.gpu is None or event.gpu in indices
            ),
            steps=tuple(row for row in snapshot.steps if self._is_pid_member(row.pid)),
        )
