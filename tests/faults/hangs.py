"""Faults of a driver that does not answer: a call that takes 30 s, at each place where one is made."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from tests.faults.changes import LOOK_S
from tests.faults.driver import EACH_TICK
from tests.faults.row import Row, Watcher, World, holds, is_healthy
from tests.nvml.stand_in import GIB, Process, uuid_of

HUNG_S = 0.2
"""After what time a call counts as hung here; usually two seconds."""
OF_ONE_GPU = (*EACH_TICK, "nvmlGpmMetricsGet", "nvmlDeviceGetPerformanceState")
AT_FIRST = (
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlGpmQueryDeviceSupport",
)
Proof = Callable[[Row, World], None]


def _while_running(*calls: str) -> Proof:
    """Each call hangs on a GPU of its own; the first GPU goes on, and nothing waits."""

    def proof(row: Row, world: World) -> None:
        scenario = world.make(1 + len(calls))
        for gpu in scenario.gpus:
            gpu.processes.append(Process(1, GIB))
        with Watcher(scenario, hung_s=HUNG_S) as watcher:
            watcher.until(lambda s: bool(s["gpus"]) and all(map(is_healthy, s["gpus"])))
            for gpu, call in enumerate(calls, 1):
                scenario.hang(call, 30.0, gpu=gpu)
            scenario.write()
            hung = watcher.until(lambda s: all(gpu["lost_reason"] for gpu in s["gpus"][1:]), 100)
            told = [gpu["lost_reason"] for gpu in hung["gpus"][1:]]
            assert all(row.sees in reason for reason in told)
            assert all(call in reason for call, reason in zip(calls, told, strict=True))
            scenario.gpus[0].set(power_w=123)
            scenario.write()
            watcher.until(lambda s: s["gpus"][0]["power_w"] == 123)

    return proof


def _while_found(row: Row, world: World) -> None:
    scenario = world.make(1 + len(AT_FIRST))
    for gpu, call in enumerate(AT_FIRST, 1):
        scenario.hang(call, 30.0, gpu=gpu)
    with Watcher(scenario, hung_s=HUNG_S) as watcher:
        seen = watcher.until(lambda s: bool(s["gpus"]) and is_healthy(s["gpus"][0]), 100)
    assert [gpu["static"]["index"] for gpu in seen["gpus"]] == list(range(1 + len(AT_FIRST)))
    assert all(row.sees in gpu["lost_reason"] for gpu in seen["gpus"][1:])


def _while_counted(row: Row, world: World) -> None:
    scenario = world.make(1)
    scenario.hang("nvmlDeviceGetCount", 30.0)
    done = world.run(scenario, "once", "--json", "--wait", "2")
    holds(row, done)
    answer = json.loads(done.stdout)
    assert (answer["gpus"], answer["complete"]) == ([], False)
    assert answer["host"]["mem_total_bytes"] > 0


def _one_of_two(row: Row, world: World) -> None:
    scenario = world.make(2)
    scenario.hang("nvmlDeviceGetPowerUsage", 30.0, gpu=1)
    done = world.run(scenario, "once", "--json", "--wait", "2.5")
    holds(row, done)
    answer = json.loads(done.stdout)
    assert not answer["complete"]
    assert [(gpu["index"], gpu["uuid"]) for gpu in answer["missing_gpus"]] == [(1, uuid_of(1))]
    assert row.sees in answer["missing_gpus"][0]["reason"]
    assert (answer["gpus"][0]["util_pct"], answer["gpus"][0]["sm_active_pct"]) == (90, 25)
    assert row.sees in answer["gpus"][1]["lost_reason"]


def _while_started_again(row: Row, world: World) -> None:
    scenario = world.make(2)
    with Watcher(scenario, hung_s=HUNG_S, look_s=LOOK_S) as watcher:
        watcher.until(lambda s: bool(s["gpus"]) and all(map(is_healthy, s["gpus"])))
        scenario.hang("nvmlInitWithFlags", 2.0, times=1)
        scenario.loads = 2
        scenario.write()
        watcher.until(lambda _: scenario.calls()["nvmlInitWithFlags"] == 2)
        after = watcher.last["t"] + 3 * HUNG_S
        hung = watcher.until(lambda s: s["t"] > after)
        assert all(row.sees in gpu["lost_reason"] for gpu in hung["gpus"])
        assert hung["host"]["cpu_pct"] is not None
        watcher.until(lambda s: all(map(is_healthy, s["gpus"])))


def _at_the_end(row: Row, world: World) -> None:
    scenario = world.make(1)
    for call in ("nvmlShutdown", "nvmlGpmSampleFree", "nvmlEventSetFree"):
        scenario.clear_trouble()
        scenario.hang(call, 30.0)
        begun = time.monotonic()
        holds(row, world.run(scenario, "once"))
        # Its start included, on a slow machine, and less than the call takes.
        assert time.monotonic() - begun < 20.0


def rows() -> list[Row]:
    """The part of the matrix about calls that do not return."""
    return [
        Row(
            "a hang of any call",
            "has not returned for",
            None,
            _while_running(*OF_ONE_GPU),
            slow=True,
        ),
        Row("a hang of the count", "NVML has not answered", 3, _while_counted, slow=True),
        Row("a hang of one GPU: once", "has not returned for", 0, _one_of_two, slow=True),
        Row("a hang while a GPU is found", "has not returned for", None, _while_found),
        Row(
            "a hang after a reload",
            "NVML call nvmlInit has not returned for",
            None,
            _while_started_again,
            slow=True,
        ),
        Row("a hang at the end", "H100", 0, _at_the_end, slow=True),
    ]
