"""The loader benchmark on PyTorch's own DataLoader, in children: known costs, failures in words."""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import ran

SETS = """
import os, signal, time
import torch
from torch.utils.data import DataLoader, Dataset
class Sleeps(Dataset):
    def __len__(self): return 4000
    def __getitem__(self, i): time.sleep(0.002); return torch.zeros(4)
def sleeps(): return DataLoader(Sleeps(), batch_size=16)
class Raises(Sleeps):
    def __getitem__(self, i): raise KeyError("sample %d\\x1b[31m" % i)
def raises(): return Raises()
class Dies(Sleeps):
    def __getitem__(self, i): os.kill(os.getpid(), signal.SIGKILL)
def dies(): return Dies()
class Nothing(Sleeps):
    def __len__(self): return 0
def nothing(): return Nothing()
class Hangs(Sleeps):
    def __getitem__(self, i): time.sleep(1e6)
def hangs(): return Hangs()
def no_data(): return 7
class Big(Sleeps):
    def __getitem__(self, i): return torch.zeros(2_000_000)
def big(): return DataLoader(Big(), batch_size=4)
class Grows(Sleeps):
    kept = []
    def __getitem__(self, i):
        self.kept.append(b"x" * (128 << 20)); return torch.zeros(4)
def grows(): return Grows()
def cuda():
    torch.cuda.is_initialized = lambda: True
    return Sleeps()
"""


def needs_torch() -> None:
    """Not by importing it: that takes seconds, and half a gigabyte of whoever runs the tests."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    needs_torch()
    (tmp_path / "sets.py").write_text(SETS)
    return tmp_path


def loader(
    folder: Path, name: str, *more: str, before: tuple[str, ...] = ()
) -> tuple[int, dict[str, Any], str]:
    words = ("-m", "gputop", "loader", f"sets:{name}", "--json", *more)
    done = ran(folder, *words, launcher=(*before, sys.executable))
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def slept_ms(samples: int, sleep_s: float) -> float:
    """What so many sleeps take on this machine, now: a virtual one wakes up late, and not always equally late."""
    took = []
    for _ in range(30):
        begun = time.perf_counter()
        for _ in range(samples):
            time.sleep(sleep_s)
        took.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(took)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.torch
def test_a_loader_of_known_cost_is_measured_right_and_its_answer_holds(sets: Path) -> None:
    before = slept_ms(16, 0.002)
    code, found, _ = loader(sets, "sleeps", "--workers", "0,2,4", "--step", f"{before * 0.9:.1f}ms")
    assert code == 0
    by_workers = {each["workers"]: each["batch_ms"] for each in found["rows"]}
    truth = sorted((before, slept_ms(16, 0.002)))
    assert truth[0] * 0.8 <= by_workers[0] <= truth[1] * 1.25, truth
    assert by_workers[2] == pytest.approx(by_workers[0] / 2, rel=0.25)
    assert found["best"]["workers"] == 2 and found["best"]["batch_ms"] <= found["need_ms"]
    crowded = (found["room"]["psi_cpu_pct"] or 0.0) > 20.0
    assert ("unsure" in found["conclusion"]) == crowded and (
        not crowded or found["confidence"] == "low"
    )


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("raises", (), "KeyError"),
        ("dies", ("--workers", "0"), "SIGKILL, as the system does when memory runs out"),
        ("dies", ("--workers", "2"), "exited unexpectedly"),
        ("nothing", (), "the dataset is empty"),
        # Where PyTorch takes half a minute to be imported, beside other tests, no row is begun.
        pytest.param(
            "hangs",
            ("--workers", "0", "--budget", "30s"),
            "no answer within",
            marks=pytest.mark.alone,
        ),
    ],
)
def test_what_goes_wrong_in_a_dataset_is_a_row_in_words(
    sets: Path, name: str, more: tuple[str, ...], words: str
) -> None:
    code, found, errors = loader(sets, name, *more)
    assert code == 1 and found["best"] is None
    assert all(words in each["failed"] and "\x1b" not in each["failed"] for each in found["rows"])
    assert "Traceback" not in errors


@pytest.mark.slow
@pytest.mark.torch
def test_where_cuda_is_in_use_nothing_is_forked(sets: Path) -> None:
    """CUDA does not survive a fork: PyTorch says "Cannot re-initialize CUDA in forked subprocess"."""
    code, _, errors = loader(sets, "cuda", "--workers", "0")
    assert code == 2 and "CUDA is in use" in errors and errors.count("\n") == 1


@pytest.mark.slow
@pytest.mark.torch
def test_shared_memory_that_is_too_small_is_a_row_that_says_so(sets: Path) -> None:
    own = (
        "unshare",
        "-m",
        "sh",
        "-c",
        'mount -t tmpfs -o size=4m none /dev/shm && exec "$@"',
        "sh",
    )
    if subprocess.run([*own, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace of one's own is allowed here")
    code, found, _ = loader(sets, "big", "--workers", "2", before=own)
    assert code == 1 and "enlarge /dev/shm" in found["rows"][0]["failed"], found["rows"]
    assert any("/dev/shm has" in note for note in found["notes"])
