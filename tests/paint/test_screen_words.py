"""What users of other monitors look for is on the screen, and words say what they count."""

from __future__ import annotations

import re

from msgspec.structs import replace

from gputop.model.snapshot import GpuSample, GpuStatic
from gputop.monitor import Frame
from gputop.output.ansi import plain_text
from gputop.paint.glyphs import COLOUR
from gputop.paint.gpu_fields import gap_style
from gputop.paint.help_rows import help_rows
from gputop.paint.main_screen import main_screen
from gputop.paint.provenance import board_rows
from gputop.paint.replay_bar import replay_bar
from gputop.paint.view import Replay, View
from tests.support.frames import demo_frame


def _text(frame: Frame, width: int, height: int, view: View | None = None) -> str:
    return plain_text(main_screen(frame, view or View(), width, height).rows)


def test_time_beside_a_verdict_says_that_it_was_wasted() -> None:
    assert re.search(r"since [\d:]+, \d+ of \d+ min wasted", _text(demo_frame(), 160, 60))


def test_the_help_has_all_three_rules_and_names_the_presets() -> None:
    text = " ".join(plain_text(help_rows(COLOUR, 160)).split())
    assert "UTIL of 10 or more with SM below 0.1 of it" in text
    assert "--key-preset nvitop or htop" in text


def test_a_list_keeps_the_cause_and_gives_up_the_number() -> None:
    text = _text(demo_frame(), 100, 30, View(layout="list"))
    assert "BUSY, NOT WORKING: communication" in text or "BUSY, NOT WORKING: comm" in text


def test_memory_has_a_bar_in_a_wide_list_alone() -> None:
    wide, narrow = (
        next(
            line
            for line in _text(demo_frame(), w, 30, View(layout="list")).splitlines()
            if line.startswith(" 7 ")
        )
        for w in (140, 100)
    )
    assert re.search(r"█+.? +30/80", wide) and not re.search(r"█+.? +30/80", narrow)


def test_the_host_has_load_swap_and_uptime() -> None:
    frame = demo_frame()
    host = replace(frame.snapshot.host, swap_used_bytes=2.0 * 2**30)
    text = _text(replace(frame, snapshot=replace(frame.snapshot, host=host)), 200, 60)
    assert re.search(r"load \d+ \d+ \d+   swap 2\.0 / 8 GiB   up 11d 00h", text)


def test_the_page_of_a_gpu_has_the_facts_of_its_board() -> None:
    static = GpuStatic(
        0, "GPU-1", "H100", pci_bus_id="00000000:01:00.0", serial="165", persistence=True,
        compute_mode="default", driver="580.65", cuda="13.0",
    )  # fmt: skip
    rows = plain_text(board_rows(GpuSample(static), 100)).splitlines()
    shown = [line.split()[-1] for line in rows]
    assert shown[:7] == ["00000000:01:00.0", "GPU-1", "165", "on", "default", "580.65", "13.0"]
    assert shown[7:] == ["n/a", "n/a"]


def test_a_gap_has_a_colour_from_twenty_points_on() -> None:
    assert gap_style(19, alarm=False) == "dim" and gap_style(20, alarm=False) == "value.gap"


def test_the_time_line_says_how_much_is_judged_and_which_gpus_show() -> None:
    replay = Replay(0.0, 600.0, 300.0, playing=False, speed=1.0, judged_pct=10.0)
    rows, _ = replay_bar(demo_frame(), View(replay=replay), replay, 160, 6)
    title = plain_text(rows[:1])
    assert re.search(r"judging 10 %   GPUs 0-3 of 8 ", title)
