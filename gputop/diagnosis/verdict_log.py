"""What changed, when and why: verdicts and badges as they came and went, bounded."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import overload

from msgspec.structs import replace

from gputop.diagnosis.types import Change, Finding, Flag, GpuDiagnosis

MOST_FINDINGS = 500
Key = tuple[str, str]


class Findings:
    """Findings in order of time. A finding gets its ``ended`` when what it says is no longer shown."""

    def __init__(self) -> None:
        self._findings: dict[int, Finding] = {}
        self._next = 0
        self._open: dict[str, dict[Key, int]] = {}
        self._all: tuple[Finding, ...] | None = ()

    def all(self) -> tuple[Finding, ...]:
        """Newest last."""
        if self._all is None:
            self._all = tuple(self._findings.values())
        return self._all

    def note(self, t: float, diagnosis: GpuDiagnosis) -> None:
        """Compare a GPU's diagnosis with the one before it. A GPU's first diagnosis is no change."""
        before = self._open.get(diagnosis.uuid)
        verdict = ("verdict", f"{diagnosis.verdict} {diagnosis.busy_not_working or ''}")
        if before is not None and verdict in before and len(before) == 1 and not diagnosis.badges:
            return
        now = [verdict, *(("badge", badge.id) for badge in diagnosis.badges)]
        if before is None:
            before = self._open[diagnosis.uuid] = {verdict: -1}
        for key in [key for key in before if key not in now]:
            self._end(t, before.pop(key))
        if verdict not in before:
            before[verdict] = self._add(
                Finding(
                    t, diagnosis.index, "verdict", diagnosis.verdict, diagnosis.level,
                    diagnosis.plain_title,
                    diagnosis.evidence[0] if diagnosis.evidence else "", diagnosis.remedy, diagnosis.busy_not_working,
                )
            )  # fmt: skip
        for badge in diagnosis.badges:
            if ("badge", badge.id) not in before:
                before[("badge", badge.id)] = self._add(
                    Finding(
                        t, diagnosis.index, "badge", badge.id, badge.level, badge.title, badge.evidence, badge.remedy,
                        sticky=badge.sticky,
                    )
                )  # fmt: skip

    def forget(self, uuid: str) -> None:
        """Forget a GPU that is gone; its findings keep their state."""
        self._open.pop(uuid, None)

    def _add(self, finding: Finding) -> int:
        self._findings[self._next] = finding
        self._next += 1
        self._all = None
        if len(self._findings) > MOST_FINDINGS:
            del self._findings[next(iter(self._findings))]
        return self._next - 1

    def _end(self, t: float, number: int) -> None:
        finding = self._findings.get(number)
        if finding is not None:
            self._findings[number] = replace(finding, ended=t)
            self._all = None


# Every change of one GPU's verdict. It grows for as long as gputop runs, so each change is stored in ten bytes.

MOST_CHANGES = 10_000
"""A verdict stands for at least ten seconds: at worst this is more than a day."""


class VerdictTimeline(Sequence[Change]):
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

    def then(self, t: float, verdict: str, flag: Flag | None) -> VerdictTimeline:
        """This timeline plus one change; beyond ``MOST_CHANGES`` the oldest tenth is dropped."""
        full = self._count >= MOST_CHANGES
        if full or self._count < len(self._times):
            return VerdictTimeline([*self[MOST_CHANGES // 10 if full else 0 :], (t, verdict, flag)])
        following = VerdictTimeline.__new__(VerdictTimeline)
        following._times, following._kinds, following._names = self._times, self._kinds, self._names
        following._append(t, verdict, flag)
        following._count = self._count + 1
        return following

    def _append(self, t: float, verdict: str, flag: Flag | None) -> None:
        self._times.append(t)
        self._kinds.append(self._names.setdefault((verdict, flag), len(self._names)))

    def __deepcopy__(self, _memo: dict[int, object]) -> VerdictTimeline:
        """Itself: ``then`` never changes what a timeline holds."""
        return self

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
