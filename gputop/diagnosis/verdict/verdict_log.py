"""Log of findings, and each GPU's time by state. Bounded."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.diagnosis.types import Finding, GpuDiagnosis
from gputop.diagnosis.verdict.summary import LEVEL_OF_ROLE, ROLE_OF_LEVEL, role_of

MOST_FINDINGS = 500
Key = tuple[str, str]


class Findings:
    """Findings in order of time.

    A finding gets its ``ended`` when what it says is no longer shown.
    """

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
        """Compare a GPU's diagnosis with the one before it.

        A GPU's first diagnosis is no change.
        """
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
            role = role_of(diagnosis)
            before[verdict] = self._add(
                Finding(
                    t,
                    diagnosis.index,
                    "verdict",
                    diagnosis.verdict,
                    LEVEL_OF_ROLE[role],
                    diagnosis.plain_title,
                    diagnosis.evidence[0] if diagnosis.evidence else "",
                    diagnosis.remedy,
                    diagnosis.busy_not_working,
                    role=role,
                )
            )
        for badge in diagnosis.badges:
            if ("badge", badge.id) not in before:
                before[("badge", badge.id)] = self._add(
                    Finding(
                        t,
                        diagnosis.index,
                        "badge",
                        badge.id,
                        badge.level,
                        badge.title,
                        badge.evidence,
                        badge.remedy,
                        sticky=badge.sticky,
                        role=ROLE_OF_LEVEL[badge.level],
                    )
                )

    def forget(self, uuid: str) -> None:
        """Forget a GPU that is gone.

        Its findings keep their state.
        """
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
