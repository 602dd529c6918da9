"""The facts about a GPU that its pane, its line and its page share, and the totals of a node."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from gputop.output.ansi import plain_text
from gputop.paint.facts import FACTS, engines, totals
from gputop.paint.hint_row import hint_of
from gputop.paint.keys import KEYS
from gputop.paint.main_screen import main_screen
from gputop.paint.view import View
from tests.support.frames import demo_frame


def test_what_is_not_measured_has_its_reason_and_is_never_zero() -> None:
    gpu = demo_frame().snapshot.gpus[0]
    bare = replace(
        gpu,
        fan_pct=None,
        pstate=None,
        encoder_pct=0.0,
        unavailable={"fan_pct": "no fan", "pstate": "denied"},
    )
    texts = [text for text, _ in engines(bare, 100)]
    assert "P-state, fan n/a" in texts and "ENC   0" in texts
    assert FACTS["power_w"].text(None) == "n/a"


def test_totals_count_a_split_gpu_once_and_leave_out_what_nobody_measures() -> None:
    parent, *_ = demo_frame().snapshot.gpus
    static = parent.static
    instances = [
        replace(parent, power_w=None, util_pct=None, sm_active_pct=sm, mem_used_bytes=2.0**30, mem_total_bytes=2.0**32,
                static=replace(static, uuid=f"MIG-{sm}", mig_parent=static.uuid, mig_instance=str(sm)))
        for sm in (20.0, 60.0)
    ]  # fmt: skip
    whole = replace(parent, power_w=300.0)
    assert [text for text, _ in totals([whole, *instances])] == [
        "300 W",
        "2.0 / 8.0 GiB",
        "mean SM  40 %",
    ]
    assert totals([replace(parent, lost_reason="gone", power_w=None)]) == []


@pytest.mark.parametrize(("width", "height"), [(160, 48), (120, 52), (200, 60)])
def test_the_selected_gpu_has_clock_state_and_engines_and_the_node_its_totals(
    width: int, height: int
) -> None:
    text = plain_text(main_screen(demo_frame(), View(hint=hint_of(KEYS)), width, height).rows)
    assert (
        len(re.findall(r" MHz +P0 .*fan n/a", text)) == 1
        and "8 GPUs   3" in text
        and "mean SM" in text
    )
