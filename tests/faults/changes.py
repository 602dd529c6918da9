"""Faults that change which GPUs there are: hot-plug, removal, MIG, a driver that is reloaded or upgraded."""

from __future__ import annotations

from typing import Any

from tests.faults.row import Row, Watcher, World, is_healthy
from tests.nvml.stand_in import make_gpu, split, uuid_of

LOOK_S = 0.2
"""How often the program looks here; usually every ten seconds."""


def _uuids(snapshot: dict[str, Any]) -> list[str]:
    return [gpu["static"]["uuid"] for gpu in snapshot["gpus"]]


def _all_well(snapshot: dict[str, Any]) -> bool:
    return bool(snapshot["gpus"]) and all(map(is_healthy, snapshot["gpus"]))


def _indices_are_unique(snapshot: dict[str, Any]) -> bool:
    indices = [gpu["static"]["index"] for gpu in snapshot["gpus"]]
    return len(set(indices)) == len(indices)


def _appears_to_the_kernel(row: Row, world: World) -> None:
    shown = world.directory / "proc" / "driver" / "nvidia" / "gpus"
    (shown / "0000:1a:00.0").mkdir(parents=True)
    scenario = world.make(1)
    scenario.count_at_init = True
    with Watcher(scenario, look_s=LOOK_S, proc=str(world.directory / "proc")) as watcher:
        watcher.until(_all_well)
        scenario.gpus.append(make_gpu(1))
        scenario.write()
        (shown / "0000:1b:00.0").mkdir()
        seen = watcher.until(lambda s: len(s["gpus"]) == 2 and _all_well(s))
    assert _uuids(seen) == [uuid_of(0), uuid_of(1)]
    assert row.sees in seen["gpus"][1]["static"]["name"]
    assert scenario.calls()["nvmlInitWithFlags"] == 2


def _appear(row: Row, world: World) -> None:
    scenario = world.make(2)
    scenario.write()
    with Watcher(scenario, interval_s=1.0) as watcher:
        watcher.until(_all_well)
        scenario.gpus += [make_gpu(index) for index in range(2, 6)]
        scenario.write()
        seen = watcher.until(lambda s: len(s["gpus"]) == 6, snapshots=3)
        assert _uuids(seen) == [uuid_of(index) for index in range(6)]
        # All go, which is said, and come again.
        scenario.gpus = []
        scenario.write()
        watcher.until(lambda s: all(row.sees in (gpu["lost_reason"] or "") for gpu in s["gpus"]))
        scenario.gpus = [make_gpu(index) for index in range(4)]
        scenario.write()
        back = watcher.until(lambda s: sum(map(is_healthy, s["gpus"])) == 4, snapshots=4)
    assert _uuids(back) == [uuid_of(index) for index in range(6)]


def _reloaded(row: Row, world: World) -> None:
    scenario = world.make(2)
    with Watcher(scenario, look_s=LOOK_S) as watcher:
        watcher.until(_all_well)
        scenario.loads = 0
        scenario.write()
        # The host goes on; on a crowded machine its second reading, which a share takes, comes late.
        watcher.until(
            lambda s: (
                s["host"]["cpu_pct"] is not None
                and all(row.sees in (gpu["lost_reason"] or "") for gpu in s["gpus"])
            )
        )
        scenario.loads, scenario.driver = 2, "580.65.06"
        scenario.gpus[1].set(power_w=111)
        scenario.write()
        back = watcher.until(_all_well)
    assert _uuids(back) == [uuid_of(0), uuid_of(1)]
    assert back["gpus"][1]["power_w"] == 111
    assert back["machine"]["driver"] == back["gpus"][0]["static"]["driver"] == "580.65.06"


def _mig_changes(row: Row, world: World) -> None:
    scenario = world.make(1)
    split(scenario.gpus[0], 0, 2)
    with Watcher(scenario, look_s=5 * LOOK_S) as watcher:
        watcher.until(lambda s: len(s["gpus"]) == 3 and s["gpus"][2]["sm_active_pct"] is not None)
        kept = _uuids(watcher.last)[1]
        # One instance is destroyed, later another is created beside the one that stays.
        destroyed = scenario.gpus[0].instances.pop()
        scenario.write()
        events: list[str] = []
        lost: list[str] = []

        def is_gone(s: dict[str, Any]) -> bool:
            events.extend(event["text"] for event in s["events"])
            lost.extend(gpu["lost_reason"] for gpu in s["gpus"] if gpu["lost_reason"] is not None)
            return len(s["gpus"]) == 2

        watcher.until(is_gone)
        assert row.sees in events[-1]
        assert lost == []
        assert _uuids(watcher.last) == [uuid_of(0), kept]
        old = destroyed.uuid
        destroyed.uuid, destroyed.gi = "MIG-new", 9
        scenario.gpus[0].instances.append(destroyed)
        scenario.write()
        seen = watcher.until(
            lambda s: len(s["gpus"]) == 3 and s["gpus"][2]["sm_active_pct"] is not None
        )
        assert _uuids(seen) == [uuid_of(0), kept, "MIG-new"]
        assert seen["gpus"][1]["sm_active_pct"] is not None
        assert [gpu["static"]["index"] for gpu in seen["gpus"]] == [0, 1, 3]
        # The one of before comes back in its place.
        destroyed.uuid = old
        scenario.write()
        seen = watcher.until(lambda s: _uuids(s) == [uuid_of(0), kept, old])
        assert [gpu["static"]["index"] for gpu in seen["gpus"]] == [0, 1, 2]


def rows() -> list[Row]:
    """The part of the matrix about GPUs that come and go."""
    return [
        Row(
            "a GPU appears: NVML counts at its start only",
            "H100",
            None,
            _appears_to_the_kernel,
            slow=True,
        ),
        Row(
            "GPUs appear, all go and come again",
            "the driver no longer shows",
            None,
            _appear,
            slow=True,
        ),
        Row("the driver is reloaded", "the driver was unloaded", None, _reloaded),
        Row("MIG instances change", "MIG instance 8/0 is gone", None, _mig_changes, slow=True),
    ]
