"""How many workers a loader needs: what is measured, when it is enough, and what ends a row and not the session."""

from __future__ import annotations

import ast
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gputop.features.loader_bench import job_python, job_side, plan
from gputop.features.loader_bench.bench_report import (
    BenchRow,
    LoaderReport,
    LoaderSetting,
    Room,
    Shares,
    loader_document,
)
from gputop.features.loader_bench.job_side import EmptyLoaderError, measure
from gputop.model.source import UsageError
from gputop.output.plain_document import plain
from tests.support.command import ran
from tests.support.seldom import quick_ones

GIB = 2.0**30


class Queue:
    """A loader whose workers fill a queue while nobody asks: the time of each batch, by hand."""

    def __init__(self, queued: int, batch_s: float, length: int = 10**9) -> None:
        self.now, self.batch_s, self.queued, self.length = 0.0, batch_s, queued, length

    def clock(self) -> float:
        return self.now

    def begin(self) -> Iterator[int]:
        for i in range(self.length):
            if i >= self.queued + 1:
                self.now += self.batch_s
            yield i


class Uneven(Queue):
    """Batches of two lengths in turn."""

    def __init__(self, least: float = 0.018, most: float = 0.022) -> None:
        super().__init__(0, 0.0)
        self.lengths = (least, most)

    def begin(self) -> Iterator[int]:
        for i in range(self.length):
            self.now += self.lengths[i % 2]
            yield i


def test_what_lies_in_the_queue_is_no_part_of_the_measurement() -> None:
    queue = Queue(queued=4 * 2, batch_s=0.008)
    found = measure(queue.begin, 4, 2, queue.clock)
    assert found.batch_s == pytest.approx(0.008)
    assert found.error_pct == pytest.approx(0.0, abs=1e-6)
    assert found.batches == 64, "half a second of rounds of the workers is enough where they agree"


def test_a_measurement_goes_on_until_it_is_sure_or_out_of_time() -> None:
    uneven = Uneven()
    found = measure(uneven.begin, 0, 0, uneven.clock)
    assert found.error_pct <= 3.0 and found.batches > 25, "after half a second it is not sure yet"
    assert found.batch_s == pytest.approx(0.02, rel=0.05)
    wild = Uneven(least=0.0, most=0.4)
    assert 10 <= measure(wild.begin, 0, 0, wild.clock).batches <= 30, (
        "4 s, and what it came to is said"
    )
    slow = Queue(queued=0, batch_s=5.0)
    assert measure(slow.begin, 0, 0, slow.clock).batches == 4, (
        "batches of seconds are not waited for eight times"
    )


def test_short_passes_are_begun_anew_and_an_empty_loader_is_said() -> None:
    short = Queue(queued=0, batch_s=0.01, length=9)
    assert measure(short.begin, 2, 2, short.clock).batch_s == pytest.approx(0.01, rel=0.05)
    with pytest.raises(EmptyLoaderError):
        measure(Queue(0, 0.01, length=0).begin, 0, 0, lambda: 0.0)


def unfolded(report: LoaderReport) -> str:
    return " ".join(str(report).split())


def row(workers: int, ms: float | None, memory: float | None = None, **given: Any) -> BenchRow:
    return BenchRow(plan.setting_of(workers), ms, 1.0, 0.1, 20, memory, **given)


def test_the_answer_is_the_smallest_setting_that_is_fast_enough() -> None:
    rows = [row(0, 68.0), row(1, 68.0), row(2, 34.0), row(4, 17.0), row(8, 8.7)]
    assert plan.choose(rows, 0.8 * 44).setting.workers == 2  # type: ignore[union-attr]
    assert plan.choose(rows, None).setting.workers == 8  # type: ignore[union-attr]
    assert plan.choose(rows, 1.0).setting.workers == 8, "where none is enough, the best"  # type: ignore[union-attr]
    assert plan.choose([row(0, None)], None) is None
    # Without workers nothing is loaded while the step runs: 30 ms in a step of 40 would be 43 % of the loop.
    assert plan.choose([row(0, 30.0), row(1, 31.0)], 0.8 * 40).setting.workers == 1  # type: ignore[union-attr]
    assert plan.choose([row(0, 30.0), row(1, 31.0)], None).setting.workers == 1  # type: ignore[union-attr]
    assert plan.choose([row(0, 1.9), row(1, 2.5)], 0.8 * 40).setting.workers == 0  # type: ignore[union-attr]
    assert not plan.is_enough(rows, None)
    assert plan.is_enough([*rows, row(16, 8.6), row(32, 8.5)], None)
    assert plan.is_enough(rows[:3], 40.0)
    assert plan.is_enough([row(0, 1.9)], 0.8 * 40) and not plan.is_enough([row(0, 30.0)], 0.8 * 40)
    assert plan.doublings(3) == [0, 1, 2, 4] and plan.doublings(100)[-1] == 32
    assert plan.setting_of(4, 4).kwargs == {
        "num_workers": 4,
        "prefetch_factor": 4,
        "persistent_workers": True,
    }
    assert plan.setting_of(0).kwargs == {"num_workers": 0}
    for bad in (-1, "many", [], [999]):
        with pytest.raises(ValueError):
            plan.worker_counts(bad, 4)  # type: ignore[arg-type]


def test_the_report_says_why_and_what_to_paste() -> None:
    room = Room(8, 32 * GIB, 16 * GIB, 3.0)
    best = row(4, 17.0, 1.5 * GIB, shares=Shares(0.92, 0.02, 0.01, 0.0))
    rows = (row(0, 68.0), best, BenchRow(LoaderSetting(8, 2), failed="not run: would need\x1b 34"))
    said = plan.conclusion_of(best, rows, 25.0, 20.0)
    report = LoaderReport(
        rows, best, said, plan.limit_of(best, room), 64, 25.0, 20.0, room, "high", (), 3.0
    )
    text = str(report)
    assert (
        "4 workers are enough: 17.0 ms a batch, and your step takes 25 ms; more gain nothing"
        in text
    )
    assert (
        "CPU-bound: more workers help up to 8 cores" in unfolded(report)
        and max(map(len, text.splitlines())) <= 100
    )
    assert "help" not in plan.limit_of(best, room, 20.0), (
        "nothing more is needed where it is fast enough"
    )
    assert (
        "→ DataLoader(dataset, batch_size=64, num_workers=4, prefetch_factor=2, persistent_workers=True)"
        in text
    )
    assert "\x1b" not in text and plain(loader_document(report), is_ascii=True).isascii()
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert data["best"]["kwargs"]["num_workers"] == 4 and data["schema"] == 1
    assert "disk-bound" in plan.limit_of(row(4, 9.0, shares=Shares(0.1, 0.0, 0.7, 0.0)), room)
    assert "not enough cores" in plan.limit_of(row(4, 9.0, shares=Shares(0.5, 0.4, 0.0, 0.0)), room)


FUNCTIONS = """
import os, re, signal, sys, time
def prints():
    print("from the function")
    return 7
def raises(): raise ValueError("first\\x1b[31m\\nsecond")
def exits(): sys.exit(5)
def hangs():
    while True: pass
def sleeps(): time.sleep(600)
def swallows():
    while True:
        try: time.sleep(1)
        except BaseException: pass
def ignores():
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    re.fullmatch("(a+)+b", "a" * 60)
class Answers:
    def __getattr__(self, name): swallows()
def answers(): return Answers()
def leaves(): os._exit(0)
def crashes(): os.kill(os.getpid(), signal.SIGKILL)
class Rude(Exception):
    def __str__(self): raise ValueError("x")
def rude(): raise Rude
class Ending(BaseException):
    def __str__(self): raise SystemExit(0)
def ending(): raise Ending
"""


TORCH = """
class DataLoader:
    batch_sampler, batch_size, num_workers = None, 2, 0
    def __init__(self, dataset, **more): self.dataset, self.sampler = dataset, more.get("sampler")
    def __iter__(self):
        for i in self.sampler: yield self.dataset[i]
class IterableDataset: pass
"""


def add_torch(folder: Path) -> None:
    """Make a PyTorch without weight: importing the true one takes seconds."""
    for package in ("torch", "torch/utils"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").touch()
    (folder / "torch" / "__init__.py").write_text(
        "class cuda: is_initialized = staticmethod(lambda: False)"
    )
    (folder / "torch" / "utils" / "data.py").write_text(TORCH)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sets.py").write_text(FUNCTIONS)
    add_torch(tmp_path)
    return tmp_path


def _loader(folder: Path, name: str, *more: str, **environment: str) -> tuple[int, str, str]:
    words = ("-m", "gputop", "loader", name, "--json", *more)
    done = ran(folder, *words, **{"VIRTUAL_ENV": sys.prefix, **environment})
    return done.returncode, done.stdout, done.stderr


def test_the_functions_output_is_not_mixed_into_the_json(folder: Path) -> None:
    code, out, errors = _loader(folder, "sets:prints")
    assert (code, out) == (2, "")
    said, problem = errors.splitlines()
    assert said == "from the function"
    assert problem.startswith("gputop: sets:prints: int is neither a dataset nor a DataLoader")


def _python(path: Path, start: str) -> Path:
    """Make a Python that is this one after these lines of shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\n{start}\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return path


def test_a_dataset_is_measured_in_the_jobs_python_where_gputops_has_no_torch(
    tmp_path: Path,
) -> None:
    """The job's Python is not gputop's, knows nothing of it, and imports the module once."""
    job, work = tmp_path / "job", tmp_path / "work"
    add_torch(job)
    work.mkdir()
    (work / "train.py").write_text(
        "import time, torch\nprint('imported')\n"
        "class Slow:\n"
        "    def __len__(self): return 9\n"
        "    def __getitem__(self, i): time.sleep(0.01); return i\n"
        "def make_dataset(): return Slow()\n"
    )
    its_python = _python(job / "bin" / "python", f"PYTHONPATH={job}; export PYTHONPATH")
    code, out, errors = _loader(work, "train:make_dataset", "--workers", "0", VIRTUAL_ENV=str(job))
    found = json.loads(out)
    assert (code, errors.count("imported")) == (0, 1), errors
    assert found["python"] == f"{its_python} (VIRTUAL_ENV)"
    assert found["best"]["batch_ms"] == pytest.approx(10.0, rel=0.5)
    assert found["best"]["memory_bytes"] > 1e6, "the processes of the other Python are sampled"


def test_the_jobs_python_is_the_first_that_can_import_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("venv", "conda", "early", "late")
    pythons = {name: str(_python(tmp_path / name / "bin" / "python", "")) for name in names}
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "conda"))
    monkeypatch.setenv("PATH", f"relative:{tmp_path}/early/bin:{tmp_path}/late/bin")
    without: set[str] = set()
    told = "ModuleNotFoundError: No module named 'torch'"
    monkeypatch.setattr(job_python, "why_no_torch", lambda path: told if path in without else None)
    chosen = []
    for name in (*names, None):
        chosen.append(job_python.find_job_python(None))
        without.add(sys.executable if name is None else pythons[name])
    assert [python.path for python in chosen] == [*pythons.values(), sys.executable]
    assert [python.named_by for python in chosen] == [
        "VIRTUAL_ENV", "CONDA_PREFIX", "PATH", "PATH", "gputop's own",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="no Python with PyTorch was found") as nothing:
        job_python.find_job_python(None)
    assert all(path in str(nothing.value) for path in pythons.values())
    assert job_python.find_job_python(pythons["late"]).named_by == "--python"
    with pytest.raises(UsageError, match="no program"):
        job_python.find_job_python(str(tmp_path / "none"))


def test_a_python_without_torch_says_so_in_its_own_words(tmp_path: Path) -> None:
    bare = _python(tmp_path / "python", 'set -- -S -I "$@"')
    assert job_python.why_no_torch(str(bare)) == "ModuleNotFoundError: No module named 'torch'"
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexit 3\n")
    silent.chmod(0o755)
    assert job_python.why_no_torch(str(silent)) == "import torch fails"


def test_the_measuring_code_needs_the_standard_library_alone() -> None:
    """It runs in a Python without gputop: all that it imports at its start is part of every Python."""
    tree = ast.parse(Path(job_side.__file__).read_text())
    modules = {
        name.split(".")[0]
        for node in tree.body
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import)
            else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        )
    }  # fmt: skip
    assert modules and modules <= sys.stdlib_module_names


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sets:raises", "sets:raises() raised ValueError: first"),
        pytest.param("sets:exits", "sets:exits() raised SystemExit: 5", marks=pytest.mark.slow),
        ("sets:rude", "sets:rude() raised Rude"),
        pytest.param("sets:ending", "sets:ending() raised Ending", marks=pytest.mark.slow),
        pytest.param(
            "sets:leaves",
            "sets:leaves() ended its process: it ended with status 0",
            marks=pytest.mark.slow,
        ),
        ("sets:crashes", "sets:crashes() ended its process: it was ended by SIGKILL"),
        ("sets:none", "sets has no function none"),
        ("nowhere:none", "nowhere cannot be imported"),
        ("sets", "must be MODULE:FUNCTION"),
    ],
)
def test_a_function_that_fails_ends_in_one_line(folder: Path, name: str, words: str) -> None:
    code, out, errors = _loader(folder, name)
    assert (code, out) == (2, "") and words in errors
    assert errors.count("\n") == 1 and "\x1b" not in errors


@pytest.mark.parametrize(
    "name", quick_ones(["hangs", "sleeps", "swallows", "ignores", "answers"], ["swallows"])
)
def test_the_function_has_no_more_time_than_the_budget(folder: Path, name: str) -> None:
    """Also one that catches every exception, or that hangs in C where no signal is heard."""
    begun = time.monotonic()
    code, out, errors = _loader(folder, f"sets:{name}", "--budget", "0.5s")
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert "has not returned within the budget of 0.5 s" in errors
    assert time.monotonic() - begun < 15.0
