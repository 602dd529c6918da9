"""What a dcgm-exporter prints, taken apart."""

from __future__ import annotations

import pytest

from gputop.sources.activity.dcgm_exporter import BLANK, parse
from tests.dcgm.exporter import TEXTS, row
from tests.nvml.stand_in import uuid_of

UUID = "GPU-1"
WHOLE = (UUID, None)
OLD = """# HELP DCGM_FI_PROF_SM_ACTIVE The ratio of cycles an SM has at least 1 warp assigned (in %).
# TYPE DCGM_FI_PROF_SM_ACTIVE gauge
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-1",device="nvidia0",modelName="A100 {x}, y",Hostname="n"} 0.375
DCGM_FI_PROF_SM_ACTIVE{gpu="1",UUID="GPU-2",Hostname="n"} 0.000000
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",UUID="GPU-1",pod="a\\"b",container="c\\\\"} 2.5e-1 1780000000000
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-1"} 140737488355328.000000
DCGM_FI_PROF_PIPE_FP64_ACTIVE{gpu="0",UUID="GPU-1"} 9223372036854775794
DCGM_FI_PROF_SM_OCCUPANCY{gpu="0",UUID="GPU-1"} NaN
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-1",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"} 0.9
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-1",GPU_I_PROFILE="1g.10gb"} 0.8
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-1",GPU_I_ID="x"} 0.7
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-1",pod="open} 0.6
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1"} 96
garbage line {
# EOF
"""


def test_rows_are_of_gpus_and_instances_by_uuid_and_blanks_are_none() -> None:
    assert parse(OLD).rows == {
        (UUID, None): {
            "sm_active_pct": 0.375,
            "tensor_active_pct": 0.25,
            "dram_active_pct": None,
            "fp64_active_pct": None,
            "sm_occupancy_pct": None,
        },
        ("GPU-2", None): {"sm_active_pct": 0.0},
        (UUID, 7): {"sm_active_pct": 0.9},
    }


def test_the_blank_of_a_double_is_not_taken_for_percent() -> None:
    """DCGM's blank for doubles is 2**47: far below that for integers, and far above any value."""
    assert BLANK == 140737488355328.0
    assert not parse(OLD).prints_percent()
    assert not parse(row("PROF_SM_ACTIVE", BLANK + 2, UUID)).prints_percent()
    assert not parse(row("PROF_SM_ACTIVE", 3e9, UUID)).prints_percent()


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("SM_ACTIVE", "SM_UTIL_RATIO", "sm_active_pct"),
        ("SM_OCCUPANCY", "SM_OCCUPANCY_RATIO", "sm_occupancy_pct"),
        ("PIPE_TENSOR_ACTIVE", "TENSOR_UTIL_RATIO", "tensor_active_pct"),
        ("DRAM_ACTIVE", "DRAM_UTIL_RATIO", "dram_active_pct"),
        ("PIPE_FP64_ACTIVE", "FP64_UTIL_RATIO", "fp64_active_pct"),
        ("PIPE_FP32_ACTIVE", "FP32_UTIL_RATIO", "fp32_active_pct"),
        ("PIPE_FP16_ACTIVE", "FP16_UTIL_RATIO", "fp16_active_pct"),
        ("GR_ENGINE_ACTIVE", "GR_ENGINE_UTIL_RATIO", "graphics_active_pct"),
    ],
)
def test_names_of_both_generations_and_labels_of_both_spellings_are_known(old: str, new: str, key: str) -> None:
    for name in (old, new):
        for text in (row(f"PROF_{name}", 0.5, UUID), row(f"PROF_{name}", 0.5, UUID).replace("UUID", "uuid")):
            assert parse(text).rows == {WHOLE: {key: 0.5}}


def test_what_exporters_of_today_print_is_read() -> None:
    first = parse((TEXTS / "exporter_3.txt").read_text()).rows
    assert first == {
        (uuid_of(1), None): {"graphics_active_pct": 0.973841, "sm_active_pct": 0.4125, "tensor_active_pct": 0.1875},
        (uuid_of(0), None): {"graphics_active_pct": 0.0, "sm_active_pct": 0.0, "tensor_active_pct": 0.0},
    }
    split = parse((TEXTS / "exporter_4_mig.txt").read_text()).rows
    assert {entity: found["sm_active_pct"] for entity, found in split.items()} == {
        (uuid_of(0), 7): 0.87,
        (uuid_of(0), 8): 0.0,
        (uuid_of(1), None): 0.42,
    }


def test_several_pods_on_one_gpu_are_one_gpu() -> None:
    text = row("PROF_SM_ACTIVE", 0.4, UUID, pod="a") + row("PROF_SM_ACTIVE", 0.4, UUID, pod="b")
    assert parse(text).rows == {WHOLE: {"sm_active_pct": 0.4}}


def test_half_a_number_at_the_end_of_an_answer_is_none() -> None:
    whole = row("PROF_SM_ACTIVE", 0.25, UUID)
    assert parse(whole[: whole.index("0.25") + 3]).rows == {}
