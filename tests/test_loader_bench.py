"""How many workers a loader needs: what is measured, when it is enough, and what ends a row and not the session."""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gputop.api.batch_search import is_out_of_memory
from gputop.loader_bench import bench, plan, stretch
from gputop.loader_bench.report import LoaderReport, loader_text
from gputop.loader_bench.restart import Restart, measure_restart
from gputop.loader_bench.rows import Room, Row, Setting, Shares
from gputop.loader_bench.stretch import Empty, measure
from tests.bench.loader import Round, Sleeps, judged, late_of, rounds_of

ROOT = Path(__file__).parent.parent
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
    assert 10 <= measure(wild.begin, 0, 0, wild.clock).batches <= 30, "4 s, and what it came to is said"
    slow = Queue(queued=0, batch_s=5.0)
    assert measure(slow.begin, 0, 0, slow.clock).batches == 4, "batches of seconds are not waited for eight times"


def test_the_benchmark_s_judge_tells_right_from_wrong_and_says_where_it_cannot() -> None:
    assert judged([Round(8.0, 8.2, 8.0)] * 5).word == "right"
    assert judged([Round(8.0, 7.0, 8.0)] * 5).word == "wrong", "batches out of the queue were counted"
    assert judged([Round(8.0, 8.5, 8.0)] * 5).word == "wrong"
    assert judged([Round(8.0, 8.0, 10.0), Round(10.0, 10.0, 6.0), Round(6.0, 9.0, 8.0)]).word == "unsure"
    alone = [Round(8.0, 8.0, 8.0), Round(8.0, 16.0, 8.1), Round(8.1, 8.1, 8.0)]
    assert judged(alone).word == "right", "one round beside a neighbour does not decide"


def test_the_judge_tells_late_batches_from_what_taking_one_costs() -> None:
    full = [1.4, 1.6] * 30
    ready = late_of([1.5] * 100, full, 25.0)
    assert ready.waits_pct == pytest.approx(5.66, abs=0.01)
    assert ready.late_pct == pytest.approx(0.0, abs=1e-9) and ready.word == "right"
    starving = late_of([1.5] * 50 + [30.0] * 50, full, 25.0)
    assert starving.late_pct == pytest.approx(35.0, abs=0.5) and starving.word == "wrong", "half of the batches is late"
    crowded = late_of([1.5] * 97 + [90.0] * 3, [1.5] * 59 + [90.0], 25.0)
    assert crowded.late_pct > 0.0 and crowded.error_pct > crowded.late_pct, "who waits is held up by others"
    assert late_of([1.5] * 95 + [60.0] * 5, [1.5] * 59 + [90.0], 25.0).word in ("right", "unsure")


class Filled(Queue):
    """A queue that pauses fill: a batch that is ready still takes 3 ms to be taken."""

    ready, paused = 0.0, 0.0

    def begin(self) -> Iterator[int]:
        for i in range(self.length):
            late = self.batch_s if self.ready < 1.0 else 0.0
            self.ready = max(0.0, self.ready - 1.0)
            self.now += late + 0.003
            yield i

    def pause(self, seconds: float) -> None:
        self.paused += seconds
        self.now += seconds
        self.ready = min(8.0, self.ready + seconds / self.batch_s)


def test_taking_a_batch_is_timed_with_a_full_queue_and_said_where_it_is_much_of_a_step() -> None:
    filled = Filled(queued=0, batch_s=0.02)
    found = measure(filled.begin, 4, 2, filled.clock, pause=filled.pause)
    assert found.batch_s == pytest.approx(0.023) and found.take_s == pytest.approx(0.003)
    assert filled.paused < 1.5
    assert measure(filled.begin, 4, 2, filled.clock).take_s is None, "not asked"
    slow = Filled(queued=0, batch_s=0.5)
    assert measure(slow.begin, 4, 2, slow.clock, pause=slow.pause).take_s is None and slow.paused == 0.0
    short = Filled(queued=0, batch_s=0.02, length=1)
    assert measure(short.begin, 1, 2, short.clock, pause=short.pause).take_s is None, "each batch begins a pass"

    room, waits = Room(8, None, None, None), Shares(0.1, 0.0, 0.0, 0.0)
    dear, bound = row(2, 12.0, shares=waits, take_ms=3.0), row(2, 5.0, shares=waits, take_ms=3.0)
    said = plan.taking_of(dear, 40.0)
    assert said.startswith("taking a batch costs the loop 3.0 ms of each step of 40 ms even when it is ready")
    assert "pin_memory=True" in said and not plan.taking_of(dear, 61.0), "a twentieth of a step goes unnoticed"
    assert not plan.taking_of(dear, None) and not plan.taking_of(row(2, 12.0), 40.0) and not plan.taking_of(None, 40.0)
    assert "costs the loop 3.0 ms even" in plan.taking_of(bound, None)
    assert "more workers do not help" in plan.why_of(bound, room) and "more of them help" in plan.why_of(dear, room)


def test_short_passes_are_begun_anew_and_an_empty_loader_is_said() -> None:
    short = Queue(queued=0, batch_s=0.01, length=9)
    assert measure(short.begin, 2, 2, short.clock).batch_s == pytest.approx(0.01, rel=0.05)
    with pytest.raises(Empty):
        measure(Queue(0, 0.01, length=0).begin, 0, 0, lambda: 0.0)


def unfolded(report: LoaderReport) -> str:
    return " ".join(loader_text(report).split())


def row(workers: int, ms: float | None, memory: float | None = None, **given: Any) -> Row:
    return Row(plan.setting_of(workers), ms, 1.0, 0.1, 20, memory, **given)


def test_the_answer_is_the_smallest_setting_that_is_fast_enough() -> None:
    rows = [row(0, 68.0), row(1, 68.0), row(2, 34.0), row(4, 17.0), row(8, 8.7)]
    assert plan.answer(rows, 0.8 * 44).setting.workers == 2  # type: ignore[union-attr]
    assert plan.answer(rows, None).setting.workers == 8  # type: ignore[union-attr]
    assert plan.answer(rows, 1.0).setting.workers == 8, "where none is enough, the best"  # type: ignore[union-attr]
    assert plan.answer([row(0, None)], None) is None
    # Without workers nothing is loaded while the step runs: 30 ms in a step of 40 would be 43 % of the loop.
    assert plan.answer([row(0, 30.0), row(1, 31.0)], 0.8 * 40).setting.workers == 1  # type: ignore[union-attr]
    assert plan.answer([row(0, 30.0), row(1, 31.0)], None).setting.workers == 1  # type: ignore[union-attr]
    assert plan.answer([row(0, 1.9), row(1, 2.5)], 0.8 * 40).setting.workers == 0  # type: ignore[union-attr]
    assert not plan.is_enough(rows, None)
    assert plan.is_enough([*rows, row(16, 8.6), row(32, 8.5)], None)
    assert plan.is_enough(rows[:3], 40.0)
    assert plan.knee(rows, 0.8 * 25) == [3]
    assert plan.is_enough([row(0, 1.9)], 0.8 * 40) and not plan.is_enough([row(0, 30.0)], 0.8 * 40)
    assert plan.doublings(3) == [0, 1, 2, 4] and plan.doublings(100)[-1] == 32
    assert plan.setting_of(4, 4).kwargs == {"num_workers": 4, "prefetch_factor": 4, "persistent_workers": True}
    assert plan.setting_of(0).kwargs == {"num_workers": 0}
    for bad in (-1, "many", [], [999]):
        with pytest.raises(ValueError):
            plan.worker_counts(bad, 4)  # type: ignore[arg-type]


def test_a_setting_that_would_not_fit_is_foretold_from_what_was_measured() -> None:
    rows = [row(0, 68.0, 2 * GIB), row(4, 17.0, 10 * GIB)]
    assert plan.memory_of(rows, 16) == pytest.approx(34 * GIB)
    assert plan.memory_of(rows[:1], 16) is None
    assert plan.too_much(34 * GIB, 32 * GIB, 0.7) == "not run: would need 34.0 of 32.0 GiB free (70 % at most)"


def test_the_report_says_why_and_what_to_paste() -> None:
    room = Room(8, 32 * GIB, 16 * GIB, 3.0)
    best = row(4, 17.0, 1.5 * GIB, shares=Shares(0.92, 0.02, 0.01, 0.0))
    rows = (row(0, 68.0), best, Row(Setting(8, 2), failed="not run: would need\x1b 34"))
    said = plan.conclusion_of(best, rows, 25.0, 20.0)
    report = LoaderReport(rows, best, said, plan.why_of(best, room), 64, 25.0, 20.0, room, "high", (), 3.0)
    text = loader_text(report)
    assert "4 workers are enough: 17.0 ms a batch, and your step takes 25 ms; more gain nothing" in text
    assert "CPU-bound: more workers help up to 8 cores" in unfolded(report) and max(map(len, text.splitlines())) <= 100
    assert "help" not in plan.why_of(best, room, 20.0), "nothing more is needed where it is fast enough"
    assert "→ DataLoader(dataset, batch_size=64, num_workers=4, prefetch_factor=2, persistent_workers=True)" in text
    assert "\x1b" not in text and loader_text(report, ascii_only=True).isascii()
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert data["best"]["kwargs"]["num_workers"] == 4 and data["schema"] == 1
    assert "disk-bound" in plan.why_of(row(4, 9.0, shares=Shares(0.1, 0.0, 0.7, 0.0)), room)
    assert "not enough cores" in plan.why_of(row(4, 9.0, shares=Shares(0.5, 0.4, 0.0, 0.0)), room)


def test_epochs_are_timed_from_the_second_one_on_with_workers_that_stay_and_without() -> None:
    now = [0.0]

    class Loader:
        def __init__(self, kept: bool) -> None:
            self.kept, self.passes = kept, 0

        def __iter__(self) -> Iterator[int]:
            self.passes += 1
            # The first pass opens files, which is no cost of an epoch.
            now[0] += 5.0 if self.passes == 1 else 0.2 if self.kept else 1.3
            yield from range(3)

    found = measure_restart(Loader, lambda: now[0])
    assert (found.kept_s, found.anew_s) == (pytest.approx(0.2), pytest.approx(1.3))
    assert found.words(90).endswith(
        "0.2 s with persistent_workers, 1.3 s without: 1.1 s saved an epoch, 1 min over 90 epochs"
    )
    small = Restart(0.02, 0.03)
    assert "not worth keeping the workers" in small.words(None) and not small.is_worth_it


def test_what_is_pinned_and_kept_follows_from_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted rows in the place of children: pinning is advised where it costs nothing, and told where it does."""

    def answered(pinned_ms: float | None, restart: Restart | None) -> LoaderReport:
        def measured(_loadable: Any, setting: Setting, _seed: int, **_given: Any) -> Row:
            ms = pinned_ms if setting.pin_memory else 60.0 / max(1, setting.workers)
            return Row(setting, ms, 1.0, 0.1, 20, None, failed=None if ms else "no CUDA")

        monkeypatch.setattr(bench, "measured_row", measured)
        monkeypatch.setattr(bench, "measured_restart", lambda *_a, **_k: restart)
        monkeypatch.setattr(bench.Loadable, "may_pin", property(lambda _self: True))
        return bench.dataloader_bench([1, 2, 3], workers=[0, 2], step_ms=40.0, epochs=3)

    free = answered(30.5, Restart(0.1, 0.9))
    assert free.best is not None and free.best.kwargs == {
        "num_workers": 2, "prefetch_factor": 2, "persistent_workers": True, "pin_memory": True,
    }  # fmt: skip
    assert "costs no time" in free.notes[0] and "0.8 s saved an epoch, 2 s over 3 epochs" in unfolded(free)
    dear = answered(48.0, Restart(0.02, 0.03))
    assert dear.best is not None and "pin_memory" not in dear.best.kwargs
    assert dear.best.kwargs["persistent_workers"] is False and "makes a batch slower" in dear.notes[0]
    assert any(line.startswith("→ 2 ") for line in loader_text(dear).splitlines()), "the row is marked all the same"
    none = answered(None, None)
    assert none.best is not None and "could not be measured: no CUDA" in none.notes[0]
    assert json.loads(json.dumps(free.to_dict()))["restart"] == {"kept_s": 0.1, "anew_s": 0.9, "saved_s": 0.8}
    with pytest.raises(ValueError, match="epochs"):
        bench.dataloader_bench([1], epochs=0)


def test_frameworks_say_in_their_own_words_that_memory_ran_out() -> None:
    class OutOfMemoryError(RuntimeError): ...

    assert is_out_of_memory(OutOfMemoryError("x")) and is_out_of_memory(MemoryError())
    assert is_out_of_memory(RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate"))
    assert is_out_of_memory(RuntimeError("CUDA error: out of memory"))
    assert not is_out_of_memory(RuntimeError("the room is too small"))


SETS = """
import os, signal, time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
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
class Stream(IterableDataset):
    def __iter__(self):
        for i in range(200): time.sleep(0.001); yield torch.zeros(4)
def stream(): return DataLoader(Stream(), batch_size=8)
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
class Locked(Sleeps):
    def __init__(self): self.key = lambda: 0
def on_cuda(made):
    torch.cuda.is_initialized = lambda: True
    return made
def cuda(): return on_cuda(Sleeps())
def cuda_locked(): return on_cuda(Locked())
"""
STEPS = """
def make_step():
    kept = []
    def step(size):
        if size > 48: raise RuntimeError("CUDA out of memory. Tried to allocate")
        kept.append(size)
    return step
def make_greedy():
    def step(size):
        # Real memory, of a process that may not have more.
        kept = bytearray(size << 20)
        for at in range(0, len(kept), 4096): kept[at] = 1
    return step
def make_broken():
    raise ValueError("no model")
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


def loader(folder: Path, name: str, *more: str, before: tuple[str, ...] = ()) -> tuple[int, dict[str, Any], str]:
    done = subprocess.run(
        [*before, sys.executable, "-m", "gputop", "loader", f"sets:{name}", "--json", *more],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
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
    assert ("unsure" in found["conclusion"]) == crowded and (not crowded or found["confidence"] == "low")


@pytest.mark.slow
@pytest.mark.torch
def test_batches_out_of_a_queue_that_had_time_to_fill_are_found_by_the_benchmark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needs_torch()
    timed = stretch._block

    def after_a_pause(batches: Any, size: int, clock: Any) -> float:
        time.sleep(0.1)
        return timed(batches, size, clock)

    monkeypatch.setattr(stretch, "_block", after_a_pause)
    found = judged(rounds_of(Sleeps(), 2, 2, 0.5))
    assert found.off_pct < -50.0, found


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("raises", (), "KeyError"),
        ("dies", ("--workers", "0"), "killed"),
        ("dies", ("--workers", "2"), "exited unexpectedly"),
        ("nothing", (), "the dataset is empty"),
        ("hangs", ("--workers", "0", "--budget", "5s"), "no answer within 5 s"),
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
@pytest.mark.alone
@pytest.mark.torch
def test_an_iterable_of_unknown_length_is_measured_over_many_passes(sets: Path) -> None:
    before = slept_ms(8, 0.001)
    code, found, _ = loader(sets, "stream", "--workers", "0")
    truth = sorted((before, slept_ms(8, 0.001)))
    assert code == 0 and truth[0] * 0.8 <= found["rows"][0]["batch_ms"] <= truth[1] * 1.35, truth


@pytest.mark.slow
@pytest.mark.torch
def test_where_cuda_is_in_use_nothing_is_forked_and_what_cannot_be_handed_over_is_measured_here(sets: Path) -> None:
    """CUDA does not survive a fork: PyTorch says "Cannot re-initialize CUDA in forked subprocess"."""
    code, found, _ = loader(sets, "cuda", "--workers", "0")
    assert code == 0 and not any("CUDA" in note for note in found["notes"])
    assert found["rows"][0]["memory_bytes"] is not None, "it was measured in a child, whose memory was read"
    code, found, _ = loader(sets, "cuda_locked", "--workers", "0")
    assert code == 0 and "measured in this process: CUDA is in use here" in found["notes"][0]


@pytest.mark.slow
@pytest.mark.torch
def test_shared_memory_that_is_too_small_is_a_row_that_says_so(sets: Path) -> None:
    own = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=4m none /dev/shm && exec "$@"', "sh")
    if subprocess.run([*own, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace of one's own is allowed here")
    code, found, _ = loader(sets, "big", "--workers", "2", before=own)
    assert code == 1 and "enlarge /dev/shm" in found["rows"][0]["failed"], found["rows"]
    assert any("/dev/shm has" in note for note in found["notes"])


@pytest.mark.slow
@pytest.mark.torch
def test_a_dataset_that_takes_all_memory_ends_its_row_and_not_the_benchmark(sets: Path) -> None:
    group = Path("/sys/fs/cgroup/memory", f"gputop-test-{os.getpid()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(1 << 30))
    except OSError:
        pytest.skip("no memory control group of one's own is allowed here")
    try:
        own = ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
        code, found, errors = loader(sets, "grows", "--workers", "0", before=own)
        assert code == 1, errors
        (each,) = found["rows"]
        assert any(words in each["failed"] for words in ("killed", "of the free memory", "MemoryError")), each
    finally:
        group.rmdir()


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("no_data", (), "is neither a dataset nor a DataLoader"),
        ("absent", (), "has no function absent"),
        ("sleeps", ("--workers", "x"), "--workers must be numbers"),
        ("sleeps", ("--step", "0ms"), "--step must be a time"),
        ("sleeps", ("--epochs", "0"), "--epochs must be 1 or more"),
    ],
)
def test_what_cannot_be_asked_is_one_line(sets: Path, name: str, more: tuple[str, ...], words: str) -> None:
    code, _, errors = loader(sets, name, *more)
    assert code == 2 and words in errors and errors.count("\n") == 1


@pytest.mark.slow
def test_the_largest_batch_is_found_by_halves_in_fresh_processes(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    code = (
        "import gputop, steps\n"
        "if __name__ == '__main__':\n"
        "    found = gputop.max_batch(steps.make_step, range(8, 129, 8))\n"
        "    assert (found.best, found.advised) == (48, 43), found\n"
        "    assert len(found.tried) <= 6, found\n"
        "    broken = gputop.max_batch(steps.make_broken, [1, 2])\n"
        "    assert broken.best is None and 'no model' in str(broken), broken\n"
        "    import resource\n"
        "    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "    greedy = gputop.max_batch(steps.make_greedy, [128, 256, 4096, 8192])\n"
        "    assert greedy.best == 256, greedy\n"
        "    assert {t.fate for t in greedy.tried if t.size > 256} == {'out of memory'}, greedy\n"
        "    for bad in (lambda: None,):\n"
        "        try: gputop.max_batch(bad)\n"
        "        except ValueError as error: assert 'function of a module' in str(error)\n"
    )
    (tmp_path / "run.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "run.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
