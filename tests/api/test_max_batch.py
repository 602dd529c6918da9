"""The largest batch that trains: searched by halves, in fresh processes, and what stopped it is said."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.api import largest_batch
from gputop.api.batch_trial import is_out_of_memory
from gputop.api.largest_batch import TriedSize, report_of, search
from tests.cuda import stand_in as cuda_stand_in
from tests.support.command import ran

MIB = 2.0**20
ROOM = 1000.0 * MIB


def machine(largest: int, limit: largest_batch.Limit = "memory") -> Callable[[int], TriedSize]:
    """A job of 100 MiB and 10 MiB a sample, which is stopped above a size."""

    def tried(size: int) -> TriedSize:
        if size > largest:
            return TriedSize(size, limit, "its words")
        return TriedSize(size, None, "", 0.1, (100 + 10 * size) * MIB, "GPU", ROOM)

    return tried


@pytest.mark.parametrize("largest", [1, 2, 50, 63, 64, 89, 99, 100])
def test_the_largest_size_is_found_by_halves_from_one_side_to_the_other(largest: int) -> None:
    sizes = range(1, 101)
    outcomes = search(sizes, machine(largest))
    report = report_of(outcomes, 0.1, sizes)
    assert report.best == largest and len(outcomes) <= 8
    assert report.limit == ("high" if largest == 100 else "memory")
    assert report.next_size == largest + 1


def test_the_advice_leaves_the_headroom_and_tells_what_the_next_size_costs() -> None:
    sizes = range(8, 513, 8)
    report = report_of(search(sizes, machine(90)), 0.1, sizes)
    assert (report.best, report.next_size) == (88, 96)
    assert report.bytes_per_sample == 10 * MIB
    assert report.next_bytes == (100 + 960) * MIB
    assert report.advised == 80, "900 of 1000 MiB hold 80 samples"
    assert "use 80 (10 % of the memory free)" in str(report)
    assert "96 would take 1.0 GiB: 10 MiB for each sample" in str(report)
    assert report_of(search(sizes, machine(90)), 0.9, sizes).advised is None
    unknown = [TriedSize(8, None, "", 0.1), TriedSize(100, None, "", 0.1)]
    assert report_of(unknown, 0.1, range(4, 101, 4)).advised == 88, "0.9 of 100, a multiple of 4"
    assert json.loads(json.dumps(report.to_dict()))["tried"][0]["size"] == 8


@pytest.mark.parametrize("limit", ["time", "error", "memory"])
def test_the_report_says_which_limit_stopped_it(limit: largest_batch.Limit) -> None:
    sizes = range(1, 65)
    report = report_of(search(sizes, machine(20, limit)), 0.1, sizes)
    assert (report.limit, report.best) == (limit, 20)
    assert f"stopped by {limit}" in str(report) and "its words" in str(report)
    nothing = search(sizes, machine(0, limit))
    assert len(nothing) == 1, "what stops the smallest size stops all"
    assert "no size trains" in str(report_of(nothing, 0.1, sizes))


def test_out_of_memory_is_known_in_the_words_of_each_framework() -> None:
    class OutOfMemoryError(Exception):
        pass

    class Rude(Exception):
        def __str__(self) -> str:
            raise ValueError

    known = (
        "CUDA out of memory. Tried to allocate 20.00 GiB",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate",
        "std::bad_alloc",
        "[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory",
        "CUDA_ERROR_OUT_OF_MEMORY",
    )
    assert all(is_out_of_memory(RuntimeError(words)) for words in known)
    assert is_out_of_memory(MemoryError()) and is_out_of_memory(OutOfMemoryError())
    assert not is_out_of_memory(RuntimeError("shapes do not match")) and not is_out_of_memory(
        Rude()
    )


STEPS = """
import ctypes, mmap, resource, time
def host(size):
    # Real memory of a process that may not have more.
    soft = resource.getrlimit(resource.RLIMIT_AS)
    if soft[0] == resource.RLIM_INFINITY: limit()
    kept = bytearray(size << 20)
    for at in range(0, len(kept), 4096): kept[at] = 1
def limit():
    with open("/proc/self/statm") as statm: pages = int(statm.read().split()[0])
    most = pages * mmap.PAGESIZE + (100 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
def driver(size):
    cuda = ctypes.CDLL("libcuda.so.1")
    cuda.cuInit(0)
    address = ctypes.c_uint64()
    if cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size << 20)):
        raise RuntimeError("CUDA_ERROR_OUT_OF_MEMORY")
    return lambda: None
def slow(size):
    if size > 1: time.sleep(60)
def wrong(size):
    if size > 1: raise ValueError("shapes\\x1b[31m do not match")
"""


def found(folder: Path, call: str, **environment: str) -> dict[str, object]:
    (folder / "steps.py").write_text(STEPS)
    (folder / "run.py").write_text(
        "import gputop, json, steps\n"
        f"if __name__ == '__main__': print(json.dumps(gputop.max_batch({call}).to_dict()))\n"
    )
    done = ran(folder, "run.py", **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_memory_limit_stops_a_fresh_process_and_not_the_caller(tmp_path: Path) -> None:
    report = found(tmp_path, "steps.host, 16, 256, multiple_of=80, steps=1")
    assert (report["best"], report["limit"], report["next_size"]) == (80, "memory", 160)
    assert "MemoryError" in str(report["reason"])
    (largest,) = [tried for tried in report["tried"] if tried["size"] == 80]  # type: ignore[attr-defined]
    assert 80 * MIB < largest["memory_bytes"] < 200 * MIB and largest["memory_of"] == "host"


def test_the_drivers_out_of_memory_stops_the_search_at_its_size(tmp_path: Path) -> None:
    cuda_stand_in.build(tmp_path)
    (tmp_path / "cuda").write_text(f"memory {300 << 20}\n")
    report = found(
        tmp_path, "steps.driver, 100, 400, multiple_of=100", LD_LIBRARY_PATH=str(tmp_path),
        CUDA_STAND_IN=str(tmp_path / "cuda"),
    )  # fmt: skip
    assert (report["best"], report["limit"], report["advised"]) == (300, "memory", 200)
    assert report["bytes_per_sample"] == MIB and report["next_bytes"] == 400 * MIB
    assert {tried["memory_of"] for tried in report["tried"] if not tried["limit"]} == {"GPU"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("call", "limit", "words"),
    [
        ("steps.slow, 1, 2, timeout_s=0.7", "time", "no answer within 0.7 s"),
        ("steps.wrong, 1, 2", "error", "ValueError: shapes?[31m do not match"),
    ],
)
def test_a_step_that_hangs_or_fails_is_told_in_words(
    tmp_path: Path, call: str, limit: str, words: str
) -> None:
    report = found(tmp_path, call)
    assert (report["best"], report["limit"], report["reason"]) == (1, limit, words)


def test_a_call_that_nothing_guards_is_explained(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(
        "import gputop\ndef step(size): pass\ngputop.max_batch(step, 1, 2)\n"
    )
    done = ran(tmp_path, "run.py")
    assert 'under `if __name__ == "__main__":`' in done.stderr


def test_wrong_arguments_are_refused_before_anything_is_tried() -> None:
    for arguments, words in (
        ((0, 8), "low must be"),
        ((9, 8), "low must be"),
        ((1, 8, 16), "no multiple of 16"),
    ):
        with pytest.raises(ValueError, match=words):
            multiple = arguments[2] if len(arguments) == 3 else 1
            largest_batch.max_batch(print, arguments[0], arguments[1], multiple_of=multiple)
    with pytest.raises(ValueError, match="function of a module"):
        largest_batch.max_batch(lambda size: size, 1, 2)
    with pytest.raises(ValueError, match="headroom"):
        largest_batch.max_batch(print, headroom=1.0)
    assert sys.modules["gputop.api.largest_batch"] is largest_batch
