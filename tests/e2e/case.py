"""What a case is: a job in ``tests/e2e/cases`` that says of itself, by ``@case``, what gputop must make of it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.hung_mount import why_not

if TYPE_CHECKING:
    from tests.e2e.job import Gpu

    Job = Callable[[Gpu], None]

CALM = frozenset({"collecting", "startup", "healthy", "working", "no_bottleneck_seen"})
"""What may be said of a job that does what it should."""


class Case(NamedTuple):
    """What must be said in the end. ``verdict`` and ``cause`` name all that would be right.

    ``feeders`` is how many are to be seen at least, and every text of ``says`` stands in evidence, notes or remedy.
    ``uneven`` is asked for where it is not None. ``then`` are the verdicts after the job has changed, ``change_s``
    after its training has begun. ``visited`` jobs listen at the port that they are given, and are sent requests.
    ``only`` are the verdicts that may ever show: a healthy job is never accused.
    """

    verdict: tuple[str, ...]
    cause: tuple[str, ...] = ()
    feeders: int = 0
    says: tuple[str, ...] = ()
    uneven: bool | None = None
    cores: float = 1.0
    """How many cores it would like to have."""
    needs: str = ""
    """The package without which it cannot run."""
    then: tuple[str, ...] = ()
    change_s: float = 0.0
    visited: bool = False
    only: frozenset[str] = frozenset()
    never: tuple[str, ...] = ()
    """Causes that may never be named, not even for a moment."""
    mount_s: float | None = None
    """It reads a file on a file system of its own, each read of which takes so long."""
    hangs_s: float | None = None
    """So long after its start that file system stops to answer."""
    changes: int = 0
    """How many changes of the verdict the job's own course brings, such as that it stops."""
    watch_s: float | None = None
    """How long it must be watched, where that is longer than others are."""

    @property
    def missing(self) -> str:
        """What it needs and this environment lacks, with the reason; empty where it can run."""
        if self.mount_s is not None and (reason := why_not()) is not None:
            return f"a file system in user space cannot be mounted: {reason}"
        return (
            f"{self.needs} is not installed" if self.needs and find_spec(self.needs) is None else ""
        )


def case(*wanted: Any, **asked: Any) -> Callable[[Job], Job]:
    """Mark a job with what must be said of it: the fields of ``Case``."""

    def mark(job: Job) -> Job:
        vars(job)["case"] = Case(*wanted, **asked)
        return job

    return mark


def all_jobs() -> dict[str, Job]:
    """Every job, by its name."""
    names = [
        found.name
        for found in pkgutil.iter_modules(importlib.import_module("tests.e2e.cases").__path__)
    ]
    modules = [importlib.import_module(f"tests.e2e.cases.{name}") for name in names]
    jobs = {
        name: job
        for module in modules
        for name, job in vars(module).items()
        if hasattr(job, "case")
    }
    return dict(sorted(jobs.items()))


def all_cases() -> dict[str, Case]:
    """What must be said of each job."""
    return {name: vars(job)["case"] for name, job in all_jobs().items()}


def groups(cases: dict[str, Case], most_cores: float, most_jobs: int) -> list[list[str]]:
    """Cases that run at once. Those that change take longest and run together."""
    made: list[list[str]] = []
    for name in sorted(
        cases, key=lambda name: (-cases[name].change_s, not cases[name].needs, -cases[name].cores)
    ):
        fitting = [
            group
            for group in made
            if len(group) < most_jobs
            and sum(cases[n].cores for n in group) + cases[name].cores <= most_cores
        ]
        if fitting:
            min(fitting, key=lambda group: sum(cases[n].cores for n in group)).append(name)
        else:
            made.append([name])
    return made
