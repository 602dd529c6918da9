"""GPUs of which little can be said: lost in a container, split without instances, virtual."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.sm import LackKind, SmLack
from gputop.model.snapshot import GpuSample
from tests.support.scenes import Watch, gpu, snap, steady, train

UNKNOWN = "the driver answers with an unknown error"


def after_loss(gpus: list[GpuSample]) -> tuple[GpuDiagnosis, ...]:
    watch = Watch()
    watch.feed(snap(t, [gpu(sample.static.index) for sample in gpus], [train()]) for t in range(20))
    return watch.diagnoser.diagnose(snap(20, gpus))


@pytest.mark.parametrize("count", [1, 2, 8])
def test_all_gpus_that_are_lost_at_once_get_the_containers_remedy(count: int) -> None:
    for d in after_loss([gpu(i, lost_reason=UNKNOWN) for i in range(count)]):
        (badge,) = d.badges
        assert badge.id == "lost" and "restart it" in badge.remedy and "CDI" in badge.remedy
        assert badge.evidence == f"all GPUs at once: {UNKNOWN}"


def test_one_of_two_lost_gpus_and_a_reason_with_a_remedy_keep_theirs() -> None:
    one, _ = after_loss([gpu(0, lost_reason=UNKNOWN), gpu(1)])
    assert "container" not in one.badges[0].remedy
    for d in after_loss(
        [gpu(i, lost_reason="GPU is lost: it fell off the bus; reset or reboot") for i in range(2)]
    ):
        assert d.badges[0].remedy == "reset or reboot"


def split_gpu(*, with_instance: bool) -> list[GpuSample]:
    parent = gpu(0, util=None, sm=None, sm_source="none")
    parent = replace(parent, static=replace(parent.static, mig_enabled=True))
    instance = gpu(1, util=None, sm=50.0)
    static = replace(
        instance.static, mig_enabled=True, mig_parent=parent.static.uuid, mig_instance="1g.10gb"
    )
    return [parent, replace(instance, static=static)] if with_instance else [parent]


def test_mig_without_instances_says_to_create_some_or_to_switch_it_off() -> None:
    watch = Watch()
    said = watch.feed(snap(t, split_gpu(with_instance=False)) for t in range(3))
    assert said.title == "MIG without instances" and "nvidia-smi mig -cgi" in said.evidence[0]
    other = Watch().feed(snap(t, split_gpu(with_instance=True)) for t in range(3))
    assert "instances" not in other.title


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA A40-48Q", None),
        ("GRID T4-8C", None),
        ("NVIDIA A100-4-20C", None),
        ("NVIDIA H100 80GB HBM3", "virtual"),
    ],
)
def test_a_virtual_gpu_is_never_offered_hardware_counters(name: str, kind: LackKind | None) -> None:
    sample = gpu(sm_source="none", sm=None, sm_lack=SmLack(("no SM counter",), kind=kind))
    said = steady(40, replace(sample, static=replace(sample.static, name=name)), [train()])
    assert "--perf" not in said.remedy and "enable_profiling" in said.remedy
