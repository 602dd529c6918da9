"""What is generated is current: the README's table, the screenshots; and what is declared once is complete."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from gputop.diagnosis.types import STATE_WORDS
from gputop.diagnosis.verdict.catalogue import titles
from gputop.features.fleet.judge.gpu_state import WORDS as FLEET_WORDS
from gputop.model import metrics
from gputop.model.derived import NOT_THROTTLING, WORDS, throttle_words
from gputop.model.sm import MEASURED, SM_SOURCES, SmSource
from gputop.model.snapshot import GpuSample, GpuStatic, HostSample, ProcessSample, ProcessStatic
from tests.tools import card_picture
from tests.tools.reference import MADE_BY, ROOT, texts
from tests.tools.screenshots import FOLDER, SIZES, TOUR, TOUR_STEPS, pictures, tour, write

README = ROOT / "README.md"


@pytest.mark.slow
def test_the_generated_pages_are_those_of_today() -> None:
    old = [
        path.name
        for path, text in texts().items()
        if not path.is_file() or path.read_text() != text
    ]
    assert not old, f"run `{MADE_BY}`"


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 110
    assert max(map(len, (line for line in text.splitlines() if not line.startswith("|")))) <= 120


def test_every_link_between_the_pages_leads_somewhere() -> None:
    for page in (README, *(ROOT / "docs").rglob("*.md")):
        for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            assert link.startswith("https://") or (page.parent / link).exists(), (page, link)


def test_the_pages_name_files_that_exist() -> None:
    for page in (ROOT / "docs" / "contributing.md", *(ROOT / "docs" / "design").glob("*.md")):
        for name in re.findall(r"`([a-z_]+/[a-z_/.]*)`", page.read_text(encoding="utf-8")):
            assert (ROOT / "gputop" / name).exists() or (ROOT / name).exists(), (page, name)


def test_there_is_a_picture_of_every_scenario_and_no_other() -> None:
    assert {path.name for path in FOLDER.glob("*.svg")} == {*pictures(), TOUR}, (
        "run `python -m tests.tools.screenshots`"
    )


LOOKED_AT = {f"{name}.svg" for name in SIZES} | {"scenario_mig.svg", "scenario_hang.svg"}
"""What shows a change of the painter sooner than all of them do, which take a minute of CPU."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "names", [LOOKED_AT, pytest.param({*pictures(), TOUR}, marks=pytest.mark.weekly)]
)
def test_the_screenshots_show_the_screen_of_today(names: set[str], tmp_path: Path) -> None:
    write(tmp_path, names)
    old = [name for name in names if (FOLDER / name).read_text() != (tmp_path / name).read_text()]
    assert not old, "run `python -m tests.tools.screenshots`"


@pytest.mark.slow
def test_the_tour_s_picture_moves_through_its_screens_and_is_small() -> None:
    text = tour()
    assert len(text) < 2_000_000
    shown = re.findall(r'<g id="s(\d)"', text)
    assert shown == [str(number) for number in range(len(TOUR_STEPS) + 2)]
    assert all(f"@keyframes s{number}" in text for number in shown)
    assert "BUSY, NOT WORKING" in text and "after: " in text and "prefers-reduced-motion" in text
    assert "●" not in text, "drawn as a shape: not every font has it"


IN_WORDS = {
    "sm_lack": "sm_reason", "main_looks": "main_waits", "waits_for": "held_up_by", "outsiders": "cpu_outsiders",
    "batch_job": "job", "contained_in": "container",
}  # fmt: skip
"""The property of each field of several parts that says it in words, which is its key in the catalogue."""


def _fields(kind: type) -> set[str]:
    return {IN_WORDS.get(name, name) for name in kind.__struct_fields__}


def test_the_catalogue_and_the_snapshot_have_the_same_keys() -> None:
    assert _fields(GpuStatic) == set(metrics.GPU_STATIC)
    assert _fields(GpuSample) - {"static", "unavailable", "doubts"} == {
        *metrics.GPU_METRICS,
        *metrics.SM_PROVENANCE,
        *metrics.GPU_STATE,
    }
    assert _fields(HostSample) - {"unavailable"} == set(metrics.HOST_METRICS)
    assert _fields(ProcessStatic) == set(metrics.PROCESS_STATIC)
    assert _fields(ProcessSample) - {"static", "unavailable", "feed", "main"} == {
        key for key, row in metrics.PROCESS_METRICS.items() if not row.path and key != "waiting_on"
    }
    assert all(
        getattr(ProcessSample(1), key) is None
        for key, row in metrics.PROCESS_METRICS.items()
        if row.path
    )


_NVML_NAMES = {
    0x1: "nvmlClocksEventReasonGpuIdle",
    0x2: "nvmlClocksEventReasonApplicationsClocksSetting",
    0x4: "nvmlClocksEventReasonSwPowerCap",
    0x8: "nvmlClocksThrottleReasonHwSlowdown",
    0x10: "nvmlClocksEventReasonSyncBoost",
    0x20: "nvmlClocksEventReasonSwThermalSlowdown",
    0x40: "nvmlClocksThrottleReasonHwThermalSlowdown",
    0x80: "nvmlClocksThrottleReasonHwPowerBrakeSlowdown",
    0x100: "nvmlClocksEventReasonDisplayClockSetting",
}


def test_every_sm_source_has_its_row() -> None:
    assert tuple(SM_SOURCES) == get_args(SmSource)
    assert MEASURED.isdisjoint({"bound", "none"})


def test_throttle_bits_are_those_of_nvml() -> None:
    import pynvml

    assert {bit: getattr(pynvml, name) for bit, name in _NVML_NAMES.items()} == {
        bit: bit for bit in WORDS
    }
    assert throttle_words(sum(WORDS)) == [
        word for bit, word in WORDS.items() if not bit & NOT_THROTTLING
    ]


def test_a_node_and_a_fleet_name_states_alike() -> None:
    fleets_own = {"allocated_unused": "allocated, unused", "down": "down", "late": "driver late",
                  "pending": "not asked yet", "lost": "lost"}  # fmt: skip
    assert dict(FLEET_WORDS) == {**STATE_WORDS, **fleets_own}
    assert titles()["idle_holding_memory"] == STATE_WORDS["idle_allocated"]


@pytest.mark.slow
def test_readmes_card_is_the_one_that_its_command_draws_today() -> None:
    assert card_picture.DRAWING.read_text() == card_picture.drawing(), (
        f"run `{card_picture.MADE_BY}`"
    )
