"""What is told of a GPU: whose it is, since when, how much of it was wasted, and by which role it is coloured."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gputop.diagnosis.types import Badge, GpuDiagnosis, GpuOwner, Level, State
from gputop.diagnosis.verdict.gpu_owners import owner_words, program
from gputop.diagnosis.verdict.summary import (
    Trouble,
    WorstGpuSelector,
    group_of,
    in_sample,
    named_trouble,
    number_words,
    since_words,
    summarize,
)
from gputop.diagnosis.verdict.time_ledger import lost_share
from gputop.model.snapshot import CgroupName, ProcessStatic
from gputop.monitor import Monitor
from tests.support.scenes import GIB, HOST, T0, Watch, gpu, snap, train, workers

HOLLOW = (gpu(util=96.0, sm=15.0), [train()])


def test_half_of_a_chip_is_half_of_its_time() -> None:
    assert lost_share("busy_not_working", "small_kernels", 97.0, 16.0) == pytest.approx(0.84)
    assert lost_share("working", "half_working", 98.0, 48.0) == pytest.approx(0.52)
    assert lost_share("starved", "dataloader_cpu", 40.0, 35.0) == pytest.approx(0.6)
    assert lost_share("idle_allocated", "idle_holding_memory", 0.0, 0.0) == 1.0
    assert lost_share("idle", "idle", 0.0, 0.0) == 0.0, "nobody held it"
    assert lost_share("busy_not_working", "communication", 97.0, None) == 1.0
    assert lost_share("busy_not_working", "hang", 100.0, 90.0) == 1.0
    assert lost_share("working", "stalled", 98.0, 92.0) == 1.0
    assert lost_share("working", "working", 98.0, 62.0) == 0.0
    assert lost_share("unmeasured", "no_bottleneck_seen", 98.0, None) is None


def test_lost_seconds_add_up_to_the_mean_of_what_was_measured() -> None:
    watch = Watch()
    d = watch.feed(snap(tick, *HOLLOW) for tick in range(117))
    assert d.seconds is not None and d.lost is not None
    assert d.lost == {"small_kernels": pytest.approx(0.85 * d.seconds["busy_not_working"])}
    assert d.charged_s == pytest.approx(0.85 * d.lasted_s, abs=1.0)
    assert watch.diagnoser.waste().recent_lost_gpus == pytest.approx(
        d.lost["small_kernels"] / 116.0
    )


def test_an_idle_gpu_has_been_so_since_before_its_verdict_was_shown() -> None:
    watch = Watch()
    quiet = gpu(util=0.0, sm=0.0)
    watch.feed(snap(tick, gpu(), [train()]) for tick in range(60))
    d = watch.feed(snap(60 + tick, quiet, [train(main=0.0)]) for tick in range(420))
    assert d.verdict == "idle_holding_memory"
    assert (
        d.began == pytest.approx(T0 + 60.0, abs=3.0)
        and d.since is not None
        and d.since > d.began + 290.0
    )
    told = summarize(d)
    assert told.words == "idle, holding memory"
    assert told.charged_s == pytest.approx(d.lasted_s, abs=31.0)
    assert number_words(told.number) == "idle 100 %"


def test_the_owner_holds_the_most_memory_and_stays_until_it_ends() -> None:
    watch = Watch()
    static = ProcessStatic(
        user="rl", command="python rl.py --batch 1", batch_job=CgroupName("slurm", "8830")
    )
    small = replace(train(), pid=9, gpu_mem_bytes=10 * GIB, static=static)
    large = replace(train(), pid=12, gpu_mem_bytes=30 * GIB)
    assert watch.feed([snap(0, gpu(), [small, large])]).owner == GpuOwner(
        12, "ml", "python train.py", None, 1
    )
    grown = replace(small, gpu_mem_bytes=50 * GIB)
    kept = watch.feed([snap(1, gpu(), [grown, large])]).owner
    assert kept is not None and kept.pid == 12
    assert watch.feed([snap(2, gpu(), [grown])]).owner == GpuOwner(
        9, "rl", "python rl.py --batch 1", "slurm 8830", 0
    )
    assert watch.feed([snap(3, gpu(), [])]).owner is None


def test_owners_are_named_by_script_user_and_job_as_far_as_they_can_be_read() -> None:
    owner = GpuOwner(4711, "rl", "/usr/bin/python3 -u /home/rl/rl.py --batch 1", "slurm 8830", 2)
    assert owner_words(owner) == "rl.py (rl, pid 4711, slurm 8830) and 2 more"
    assert owner_words(GpuOwner(4711)) == "pid 4711"
    assert [program(c) for c in ("", "python -m vllm.serve", "python3 -c x", "./train --x", "torchrun a.py")] == [
        "", "vllm.serve", "python3", "train", "a.py",
    ]  # fmt: skip


def test_a_victim_says_whom_it_waits_for_and_nothing_else() -> None:
    d = Watch().feed(
        snap(tick, gpu(sm=48.0, tensor_active_pct=13.0, power_w=300.0), [train()])
        for tick in range(60)
    )
    assert d.verdict == "half_working" and summarize(d).role == "waiting"
    waits = Badge(
        "straggler", "info", "waits for GPU 2", "GPU 2: SM 88 %", "see GPU 2: balance", about=2
    )
    told = summarize(replace(d, badges=(waits,), notes=("a note",)))
    assert (told.words, told.cause, told.evidence) == ("waits for GPU 2", "", ("GPU 2: SM 88 %",))
    assert (told.remedy, told.notes, told.other_badges, told.role) == ("", (), (), "waiting")


def test_what_is_wrong_with_the_card_or_the_job_comes_before_work() -> None:
    d = Watch().feed(snap(tick, gpu(), [train()]) for tick in range(60))
    assert (summarize(d).words, summarize(d).role) == ("working", "work")
    broken = summarize(
        replace(d, badges=(Badge("ecc", "red", "hardware error", "3 errors", "drain the node"),))
    )
    assert (broken.words, broken.role, broken.remedy) == (
        "hardware error, working",
        "not_working",
        "drain the node",
    )
    assert broken.evidence == ("3 errors", *d.evidence)
    slow = summarize(
        replace(d, badges=(Badge("straggler", "yellow", "straggler", "SM 88 %", "balance"),))
    )
    assert (slow.words, slow.role, slow.remedy) == ("straggler, working", "waiting", "balance")


def test_one_sample_says_its_state_and_no_verdict() -> None:
    held = replace(train(), gpu_mem_bytes=29 * GIB)
    for sample, words in (
        (gpu(), "working"),
        (gpu(sm=48.0), "half working"),
        (gpu(sm=48.0, dram=80.0), "working"),
        (gpu(sm=8.0), "busy, not working"),
        (gpu(sm=0.0), "busy, not judged: SM activity is not measured"),
        (gpu(sm=None, sm_source="bound"), "busy, not judged: SM activity is not measured"),
        (gpu(util=37.0, sm=30.0), "no kernel ran for 63 % of the time"),
        (gpu(util=0.0, sm=0.0), "idle, holding memory"),
        (gpu(util=None), "not judged"),
        (gpu(lost_reason="gone"), "LOST"),
    ):
        assert in_sample(sample, [held])[0] == words
    assert in_sample(gpu(util=0.0, sm=0.0)) == ("idle", "information")


def test_half_working_and_lost_gpus_are_counted_apart() -> None:
    half = Watch().feed(
        snap(t, gpu(sm=48.0, tensor_active_pct=13.0, power_w=300.0), [train()]) for t in range(60)
    )
    lost = Watch().feed(
        snap(tick, gpu(lost_reason="fell off the bus; reboot")) for tick in range(3)
    )
    starved = Watch().feed(
        snap(t, gpu(util=40.0, sm=35.0), [train(), *workers(8, 90.0)]) for t in range(60)
    )
    told = [summarize(d) for d in (lost, half, starved)]
    assert [group_of(d) for d in (lost, half, starved)] == ["LOST", "half working", "starved"]
    assert [t.role for t in told] == ["not_working", "waiting", "waiting"]
    assert told[0].charged_s is None and told[0].words == "LOST"


def with_badge(index: int, badge_id: str, level: Level, title: str) -> GpuDiagnosis:
    """A GPU that works, with a badge of five seconds."""
    badge = Badge(badge_id, level, title, "evidence", since=T0, lasted_s=5.0)
    return replace(troubled(index, "working", 0.0), badges=(badge,), began=T0 - 700.0, lasted_s=705)


RED_BADGES = {
    "ecc": "hardware error",
    "thermal": "thermal slowdown",
    "power_brake": "power brake",
    "fabric_errors": "fabric link",
    "memory_leak": "memory leak",
}


@pytest.mark.parametrize(("badge_id", "title"), RED_BADGES.items())
def test_a_gpu_with_a_red_badge_is_counted_under_it_and_looked_at_first(
    badge_id: str, title: str
) -> None:
    broken, healthy = with_badge(1, badge_id, "red", title), troubled(0, "working", 0.0)
    assert [group_of(healthy), group_of(broken)] == ["working", title]
    assert WorstGpuSelector().observe(0.0, [healthy, broken]) == "GPU-1"
    waits = troubled(2, "starved", 900.0, verdict="dataloader_cpu")
    assert WorstGpuSelector().observe(0.0, [waits, broken]) == "GPU-1"
    assert group_of(replace(waits, badges=broken.badges)) == title


def test_other_badges_leave_a_gpu_among_those_that_work() -> None:
    full = with_badge(0, "memory_full", "yellow", "memory full")
    assert group_of(full) == "working" and WorstGpuSelector().observe(0.0, [full]) is None
    assert group_of(with_badge(0, "straggler", "yellow", "straggler")) == "working poorly"


def test_trouble_lasts_as_long_as_what_names_it() -> None:
    for badge_id, title in RED_BADGES.items():
        assert named_trouble(with_badge(0, badge_id, "red", title)) == Trouble(title, 5.0)
    assert named_trouble(with_badge(0, "lost", "red", "GPU lost")) == Trouble("LOST", 5.0)
    straggler = with_badge(0, "straggler", "yellow", "straggler")
    assert named_trouble(straggler) == Trouble("straggler", 5.0)
    busy = replace(troubled(0, "busy_not_working", 9.0), lasted_s=60.0, badges=straggler.badges)
    assert named_trouble(busy) == Trouble("busy, not working", 60.0)
    idle = replace(troubled(0, "idle_allocated", 9.0), lasted_s=60.0)
    assert named_trouble(idle) == Trouble("idle", 60.0)
    assert since_words(summarize(with_badge(0, "ecc", "red", "hardware error"))).endswith(", 5 s")


def test_a_badge_is_as_old_as_the_time_for_which_it_was_measured() -> None:
    watch = Watch()
    watch.feed(snap(tick, gpu(), [train()]) for tick in range(60))
    broken = gpu(ecc_uncorrected=3)
    d = watch.feed(snap(60 + tick, broken, [train()]) for tick in range(4))
    (badge,) = d.badges
    assert (badge.id, badge.since, badge.lasted_s) == ("ecc", T0 + 60.0, 3.0)
    d = watch.feed([snap(1000, broken, [train()])])
    assert d.badges[0].since == T0 + 60.0 and d.badges[0].lasted_s < 10.0


def test_one_sample_of_a_broken_card_says_so_as_its_badge_does() -> None:
    for broken in ({"remap_pending": True}, {"remap_failed": True}, {"xid": 94}):
        sample = gpu(**broken)
        d = Watch().feed([snap(0, sample)])
        assert (d.level, summarize(d).title) == ("red", "hardware error")
        assert in_sample(sample) == ("hardware error", "not_working")
    assert in_sample(gpu(xid=31))[1] == "work"
    assert in_sample(gpu(recovery_action=2)) == ("recovery needed", "not_working")


def test_a_sample_says_that_a_link_of_the_job_s_fabric_is_down() -> None:
    down = replace(HOST, fabric_ports_down=1)
    assert in_sample(gpu(), [train(nccl=True)], down) == ("fabric link", "not_working")
    assert in_sample(gpu(), [train(nccl=True)], HOST)[1] == "work"
    assert in_sample(gpu(), [train(nccl=False)], down)[1] == "work", "it does not use the fabric"


# --- which GPU to look at first ---


def troubled(
    index: int,
    state: State,
    charged_s: float,
    *,
    verdict: str = "small_kernels",
    about: int | None = None,
) -> GpuDiagnosis:
    levels: dict[State, Level] = {"busy_not_working": "red", "starved": "red", "working": "green"}
    flag = "A" if state == "busy_not_working" else None
    return GpuDiagnosis(
        index, f"GPU-{index}", verdict, levels.get(state, "grey"), "t", "t", flag, state=state, charged_s=charged_s,
        about=about,
    )  # fmt: skip


def test_what_does_not_work_comes_before_what_waits_and_healthy_gpus_never() -> None:
    first = WorstGpuSelector()
    assert first.observe(0.0, [troubled(0, "working", 0.0)]) is None
    waits = troubled(1, "starved", 900.0, verdict="dataloader_cpu")
    assert first.observe(1.0, [troubled(0, "working", 0.0), waits]) == "GPU-1"
    assert first.observe(2.0, [troubled(0, "busy_not_working", 1.0), waits]) == "GPU-0"


def test_another_gpu_takes_over_only_once_it_has_lost_half_as_much_again_for_half_a_minute() -> (
    None
):
    first, mine = WorstGpuSelector(), troubled(0, "busy_not_working", 100.0)
    assert first.observe(0.0, [mine, troubled(1, "busy_not_working", 90.0)]) == "GPU-0"
    much, more = troubled(1, "busy_not_working", 149.0), troubled(1, "busy_not_working", 151.0)
    assert {first.observe(float(t), [mine, much]) for t in range(1, 100)} == {"GPU-0"}
    assert {first.observe(float(t), [mine, more]) for t in range(100, 130)} == {"GPU-0"}
    assert first.observe(130.0, [mine, more]) == "GPU-1"


def test_a_break_starts_the_thirty_seconds_anew() -> None:
    selector, mine = WorstGpuSelector(), troubled(0, "busy_not_working", 100.0)
    for t in range(60):
        other = troubled(1, "busy_not_working", 90.0 if t % 29 == 0 else 200.0)
        assert selector.observe(float(t), [mine, other]) == "GPU-0"


def test_gpus_that_wasted_nothing_or_as_good_as_the_same_are_not_exchanged() -> None:
    for state, verdict, charged_s in (
        ("working", "no_tensor_cores", (0.0, 0.0)), ("busy_not_working", "hang", (0.0, 0.0)),
        ("starved", "dataloader_cpu", (0.0, 9.0)), ("starved", "dataloader_cpu", (10.0, 15.0)),
    ):  # fmt: skip
        pair = [
            replace(troubled(index, state, charged, verdict=verdict), role="waiting")
            for index, charged in enumerate(charged_s)
        ]
        selector = WorstGpuSelector()
        selector.observe(0.0, pair[:1])
        assert {selector.observe(float(t), pair) for t in range(1, 400)} == {"GPU-0"}, verdict


def test_two_lost_gpus_are_not_exchanged() -> None:
    selector, monitor = WorstGpuSelector(), Monitor(charts=False)
    selected = set()
    for t in range(200):
        lost = [
            gpu(index, util=None, sm=None, lost_reason="it fell off the bus") for index in (0, 1)
        ]
        selected.add(selector.observe(float(t), monitor.feed(snap(t, lost)).diagnoses))
    assert len(selected) == 1


def test_once_its_verdict_has_ended_the_worst_of_the_others_follows_at_once() -> None:
    first = WorstGpuSelector()
    others = [troubled(1, "busy_not_working", 50.0), troubled(2, "busy_not_working", 60.0)]
    assert first.observe(0.0, [troubled(0, "busy_not_working", 100.0), *others]) == "GPU-0"
    assert first.observe(1.0, [troubled(0, "working", 0.0), *others]) == "GPU-2"


def test_the_gpu_that_others_hang_for_comes_before_these() -> None:
    first, late = WorstGpuSelector(), troubled(2, "idle_allocated", 10.0, verdict="idle_allocated")
    hang = [troubled(i, "busy_not_working", 60.0, verdict="hang", about=2) for i in (0, 1)]
    assert first.observe(0.0, [*hang, late]) == "GPU-2"
    assert first.observe(1.0, [*hang, troubled(2, "idle", 0.0, verdict="idle")]) == "GPU-0"


def test_the_time_of_a_gpu_that_works_is_not_called_wasted() -> None:
    works = summarize(troubled(0, "working", 0.0))
    assert "wasted" not in since_words(replace(works, named_since=T0, named_s=60.0, charged_s=0.0))
    waits = replace(works, named_since=T0, named_s=60.0, charged_s=30.0)
    assert since_words(waits).endswith("30 of 60 s wasted")
