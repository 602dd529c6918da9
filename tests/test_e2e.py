"""End to end: real jobs, real /proc, the real NVML binding; only the GPU is pretended.

gputop watches from outside and must name what each job suffers from, by which feeders, in time and without wavering.
The cases are the files of ``tests/e2e/cases``; ``python -m tests.e2e`` prints what is said of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.diagnosis.types import GpuDiagnosis
from gputop.monitor import Frame, Monitor
from tests.e2e.__main__ import run, table
from tests.e2e.case import Case, all_cases
from tests.e2e.watching import Result, judged
from tests.support.scenes import gpu, snap

CASES = {name: case for name, case in all_cases().items() if case.watch_s is None}
"""Those that take longer are left to ``python -m tests.e2e``."""
WAITS_CORES = 0.2
"""A job that wants no more of a core than this waits nearly all of its time: other tests beside it change neither what
it does nor what must be said of it, unless it is to answer in time. When that is said is judged of some, alone."""
WAITING = [
    name
    for name, case in CASES.items()
    if case.cores <= WAITS_CORES and not case.needs and not case.visited
]
IN_TIME = ("fuse_reads", "shared_lock", "threads_in_turns", "tracker")
ALONE = [name for name in CASES if name in IN_TIME or name not in WAITING]
Results = Mapping[tuple[str, bool], Result]
"""By the case, and whether it ran alone."""


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, nvml_dir: Path) -> Results:
    """What was said of each case that is asked for: they run together, in as few groups as the cores take."""
    asked = {
        (item.callspec.params.get("case"), item.get_closest_marker("alone") is not None)
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    }
    return {
        (result.name, calm): result
        for calm in (True, False)
        for result in run(
            {name: case for name, case in CASES.items() if (name, calm) in asked},
            nvml_dir,
            calm=calm,
        )
    }


@pytest.fixture
def is_rerun(request: pytest.FixtureRequest) -> bool:
    """Whether this test failed before and is tried once more."""
    return getattr(request.node, "execution_count", 1) > 1


def right(case: str, results: Results, library: Path, *, calm: bool, is_rerun: bool) -> None:
    if CASES[case].missing:
        pytest.skip(CASES[case].missing)
    result = results[case, calm]
    if is_rerun:
        # What was said of the group stays; the job alone is watched anew.
        (result,) = run({case: CASES[case]}, library, calm=calm)
    assert not result.problems, f"{table([result])}\n{' / '.join(result.evidence)}"


@pytest.mark.nvml
@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("case", ALONE)
def test_a_real_job_is_named_right_in_time(
    case: str, results: Results, nvml_dir: Path, is_rerun: bool
) -> None:
    right(case, results, nvml_dir, calm=True, is_rerun=is_rerun)


@pytest.mark.nvml
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.xdist_group("waiting-jobs")
@pytest.mark.parametrize("case", WAITING)
def test_a_real_job_that_waits_is_named_right_whatever_else_runs(
    case: str, results: Results, nvml_dir: Path, is_rerun: bool
) -> None:
    right(case, results, nvml_dir, calm=False, is_rerun=is_rerun)


# --- the judge itself -----------------------------------------------------------------------------------------------


def _frames(*verdicts: str, cause: str | None = None) -> list[Frame]:
    """A frame a second, each with this verdict."""
    monitor = Monitor(1.0)
    frames = []
    for second, verdict in enumerate(verdicts):
        frame = monitor.feed(snap(second, gpu(util=40.0)))
        (d,) = frame.diagnoses
        frames.append(replace(frame, diagnoses=(_said(d, verdict, cause),)))
    return frames


def _said(d: GpuDiagnosis, verdict: str, cause: str | None) -> GpuDiagnosis:
    return replace(d, verdict=verdict, cause=cause, evidence=("4 workers wait for a lock",))


def _problems(case: Case, frames: list[Frame]) -> tuple[str, ...]:
    return judged("a case", case, 0, frames).problems


def test_the_judge_takes_what_is_right_in_time() -> None:
    case = Case(("dataloader_cpu",), ("cpu",), says=("a Lock",))
    frames = _frames(
        *["collecting"] * 10, *["starved_unattributed"] * 5, *["dataloader_cpu"] * 30, cause="cpu"
    )
    assert _problems(case, frames) == ()


def test_the_judge_sees_what_is_wrong_late_wavering_or_not_said() -> None:
    right = ["dataloader_cpu"] * 20
    case = Case(("dataloader_cpu",), ("cpu",))
    assert _problems(case, _frames(*["main_process"] * 45)) == ("said main_process",)
    assert _problems(case, _frames(*["collecting"] * 40, *right, cause="cpu")) == (
        "right after 40 s",
    )
    assert _problems(case, _frames(*right, "main_process", *right, cause="cpu")) == ("2 flaps",)
    assert _problems(case, _frames(*right, cause="disk")) == ("cause disk, wanted cpu",)
    assert _problems(Case(("dataloader_cpu",), feeders=2), _frames(*right)) == ("0 of 2 feeders",)
    assert _problems(Case(("dataloader_cpu",), says=("network",)), _frames(*right)) == (
        "does not say 'network'",
    )
    assert _problems(Case(("dataloader_cpu",), uneven=True), _frames(*right)) == ("even",)


def test_on_a_crowded_machine_the_judge_asks_for_what_is_right_and_not_when() -> None:
    late = _frames(*["collecting"] * 40, *["dataloader_cpu"] * 20)
    case = Case(("dataloader_cpu",))
    assert judged("a case", case, 0, late).problems == ("right after 40 s",)
    assert judged("a case", case, 0, late, calm=False).problems == ()
    wavers = _frames(*["main_process"] * 20, *["dataloader_cpu"] * 20)
    assert judged("a case", case, 0, wavers, calm=False).problems == ("1 flaps",)
