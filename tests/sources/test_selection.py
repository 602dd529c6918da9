"""Which GPUs ``--gpus`` and ``--visible`` mean."""

from __future__ import annotations

import pytest

from gputop.model.snapshot import GpuStatic
from gputop.model.source import UsageError
from gputop.sources.selection import choose

GPUS = (
    GpuStatic(0, "GPU-aaaa1111-0", "H100", mig_enabled=True),
    GpuStatic(1, "GPU-aaaa2222-0", "H100"),
    GpuStatic(2, "GPU-bbbb3333-0", "H100"),
    GpuStatic(
        3,
        "MIG-cccc",
        "H100 MIG 1g.10gb",
        mig_enabled=True,
        mig_parent="GPU-aaaa1111-0",
        mig_instance="7/0",
    ),
)


def test_without_a_choice_every_gpu_is_watched() -> None:
    assert choose(GPUS, None, None) == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("spec", "positions"),
    [
        ("2", (2,)),
        ("2,1", (1, 2)),
        ("gpu-BBBB", (2,)),
        (" 1 , GPU-bbbb ", (1, 2)),
        ("0", (0, 3)),
        ("MIG-cccc", (3,)),
        ("1-2", (1, 2)),
        ("1-1,2", (1, 2)),
        ("0-2", (0, 1, 2, 3)),
    ],
)
def test_gpus_by_index_and_uuid_prefix(spec: str, positions: tuple[int, ...]) -> None:
    assert choose(GPUS, spec, None) == positions


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("9", "--gpus 9: no such GPU: this machine has GPUs 0-2 and MIG instances 3"),
        ("0,GPU-zz", "--gpus GPU-zz: no such GPU"),
        ("GPU-aaaa", "--gpus GPU-aaaa: fits 2 GPUs"),
        ("-1", "--gpus -1: no such GPU"),
        (",", "name at least one GPU"),
        ("²", "no such GPU"),
        ("1-9", "--gpus 1-9: no such GPUs: this machine has GPUs 0-2"),
        ("2-1", "--gpus 2-1: no such GPUs"),
    ],
)
def test_an_unknown_gpu_is_named_beside_what_exists(spec: str, message: str) -> None:
    with pytest.raises(UsageError, match=None) as caught:
        choose(GPUS, spec, None)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "positions"),
    [
        ("1", (1,)),
        ("2,1", (1, 2)),
        ("GPU-bbbb", (2,)),
        ("MIG-cccc", (3,)),
        ("0", (0, 3)),
        ("", ()),
        ("-1", ()),
        ("1,9,2", (1,)),
        ("1,-1,2", (1,)),
        ("GPU-aaaa,1", ()),
        ("1,1,2", (1,)),
        ("NoDevFiles", ()),
    ],
)
def test_visible_devices_stop_at_the_first_invalid_entry_as_cuda_does(
    value: str, positions: tuple[int, ...]
) -> None:
    assert choose(GPUS, None, value) == positions


def test_both_choices_must_agree() -> None:
    assert choose(GPUS, "1,2", "2") == (2,)
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES=2 hides"):
        choose(GPUS, "1", "2")


@pytest.mark.parametrize("spec", ["9" * 5000, f"0,{'9' * 5000}", f"GPU-{'a' * 5000}", "1-" * 3000])
def test_an_index_of_any_length_is_no_gpu_in_a_short_line(spec: str) -> None:
    with pytest.raises(UsageError, match=r"no such GPU.*has GPUs 0-") as caught:
        choose(GPUS, spec, None)
    assert len(str(caught.value)) < 250
    assert choose(GPUS, None, spec.replace("0,", "")) == ()
