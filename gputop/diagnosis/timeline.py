"""Every change of one GPU's verdict. It grows for as long as gputop runs, so each change is stored in ten bytes."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import overload

from gputop.diagnosis.types import Change, Flag

MOST_CHANGES = 10_000
"""A verdict stands for at least ten seconds: at worst this is more than a day."""


class Timeline(Sequence[Change]):
    """(Unix time, verdict, flag) of each change, oldest first, as it stood at one moment: it never changes.

    ``then`` gives the next one, which shares its storage. As a tuple of objects a change took 120 bytes: half a
    megabyte a day for eight GPUs, for weeks.
    """

    __slots__ = ("_count", "_kinds", "_names", "_times")

    def __init__(self, changes: Sequence[Change] = ()) -> None:
        self._times = array("d")
        self._kinds = array("H")
        self._names: dict[tuple[str, Flag | None], int] = {}
        for t, verdict, flag in changes:
            self._append(t, verdict, flag)
        self._count = len(self._times)

    def then(self, t: float, verdict: str, flag: Flag | None) -> Timeline:
        """This timeline plus one change; beyond ``MOST_CHANGES`` the oldest tenth is dropped."""
        full = self._count >= MOST_CHANGES
        if full or self._count < len(self._times):
            return Timeline([*self[MOST_CHANGES // 10 if full else 0 :], (t, verdict, flag)])
        following = Timeline.__new__(Timeline)
        following._times, following._kinds, following._names = self._times, self._kinds, self._names
        following._append(t, verdict, flag)
        following._count = self._count + 1
        return following

    def _append(self, t: float, verdict: str, flag: Flag | None) -> None:
        self._times.append(t)
        self._kinds.append(self._names.setdefault((verdict, flag), len(self._names)))

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Change: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Change]: ...
    def __getitem__(self, at: int | slice) -> Change | Sequence[Change]:
        if isinstance(at, slice):
            return tuple(self)[at]
        place = range(self._count)[at]
        return self._times[place], *list(self._names)[self._kinds[place]]

    def __iter__(self) -> Iterator[Change]:
        names = list(self._names)
        for t, kind in zip(self._times[: self._count], self._kinds, strict=False):
            verdict, flag = names[kind]
            yield t, verdict, flag

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)
