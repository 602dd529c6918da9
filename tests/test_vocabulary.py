"""Every vocabulary has one home: a name that stands in two files will one day differ between them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import gputop
from gputop.diagnosis.types import STATE_WORDS
from gputop.features.fleet.judge import WORDS as FLEET_WORDS
from gputop.features.fleet.judge import titles
from gputop.model.derived import NOT_THROTTLING, WORDS, throttle_words
from gputop.model.sm import MEASURED, SM_SOURCES, SmSource
from gputop.model.snapshot import EVENT_KINDS, ROLES, EventKind, Role

PACKAGE = Path(gputop.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))


def _collections(tree: ast.AST) -> Iterator[frozenset[str]]:
    """The texts of every set, list, tuple, mapping and Literal of a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Set | ast.List | ast.Tuple):
            members: list[ast.expr | None] = list(node.elts)
        elif isinstance(node, ast.Dict):
            members = list(node.keys)
        else:
            continue
        yield frozenset(m.value for m in members if isinstance(m, ast.Constant) and isinstance(m.value, str))


def _homes(words: frozenset[str], least: int) -> dict[str, int]:
    """The files that list at least so many of these words together."""
    found: dict[str, int] = defaultdict(int)
    for path in FILES:
        text = path.read_text()
        if sum(f'"{word}"' in text for word in words) < least:
            continue
        for texts in _collections(ast.parse(text)):
            if len(texts & words) >= least and len(texts & words) == len(texts):
                found[str(path.relative_to(PACKAGE))] += 1
    return found


def test_every_sm_source_has_its_row_and_its_name_stands_in_one_file() -> None:
    assert tuple(SM_SOURCES) == get_args(SmSource)
    assert MEASURED.isdisjoint({"bound", "none"})
    assert set(_homes(frozenset(SM_SOURCES), 2)) == {"model/sm.py"}


def test_event_kinds_and_roles_are_listed_once() -> None:
    assert frozenset(get_args(EventKind)) == EVENT_KINDS
    assert frozenset(get_args(Role)) == ROLES == {"gpu", "loader", "helper", "orphan"}
    assert set(_homes(EVENT_KINDS, 3)) == {"model/snapshot.py"}


def test_throttle_bits_are_those_of_nvml_and_are_written_in_one_file() -> None:
    import pynvml

    assert {bit: getattr(pynvml, name) for bit, name in _NVML_NAMES.items()} == {bit: bit for bit in WORDS}
    assert throttle_words(sum(WORDS)) == [word for bit, word in WORDS.items() if not bit & NOT_THROTTLING]
    numbers = {"0x4", "0x8", "0x08", "0x04", "0x20", "0x40", "0x60", "0x80"}
    homes = [
        str(path.relative_to(PACKAGE))
        for path in FILES
        if len({word for word in path.read_text().replace(",", " ").split() if word in numbers}) > 1
    ]
    assert homes == ["model/derived.py"]


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


def test_a_local_source_is_made_of_settings_in_one_place() -> None:
    """Six commands wrote the same five arguments; ``doctor`` asks the same source with arguments of its own, and so
    does the API, which has no settings."""
    makers = [str(path.relative_to(PACKAGE)) for path in FILES if "LocalSource(" in path.read_text()]
    assert makers == ["api/gpu_watch.py", "api/reading.py", "sources/doctor_report.py", "sources/local.py"]


def test_the_words_of_a_state_are_written_in_one_file_and_node_fleet_and_rule_say_the_same() -> None:
    words = {word for word in STATE_WORDS.values() if " " in word}
    homes = set()
    for path in FILES:
        text = path.read_text()
        if any(word in text.lower() for word in words):
            texts = {n.value for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant) and type(n.value) is str}
            if words & {value.lower().split(":")[0].strip() for value in texts}:
                homes.add(str(path.relative_to(PACKAGE)))
    assert homes == {"diagnosis/types.py"}
    fleets_own = {"allocated_unused": "allocated, unused", "down": "down", "late": "driver late", "lost": "lost"}
    assert dict(FLEET_WORDS) == {**STATE_WORDS, **fleets_own}
    assert titles()["idle_holding_memory"] == STATE_WORDS["idle_allocated"]
