"""SM activity by the hardware counters: the helper and its client, against libraries that a test scripts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gputop.model.snapshot import GpuStatic
from gputop.sources.activity.counters import counters_client
from gputop.sources.activity.counters.counters_client import CountersClient
from gputop.sources.activity.fallback_chain import MeasuredActivity, SmReadFailed, Waiting
from tests.nvperf.stand_in import Counters as Scripted
from tests.support.waiting import has_ended
from tests.support.waiting import until as settle

GPU = GpuStatic(
    0, "GPU-0", "NVIDIA GeForce RTX 4090", pci_bus_id="00000000:01:00.0", driver="580.65"
)
INTERVAL_S = 0.25
Answer = MeasuredActivity | Waiting | SmReadFailed


@pytest.fixture
def reader(counters: Scripted) -> Iterator[CountersClient]:
    made = CountersClient(INTERVAL_S, str(counters.libraries), restarts_s=(0.05, 0.05))
    yield made
    made.stop()


def until(reader: CountersClient, wanted: Callable[[Answer], bool], gpu: GpuStatic = GPU) -> Answer:
    """Ask until the answer is as wanted."""
    deadline = time.monotonic() + 60.0
    while True:
        try:
            got: Answer = reader.activity(gpu, time.monotonic())
        except SmReadFailed as failure:
            got = failure
        if wanted(got):
            return got
        assert time.monotonic() < deadline, (got, getattr(got, "reason", None))
        time.sleep(0.02)


def measured(got: Answer) -> bool:
    return isinstance(got, MeasuredActivity)


def failed(words: str) -> Callable[[Answer], bool]:
    return lambda got: isinstance(got, SmReadFailed) and words in got.reason


def test_sm_activity_is_the_mean_between_two_triggers(
    reader: CountersClient, counters: Scripted
) -> None:
    got = until(reader, measured)
    assert isinstance(got, MeasuredActivity)
    assert got.values["sm_active_pct"] == 41.2
    assert got.values["dram_active_pct"] == pytest.approx(37.1)
    assert got.values["tensor_active_pct"] == 12.1 and got.values["graphics_active_pct"] == 98.0
    # A quarter of a second, and what a crowded machine adds.
    assert got.window_s is not None and 0.15 < got.window_s < 20.0
    assert counters.is_locked()
    counters.write(sm=104.0)
    until(
        reader,
        lambda got: isinstance(got, MeasuredActivity) and got.values["sm_active_pct"] == 100.0,
    )


def test_each_gpu_gets_its_own_value(reader: CountersClient, counters: Scripted) -> None:
    counters.write(gpus=2, sm0=70, sm1=10)
    other = GpuStatic(1, "GPU-1", "other", pci_bus_id="00000000:02:00.0", driver="580.65")
    first, second = until(reader, measured), until(reader, measured, other)
    assert isinstance(first, MeasuredActivity) and isinstance(second, MeasuredActivity)
    # The library numbers them the other way round.
    assert (first.values["sm_active_pct"], second.values["sm_active_pct"]) == (10.0, 70.0)
    stranger = GpuStatic(2, "GPU-2", "stranger", pci_bus_id="00000000:99:00.0")
    until(reader, failed("does not know this GPU"), stranger)


def slow(*values: object) -> Any:
    """A case that the quick part leaves out: others like it are in there."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"begin": 20}, "in use by another tool"),
        ({"supported": 0, "vgpu": 1}, "virtual GPU"),
        ({"sm": 250}, "impossible value"),
        slow({"supported": 0}, "cannot sample"),
        slow({"begin": 15}, "driver is too old"),
        slow({"trigger": 2}, "NVPA_Status 2"),
        slow({"window_s": 50}, "which was not asked for"),
        slow({"load": 1}, "finds no driver"),
        slow({"chip": "XX999"}, "NVPA_Status 8"),
        slow({"sm": "nan"}, "no sample of SM activity"),
    ],
)
def test_what_goes_wrong_costs_the_number_and_its_reason_is_told(
    reader: CountersClient, counters: Scripted, words: dict[str, object], why: str
) -> None:
    counters.write(**words)
    until(reader, failed(why))
    if "begin" in words or words.get("sm") == "nan":
        assert not counters.is_locked()


def test_who_is_denied_is_told_the_command_that_helps(
    counters: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters.write(begin=17)
    monkeypatch.setattr("gputop.sources.activity.counters.access._in_container", lambda _: False)
    reader = CountersClient(INTERVAL_S, str(counters.libraries))
    try:
        got = until(reader, failed("only administrators"))
        assert isinstance(got, SmReadFailed)
        assert (
            "setpriv" in got.fix
            and "--ambient-caps=+perfmon" in got.fix
            and got.fix.endswith("--perf")
        )
        assert got.resting and got.kind == "denied"
    finally:
        reader.stop()


def _ask(reader: CountersClient) -> Answer:
    try:
        return reader.activity(GPU, time.monotonic())
    except SmReadFailed as failure:
        return failure


def test_counters_that_nobody_asks_for_are_given_back(
    reader: CountersClient, counters: Scripted
) -> None:
    until(reader, measured)
    reader.forget(GPU)
    settle(lambda: not counters.is_locked())


def test_a_helper_that_crashes_is_started_again_and_then_given_up(
    reader: CountersClient, counters: Scripted
) -> None:
    counters.write(trigger_crash=1)
    got = until(reader, failed("given up"))
    assert isinstance(got, SmReadFailed) and got.forever and "SIGSEGV" in got.reason
    assert not counters.is_locked()


@pytest.mark.slow
def test_a_gpu_on_which_a_call_hangs_is_never_asked_again(
    counters: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters_client, "SILENT_S", 0.6)
    monkeypatch.setattr(counters_client, "TERM_S", 0.1)
    counters.write(gpus=2)
    reader = CountersClient(INTERVAL_S, str(counters.libraries), restarts_s=(0.05,) * 5)
    other = GpuStatic(1, "GPU-1", "other", pci_bus_id="00000000:02:00.0", driver="580.65")
    try:
        until(reader, measured)
        counters.write(trigger_hang=1)
        got = until(reader, failed("left alone for this run"))
        assert isinstance(got, SmReadFailed) and got.forever
        until(reader, measured, other)
        settle(lambda: not counters.is_locked(1))
    finally:
        reader.stop()


def test_no_helper_is_left_and_no_lock_however_it_ends(counters: Scripted) -> None:
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP):
        reader = CountersClient(INTERVAL_S, str(counters.libraries), restarts_s=())
        until(reader, measured)
        process = reader._helper
        assert process is not None
        os.kill(process.pid, number)
        begun = time.monotonic()
        reader.stop()
        assert time.monotonic() - begun < 10.0
        settle(lambda pid=process.pid: has_ended(pid))  # type: ignore[misc]
        assert not counters.is_locked()


PARENT = """
import sys, time
from gputop.model.snapshot import GpuStatic
from gputop.sources.activity.counters.counters_client import CountersClient
from gputop.sources.activity.fallback_chain import MeasuredActivity
reader = CountersClient(0.25, sys.argv[1])
gpu = GpuStatic(0, "GPU-0", "", pci_bus_id="00000000:01:00.0", driver="580.65")
while not isinstance(reader.activity(gpu, time.monotonic()), MeasuredActivity):
    time.sleep(0.02)
print(reader._helper.pid, flush=True)
time.sleep(60)
"""


def test_the_helper_dies_with_its_parent(counters: Scripted) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(counters.libraries)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    settle(lambda: has_ended(pid) and not counters.is_locked())


HELLO = json.dumps({"t": "hello", "pid": 1, "gpus": [{"pci": "0000:01:00.0"}]})


def test_a_helper_that_lies_is_not_believed(
    counters: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lie = json.dumps({"t": "s", "pci": "0000:01:00.0", "t0": 5, "t1": 5.25, "sm": 1e9})
    unknown = json.dumps({"t": "s", "pci": "\x1b[2J", "t0": 5, "t1": 5.25, "sm": 10})
    (tmp_path / "helper.py").write_text(
        f"import time\ndef main(words):\n    print({HELLO!r}, flush=True)\n"
        f"    while True:\n        print({lie!r})\n        print({unknown!r}, flush=True)\n        time.sleep(0.05)\n"
    )
    program = (
        f"import sys; sys.path[:] = {[str(tmp_path), *sys.path]!r}; import helper; "
        "helper.main(sys.argv[1:])"
    )
    monkeypatch.setattr(
        counters_client,
        "our_program",
        lambda _, *words: [sys.executable, "-I", "-c", program, *words],
    )
    reader = CountersClient(INTERVAL_S, str(counters.libraries), restarts_s=())
    try:
        until(reader, failed("impossible value (1e+09)"))
    finally:
        reader.stop()
    assert [gpu.newest for gpu in reader._gpus.values()] == [None]
