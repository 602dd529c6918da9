"""Jobs and their steps on a page of metrics: bounded labels, and steps that come once."""

from __future__ import annotations

import os
import random
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.features.export.export_feed import with_steps
from gputop.features.export.metrics_page import PageChoice
from gputop.features.export.pod_resources import PodContainer, pod_family
from gputop.features.export.run_counters import REMEMBERED_S
from gputop.model.serving import ServerRow
from gputop.model.snapshot import (
    CgroupName,
    Event,
    GpuSample,
    GpuStatic,
    Machine,
    ProcessSample,
    ProcessStatic,
    Snapshot,
)
from gputop.model.steps import StepRow
from gputop.sources.marked import Marked
from gputop.sources.simulation.life import slurm
from gputop.sources.step_socket import StepSender
from tests.support.exported import feed, gpu_of, read, snapshot_of, value
from tests.support.polled import PolledSource

NAMING = ("job_id", "user", "name", "pid", "k8s_pod_uid", "uuid", "xid", "rank")
"""Labels whose values come from jobs, users and the driver."""


def test_labels_stay_bounded_over_a_day_of_changing_jobs_and_instances() -> None:
    chance = random.Random(15)
    pods = {"GPU-0": [PodContainer("team", "train", "main")] * 99}
    given = feed(PageChoice(True, (partial(pod_family, lambda: pods),)))
    every_s, sizes = 600.0, list[int]()
    for step in range(144):
        t = every_s * step
        job = slurm(step)
        gpus = [
            gpu_of(i, util_pct=90.0, power_w=300.0, throttle_reasons=chance.randrange(256))
            for i in range(2)
        ]
        # An instance that is made again has another UUID each time.
        gpus.append(
            GpuSample(GpuStatic(2, f"MIG-{step}", "H100", mig_instance="1/0"), util_pct=5.0)
        )
        processes = tuple(
            ProcessSample(
                1000 * step + n,
                gpu=n % 3,
                gpu_mem_bytes=float(n),
                static=ProcessStatic(
                    f"user{step}",
                    f"python --token {step}",
                    f"name{step}",
                    job,
                    CgroupName("pod", f"{step:08d}-{n}"),
                ),
            )
            for n in range(12)
        )
        steps = tuple(
            StepRow(1000 * step + n, n, None, "x", 4, 2.0, 0.5, 0.5, 0.5, 0.5) for n in range(12)
        )
        events = tuple(Event(t, "xid", f"Xid {step}", n % 2, xid=step) for n in range(3))
        given.take(Snapshot(t, Machine("n1"), tuple(gpus), processes, events=events, steps=steps))
        sizes.append(given.page().count("\n"))
    page = read(given.page())
    named = {
        word: {dict(labels).get(word, "") for rows in page.values() for labels in rows}
        for word in NAMING
    }
    assert max(sizes[20:]) <= 1.2 * max(sizes[7:20]), (
        "an hour fills it, and the rest of the day adds nothing"
    )
    hour = {str(step) for step in range(144 - int(REMEMBERED_S / every_s) - 1, 144)} | {""}
    assert named["job_id"] <= hour, "steps of jobs are told for an hour"
    assert (
        named["user"] <= {"user143", ""}
        and named["name"] <= {"name143", ""}
        and len(named["k8s_pod_uid"]) <= 25
    )
    assert {uuid for uuid in named["uuid"] if uuid.startswith("MIG")} <= {
        f"MIG-{step}" for step in hour
    }
    assert len(named["xid"]) <= 34 and "other" in named["xid"]
    assert "token" not in given.page()


def test_no_command_line_and_no_control_character_gets_into_a_label() -> None:
    static = ProcessStatic(
        'ml"\n\\', "python train.py --api-key hunter2", "train\x1b[31m" + "x" * 500, slurm(1), None
    )
    given = feed(PageChoice(True))
    given.take(
        snapshot_of(1.0, processes=(ProcessSample(7, gpu=0, gpu_mem_bytes=5.0, static=static),))
    )
    text = given.page()
    assert "hunter2" not in text and "train.py" not in text and "\x1b" not in text
    page = read(text)
    assert value(page, "gputop_process_device_memory_bytes", pid="7", user='ml" \\') == 5.0
    assert (
        max(
            len(word) for labels in page["gputop_process_device_memory_bytes"] for _, word in labels
        )
        == 128
    )


def test_announced_steps_are_a_summary_by_rank_and_job_that_ends_with_the_job() -> None:
    given = feed()
    static = ProcessStatic("ml", None, "python3", slurm(77))
    for t in (1.0, 2.0):
        steps = (StepRow(9, 3, None, "train", 4, 2.0, 0.5, 0.5, 0.5, 0.5),)
        given.take(snapshot_of(t, processes=(ProcessSample(9, gpu=0, static=static),), steps=steps))
    page = read(given.page())
    assert value(page, "gputop_step_seconds_sum", gpu="0", rank="3", job_id="77") == 4.0
    assert value(page, "gputop_step_seconds_count", gpu="0", rank="3", job_id="77") == 8.0
    assert value(page, "gputop_step_last_timestamp_seconds", gpu="0", rank="3", job_id="77") == 2.0
    assert "gputop_step_wait_seconds_sum" not in page and "gputop_step_samples_total" not in page, (
        "never told is no 0"
    )
    for t in (3.0, 4.0):
        steps = (
            StepRow(
                9, 3, None, "train", 4, 2.0, 0.5, 0.5, 0.5, 0.5, 64.0 if t > 3.0 else None, 0.5, 0.2
            ),
        )
        given.take(snapshot_of(t, processes=(ProcessSample(9, gpu=0, static=static),), steps=steps))
    page = read(given.page())
    assert value(page, "gputop_step_wait_seconds_sum", gpu="0", rank="3", job_id="77") == 1.0
    assert value(page, "gputop_step_wait_seconds_count", gpu="0", rank="3", job_id="77") == 8.0
    assert value(page, "gputop_step_data_wait_seconds_sum", gpu="0", rank="3", job_id="77") == 0.4
    assert value(page, "gputop_step_samples_total", gpu="0", rank="3", job_id="77") == 64.0
    assert "gputop_step_tokens_total" not in page and "gputop_step_mfu_ratio" not in page
    given.take(snapshot_of(4.5, processes=(ProcessSample(9, gpu=0, static=static),)))
    page = read(given.page())
    assert (
        value(page, "gputop_step_last_timestamp_seconds", gpu="0", rank="3", job_id="77") == 4.0
    ), "no step, no news"
    for t, mfu in ((5.0, 41.0), (6.0, 410.0)):
        steps = (replace(steps[0], tokens=4096.0, mfu_pct=mfu),)
        given.take(snapshot_of(t, processes=(ProcessSample(9, gpu=0, static=static),), steps=steps))
        page = read(given.page())
        # What cannot be is no figure.
        assert ("gputop_step_mfu_ratio" in page) == (mfu < 100.0)
        if mfu < 100.0:
            assert value(page, "gputop_step_mfu_ratio", gpu="0", rank="3", job_id="77") == 0.41
    assert value(page, "gputop_step_tokens_total", gpu="0", rank="3", job_id="77") == 8192.0
    given.take(snapshot_of(6.0 + REMEMBERED_S + 1.0))
    assert "gputop_step_seconds_count" not in read(given.page())


def test_steps_come_on_one_socket_and_never_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    class Idle(PolledSource):
        def poll(self) -> Snapshot:
            return snapshot_of(1.0)

    path = str(tmp_path / "steps.sock")
    source = with_steps(Idle(), path)
    assert isinstance(with_steps(Idle(), path), Marked)
    source.begin(0.0)
    sender = StepSender(path)
    assert sender.send(StepRow(os.getpid(), 0, 0, "x", 1, 0.5, 0.5, 0.5, 0.5, 0.5)) >= 1
    snapshot = source.begin(0.0)
    assert snapshot is not None and [row.pid for row in snapshot.steps] == [os.getpid()]
    source.close()
    sender.close()
    assert not os.path.exists(path)


def test_what_inference_servers_say_is_on_the_page_and_what_they_do_not_say_is_absent() -> None:
    given = feed()
    full = ServerRow(
        "localhost:8000", "vllm", 30.0, 12.0, 1430.0, queue=7.0, running=8.0, kv_cache_pct=98.0
    )
    given.take(snapshot_of(0.0, servers=(full, ServerRow("h:1", error="timed out"))))
    page = read(given.page())
    labels = {"server": "localhost:8000", "kind": "vllm"}
    assert value(page, "gputop_server_kv_cache_ratio", **labels) == 0.98
    assert value(page, "gputop_server_requests_waiting", **labels) == 7.0
    assert value(page, "gputop_server_tokens_per_second", **labels) == 1430.0
    assert "gputop_server_preemptions_per_second" not in given.page() and "h:1" not in given.page()
