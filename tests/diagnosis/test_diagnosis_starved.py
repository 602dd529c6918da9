"""The starved family: each rule on both sides of its thresholds, and the order between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.serving import ServerRow
from gputop.model.snapshot import ProcessStatic, Snapshot
from tests.support.scenes import HOST, Watch, gpu, snap, steady, told, train, workers


def verdict(util: float, *processes: Any, **changes: Any) -> str:
    return steady(45, gpu(util=util, sm=min(util, 60.0), **changes), processes).verdict


@pytest.mark.parametrize(("util", "starved"), [(80.0, True), (80.1, False)])
def test_starvation_begins_at_twenty_percent_idle(util: float, starved: bool) -> None:
    assert (verdict(util, train(main=2.0), *workers(4, 95.0, 5.0)) == "dataloader_cpu") == starved


# L(w) = (w − u) / (1 − u) ≥ .5 at util 40: w ≥ .7
@pytest.mark.parametrize(("run", "found"), [(70.0, "dataloader_cpu"), (69.9, "starved_unattributed")])
def test_loaders_must_be_runnable_in_half_of_the_idle_time(run: float, found: str) -> None:
    assert verdict(40.0, train(main=2.0), *workers(4, run)) == found


def test_queued_workers_are_as_runnable_as_running_ones() -> None:
    said = steady(45, gpu(util=23.0, sm=20.0), [train(main=8.0), *workers(2, 24.0, 72.0)])
    assert (said.verdict, said.level) == ("dataloader_cpu", "red")
    assert "queued 72 %" in said.evidence[0]
    assert "not more workers" in said.remedy


def test_the_remedy_follows_the_cause() -> None:
    loading = [train(main=2.0), *workers(8, 95.0)]
    assert "raise num_workers (now 8; `gputop loader` finds how many)" in steady(45, gpu(util=40.0), loading).remedy
    full = steady(45, gpu(util=40.0), loading, replace(HOST, cpu_pct=97.0))
    assert "no core is free" in full.remedy
    throttled = [train(main=2.0), *workers(8, 40.0, 55.0, throttled_pct=40.0)]
    assert "CPU limit" in steady(45, gpu(util=40.0), throttled).remedy


@pytest.mark.parametrize(("util", "level"), [(50.0, "red"), (50.1, "yellow")])
def test_half_idle_is_an_alarm(util: float, level: str) -> None:
    assert steady(45, gpu(util=util), [train(main=2.0), *workers(4, 100.0)]).level == level


def test_a_main_thread_that_must_have_run_while_the_gpu_was_idle_is_the_cause() -> None:
    # L(m) at util 40: m ≥ .7
    assert verdict(40.0, train(main=70.0)) == "main_process"
    assert verdict(40.0, train(main=69.9)) == "starved_unattributed"
    assert verdict(40.0, train(main=100.0), *workers(4, 100.0)) == "main_process"


def test_a_main_thread_that_only_spins_on_the_gpu_is_not_accused() -> None:
    said = steady(45, gpu(util=60.0, sm=50.0), [train(main=62.0)])
    assert said.verdict == "starved_unattributed"
    assert any("cannot tell" in note for note in said.notes)
    assert said.attribution is not None and said.attribution.main_pct is None
    assert verdict(60.0, train(main=62.0), *workers(4, 98.0)) == "dataloader_cpu"


def test_one_loader_in_disk_wait_holds_up_the_others() -> None:
    loaders = [*workers(4, 1.0)]
    for waiting in (3, 1):
        found = [replace(w, state="D", waiting_on="disk") if i < waiting else w for i, w in enumerate(loaders)]
        assert verdict(40.0, train(main=1.0), *found) == "dataloader_io"


def test_disk_wait_of_the_main_thread_is_its_own() -> None:
    waiting = train(main=1.0, main_state="D", state="D", read_bytes_per_s=12e6)
    assert verdict(40.0, waiting) == "main_process"
    assert verdict(40.0, waiting, *workers(2, 5.0)) == "main_process"


def test_disk_wait_while_the_host_swaps_is_not_called_loading() -> None:
    swapping = replace(HOST, swap_used_bytes=9e9, psi_mem_pct=40.0)
    loaders = workers(4, 1.0, state="D", waiting_on="disk")
    said = steady(45, gpu(util=40.0), [train(main=1.0), *loaders], swapping)
    assert said.verdict == "starved_unattributed"
    assert "swap" in {badge.id for badge in said.badges}


@pytest.mark.parametrize("channel", ["network", "pipe"])
def test_loaders_that_wait_for_network_or_pipe(channel: str) -> None:
    assert verdict(44.0, train(main=1.0), *workers(4, 1.0, waiting_on=channel)) == "dataloader_io"


def test_network_loaders_are_seen_beside_a_spinning_main_thread() -> None:
    loaders = workers(4, 1.0, waiting_on="network")
    for main in (50.0, 30.0):
        assert verdict(44.0, train(main=main), *loaders) == "dataloader_io"


def test_hidden_wait_channels_are_said() -> None:
    hidden = workers(4, 1.0, waiting_on=None, unavailable={"waiting_on": "permission denied"})
    said = steady(45, gpu(util=44.0), [train(main=1.0), *hidden])
    assert said.verdict == "starved_unattributed"
    assert any("needs root" in note for note in said.notes)


# gen 4 × 16 lanes × 80 %: 25.2 GB/s
@pytest.mark.parametrize(
    ("util", "rx", "tx", "found"),
    [
        (45.0, 7.6e9, 0.0, "pcie_transfer"),
        (45.0, 7.5e9, 0.0, "starved_unattributed"),
        (30.0, 8.9e9, 0.0, "pcie_transfer"),
        (30.0, 8.7e9, 0.0, "starved_unattributed"),
        (95.0, 17.7e9, 0.0, "pcie_transfer"),
        (95.0, 17.5e9, 0.0, "working"),
        (95.0, 18e9, 18e9, "working"),
    ],
)
def test_copies_over_pcie(util: float, rx: float, tx: float, found: str) -> None:
    assert (
        verdict(util, train(main=10.0), pcie_rx_bytes_per_s=rx, pcie_tx_bytes_per_s=tx, tensor_active_pct=20.0) == found
    )


def test_a_server_that_offloads_its_cache_is_not_accused_of_copies() -> None:
    server = train(static=ProcessStatic(command="vllm serve llama"))
    assert verdict(95.0, server, pcie_rx_bytes_per_s=20e9, tensor_active_pct=20.0) == "working"


@pytest.mark.parametrize(
    "command",
    [
        "tritonserver --model-store /models",
        "python -m vllm.entrypoints.openai.api_server --model llama",
        "/opt/venv/bin/python3 /opt/venv/bin/vllm serve llama",
        "/usr/bin/ollama runner --port 1",
        "VLLM::EngineCore",
    ],
)
def test_a_server_waits_for_demand(command: str) -> None:
    server = train(static=ProcessStatic(command=command, name="python"))
    assert verdict(30.0, server) == "low_demand"
    assert verdict(30.0, server, *workers(2, 100.0)) == "dataloader_cpu"


@pytest.mark.parametrize(
    ("cache", "queue", "found"),
    [(98.0, 7.0, "kv_cache_full"), (94.0, 7.0, "low_demand"), (98.0, 0.0, "low_demand"), (None, 7.0, "low_demand")],
)
def test_a_server_whose_cache_is_full_while_requests_wait_lacks_memory_and_not_demand(
    cache: float | None, queue: float, found: str
) -> None:
    said = ServerRow("localhost:8000", "vllm", 30.0, 2.0, 400.0, queue=queue, running=9.0, kv_cache_pct=cache)
    server = (train(static=ProcessStatic(command="vllm serve llama", server="vllm")),)

    def judged(full_for_s: int, seconds: int) -> GpuDiagnosis:
        moments = (snap(tick, gpu(util=60.0), server) for tick in range(seconds))
        return Watch().feed(
            replace(shown, servers=(said,) if tick < full_for_s else ()) for tick, shown in enumerate(moments)
        )

    full = judged(45, 45)
    assert full.verdict == found
    if found == "kv_cache_full":
        assert "queue 7, KV cache 98 %" in full.evidence[1] and "--gpu-memory-utilization" in full.remedy
        assert (full.state, full.level) == ("starved", "yellow")
        assert judged(30, 90).verdict == "low_demand"


@pytest.mark.parametrize("command", ["python train.py --data /home/vllm", "python serve_vllm_logs.py", "torchrun vllm"])
def test_a_command_that_only_mentions_a_server_is_none(command: str) -> None:
    assert verdict(30.0, train(static=ProcessStatic(command=command))) == "starved_unattributed"


def checkpoints(writes: float, pause: int, every: int = 30, seconds: int = 110) -> Iterator[Snapshot]:
    for tick in range(seconds):
        paused = tick % every >= every - pause
        sample = gpu(util=0.0 if paused else 97.0, sm=0.0 if paused else 90.0)
        yield snap(tick, sample, [train(main=30.0, write_bytes_per_s=writes if paused else 0.0)])


def test_a_pause_with_writes_is_a_checkpoint() -> None:
    said = Watch().feed(checkpoints(240e6, 3))
    assert (said.verdict, said.level) == ("checkpoint_pause", "info")
    assert "240 MB/s" in said.evidence[0]


def test_a_pause_that_writes_a_log_is_no_checkpoint() -> None:
    assert Watch().feed(checkpoints(49e6, 3)).verdict == "healthy"


def test_a_pause_longer_than_a_minute_is_no_checkpoint() -> None:
    watch = Watch()
    watch.feed(checkpoints(240e6, 70, every=140, seconds=140))
    after = watch.feed(snap(140 + tick, gpu(), [train()]) for tick in range(25))
    assert after.verdict == "healthy"
    assert watch.first(lambda said: said.verdict == "checkpoint_pause", after=130) is None


def restarts(every: int, gap: int, count: int, seconds: int = 110) -> Iterator[Snapshot]:
    for tick in range(seconds):
        epoch, second = divmod(tick, every)
        paused = second < gap
        born = [replace(w, pid=5000 + 10 * epoch + i, age_s=float(second)) for i, w in enumerate(workers(count, 60.0))]
        yield snap(tick, gpu(util=0.0 if paused else 96.0, sm=0.0 if paused else 85.0), [train(main=5.0), *born])


def test_workers_that_are_started_again_and_again() -> None:
    said = Watch().feed(restarts(every=10, gap=3, count=4))
    assert (said.verdict, said.level) == ("worker_restart", "yellow")
    assert "12 new workers in 30 s" in said.evidence[0]
    assert "persistent_workers" in said.remedy


def test_the_remedy_of_restarts_is_the_same_while_no_worker_lives() -> None:
    def seen(snapshot: Snapshot) -> Snapshot:
        job, *alive = snapshot.processes
        between = alive[0].age_s is not None and alive[0].age_s >= 8.0
        return replace(snapshot, processes=(replace(job, feeder_threads=2), *([] if between else alive)))

    watch = Watch()
    watch.feed(map(seen, restarts(every=10, gap=3, count=4)))
    told = [said.remedy for _, said in watch.said if said.verdict == "worker_restart"]
    assert len(told) > 30 and all("persistent_workers" in remedy for remedy in told)


def test_too_few_births_or_no_gap_are_no_restart() -> None:
    assert Watch().feed(restarts(every=40, gap=10, count=1, seconds=105)).verdict != "worker_restart"
    no_gap = (replace(s, gpus=(gpu(util=70.0, sm=60.0),)) for s in restarts(every=10, gap=3, count=4))
    assert Watch().feed(no_gap).verdict == "starved_unattributed"


def test_one_batch_of_births_is_an_evaluation_not_a_restart() -> None:
    def job() -> Iterator[Snapshot]:
        for tick in range(90):
            paused = 60 <= tick < 67
            evaluating = workers(8, 30.0) if tick >= 60 else []
            processes = [train(main=5.0), *workers(4, 30.0)]
            processes += [replace(w, pid=9000 + i, age_s=tick - 60.0) for i, w in enumerate(evaluating)]
            yield snap(tick, gpu(util=0.0 if paused else 96.0, sm=0.0 if paused else 85.0), processes)

    watch = Watch()
    watch.feed(job())
    assert watch.first(lambda said: said.verdict == "worker_restart") is None


def test_without_host_signals_starvation_is_still_seen_and_the_reason_is_said() -> None:
    hidden = train(starttime=None, main_run_pct=None, main_wait_pct=None, main_state=None, run_pct=None, cpu_pct=None)
    for processes in ([hidden], []):
        said = steady(45, gpu(util=40.0), processes)
        assert (said.verdict, said.confidence) == ("starved_unattributed", "low")
        assert any("no host signals" in note for note in said.notes)


def test_loaders_count_for_each_gpu_of_their_parent_and_orphans_for_none() -> None:
    both = [train(0, main=2.0), replace(train(1, main=2.0), pid=4000)]
    loaders = workers(4, 95.0)
    watch = Watch()
    for tick in range(45):
        last = watch.diagnoser.observe(snap(tick, [gpu(0, util=40.0), gpu(1, util=40.0)], [*both, *loaders]))
    assert [said.verdict for said in last] == ["dataloader_cpu", "dataloader_cpu"]
    orphans = [replace(w, role="orphan") for w in loaders]
    assert verdict(40.0, train(main=2.0), *orphans) == "starved_unattributed"


def test_loaders_without_a_gpu_are_matched_by_their_parent() -> None:
    assert verdict(40.0, train(main=2.0), *workers(4, 95.0, gpu=None)) == "dataloader_cpu"


def test_a_helper_counts_as_a_loader_only_when_it_works() -> None:
    busy = [replace(w, role="helper") for w in workers(2, 95.0)]
    assert verdict(40.0, train(main=2.0), *busy) == "dataloader_cpu"
    said = steady(45, gpu(util=40.0), [train(main=2.0), *(replace(w, role="helper") for w in workers(2, 20.0))])
    assert said.attribution is not None and said.attribution.loaders == 0


def test_compile_workers_are_no_loaders() -> None:
    command = "python -m torch/_inductor/compile_worker/__main__.py --workers=8"
    compiling = [told(replace(w, role="helper", static=ProcessStatic(command=command))) for w in workers(4, 99.0)]
    assert verdict(40.0, train(main=2.0), *compiling) == "starved_unattributed"


def test_the_attribution_adds_up_for_the_host_panel() -> None:
    said = steady(45, gpu(util=38.0), [train(main=2.0, pin_memory=False), *workers(8, 88.0, 12.0)])
    a = said.attribution
    assert a is not None
    assert (a.idle_pct, a.n, a.loaders, a.loader_kind) == (62.0, 30, 8, "torch")
    assert (a.running_pct, a.queued_pct, a.disk_pct, a.main_pct) == pytest.approx((88.0, 12.0, 0.0, 2.0))
    assert a.pin_memory is False
    assert a.correlation == "too early to relate the loaders' work to the GPU's: 45 of 60 samples"
