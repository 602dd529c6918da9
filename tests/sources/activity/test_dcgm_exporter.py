"""SM activity from a dcgm-exporter that already runs: whose values it has, and for how long they are believed."""

from __future__ import annotations

import pytest

from gputop.model.snapshot import GpuStatic
from gputop.model.source import UsageError
from gputop.sources.activity.dcgm_exporter import LONGEST_BACK_OFF_S, Exporter, entity_of
from gputop.sources.activity.exporter_page import BLANK, parse
from gputop.sources.activity.fallback_chain import MeasuredActivity, SmReadFailed, Waiting
from tests.dcgm.exporter import TEXTS, row
from tests.nvml.stand_in import uuid_of

UUID = "GPU-1"
WHOLE = (UUID, None)
NEW = row("PROF_SM_UTIL_RATIO", 0.5, UUID)


def body(sm: float | None = 0.5, energy: int = 0, dram: float | None = None) -> str:
    """An answer with SM activity, energy and DRAM activity of one GPU, where they are given."""
    parts = [
        ("PROF_SM_ACTIVE", sm),
        ("PROF_DRAM_ACTIVE", dram),
        ("DEV_TOTAL_ENERGY_CONSUMPTION", energy),
    ]
    return "".join(row(name, value, UUID) for name, value in parts if value is not None)


def exporter(*bodies: str | Exception, url: str | None = "http://node:9400/metrics") -> Exporter:
    """An exporter with these answers, the last one again and again."""
    answers = list(bodies)

    def answer(_url: str, _timeout_s: float) -> str:
        given = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(given, Exception):
            raise given
        return given

    return Exporter(url, answer)


def measured(value: MeasuredActivity | Waiting) -> MeasuredActivity:
    assert isinstance(value, MeasuredActivity), value
    return value


def test_ratios_become_percent() -> None:
    tensor = row("PROF_PIPE_TENSOR_ACTIVE", 0.25, UUID)
    source = exporter(body(0.375, dram=BLANK) + tensor)
    source.scrape(10.0)
    got = measured(source.newest(WHOLE, 10.5))
    assert got.values == {"sm_active_pct": 37.5, "tensor_active_pct": 25.0}
    assert got.missing["dram_active_pct"] == "dcgm-exporter gives no number"
    assert got.missing["fp16_active_pct"] == "not exported by dcgm-exporter"


def test_window_and_age_come_from_watching_the_values_change() -> None:
    source = exporter(body(0.1), body(0.1), body(0.2), body(0.2), body(0.3))
    seen = []
    for now in (0.0, 10.0, 20.0, 30.0, 50.0):
        source.scrape(now)
        got = measured(source.newest(WHOLE, now))
        seen.append((got.window_s, got.t))
    assert seen == [(None, None), (None, None), (None, 20.0), (None, 20.0), (30.0, 50.0)]


def test_values_that_stop_to_change_are_not_believed() -> None:
    source = exporter(body(0.1), body(0.2), body(0.3), body(0.3))
    for now in (0.0, 10.0, 20.0):
        source.scrape(now)
    source.scrape(49.0)
    assert measured(source.newest(WHOLE, 49.0)).t == 20.0
    source.scrape(51.0)
    with pytest.raises(SmReadFailed, match="has repeated itself for 31 s"):
        source.newest(WHOLE, 51.0)


def test_an_exporter_that_died_is_believed_until_new_values_were_due() -> None:
    source = exporter(
        body(0.1), body(0.2), body(0.3), ConnectionRefusedError(111, "Connection refused")
    )
    for now in (0.0, 30.0, 60.0, 61.0):
        source.scrape(now)
    got = measured(source.newest(WHOLE, 104.0))
    assert got.t == 60.0
    with pytest.raises(SmReadFailed, match="at node:9400: Connection refused") as failure:
        source.newest(WHOLE, 106.0)
    assert "restart it" in failure.value.fix


def test_a_fetch_that_never_returns_makes_its_values_old_too() -> None:
    source = exporter(body(0.1), body(0.2), body(0.3))
    for now in (0.0, 10.0, 20.0):
        source.scrape(now)
    with pytest.raises(SmReadFailed, match="has not answered for 40 s"):
        source.newest(WHOLE, 60.0)


def test_one_that_does_not_answer_is_asked_ever_less() -> None:
    source = exporter(OSError("no"), *[OSError("no")] * 8, NEW)
    waits = []
    for now in range(9):
        source.scrape(float(now))
        waits.append(source.wait_s(float(now)))
    assert waits == [
        1.0,
        2.0,
        4.0,
        8.0,
        16.0,
        32.0,
        LONGEST_BACK_OFF_S,
        LONGEST_BACK_OFF_S,
        LONGEST_BACK_OFF_S,
    ]
    source.scrape(20.0)
    assert source.wait_s(20.0) == 1.0


def test_counters_without_sm_activity_come_with_the_line_that_mends_it() -> None:
    source = exporter(body(None, dram=0.25))
    source.scrape(0.0)
    got = measured(source.newest(WHOLE, 0.0))
    assert got.values == {"dram_active_pct": 25.0}
    assert "exports no SM activity" in got.missing["sm_active_pct"]
    assert "uncomment DCGM_FI_PROF_SM_ACTIVE" in got.fix


@pytest.mark.parametrize(
    ("text", "entity", "why", "fix"),
    [
        (body(None), WHOLE, "exports no SM activity", "uncomment DCGM_FI_PROF_SM_ACTIVE"),
        (body(0.5), ("GPU-other", None), "does not know this GPU", "all GPUs"),
        (body(0.5), (UUID, 7), "has no counters of this MIG instance", "MIG instances"),
        (
            row("PROF_SM_ACTIVE", 0.5, UUID, GPU_I_PROFILE="1g.10gb", GPU_I_ID="7"),
            WHOLE,
            "exports no SM",
            "uncomment",
        ),
    ],
)
def test_what_is_not_there_is_told_apart(
    text: str, entity: tuple[str, int | None], why: str, fix: str
) -> None:
    source = exporter(text)
    source.scrape(0.0)
    with pytest.raises(SmReadFailed, match=why) as failure:
        source.newest(entity, 0.0)
    assert fix in failure.value.fix


def test_an_instance_is_known_by_its_gpu_and_the_number_of_its_gpu_instance() -> None:
    whole = GpuStatic(0, UUID, "A100")
    assert entity_of(whole) == WHOLE
    assert entity_of(GpuStatic(1, "MIG-1", "A100 MIG", mig_parent=UUID, mig_instance="7/0")) == (
        UUID,
        7,
    )
    assert (
        entity_of(GpuStatic(1, "MIG-1", "A100 MIG", mig_parent=UUID, mig_instance="None/0")) is None
    )


# Where a dcgm-exporter is looked for, which addresses are taken, and what is shown of them.


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "localhost:9400", "ftp://x/metrics", "http://", "http://[::1", "http://x:99999/metrics",
        "http://x/\x1b[2J", "http://x/a b", "http://x/\r\nHost: y", "http://ü/metrics", "",
    ],
)  # fmt: skip
def test_only_http_addresses_are_taken(url: str) -> None:
    with pytest.raises(UsageError, match="--dcgm-url") as refusal:
        Exporter(url)
    assert str(refusal.value).isprintable()


def test_a_password_in_the_address_is_never_shown() -> None:
    source = exporter(OSError("refused"), url="http://me:secret@node:9400/metrics")
    source.scrape(0.0)
    with pytest.raises(SmReadFailed, match="at node:9400: refused") as failure:
        source.newest(WHOLE, 0.0)
    assert "secret" not in failure.value.reason
    with pytest.raises(UsageError) as refusal:
        Exporter("ftp://me:secret@node/metrics")
    assert "secret" not in str(refusal.value)


# What a dcgm-exporter prints, taken apart.

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
def test_names_of_both_generations_and_labels_of_both_spellings_are_known(
    old: str, new: str, key: str
) -> None:
    for name in (old, new):
        for text in (
            row(f"PROF_{name}", 0.5, UUID),
            row(f"PROF_{name}", 0.5, UUID).replace("UUID", "uuid"),
        ):
            assert parse(text).rows == {WHOLE: {key: 0.5}}


def test_what_exporters_of_today_print_is_read() -> None:
    first = parse((TEXTS / "exporter_3.txt").read_text()).rows
    assert first == {
        (uuid_of(1), None): {
            "graphics_active_pct": 0.973841,
            "sm_active_pct": 0.4125,
            "tensor_active_pct": 0.1875,
        },
        (uuid_of(0), None): {
            "graphics_active_pct": 0.0,
            "sm_active_pct": 0.0,
            "tensor_active_pct": 0.0,
        },
    }
    split = parse((TEXTS / "exporter_4_mig.txt").read_text()).rows
    assert {entity: found["sm_active_pct"] for entity, found in split.items()} == {
        (uuid_of(0), 7): 0.87,
        (uuid_of(0), 8): 0.0,
        (uuid_of(1), None): 0.42,
    }
