"""What the screen lets people do from where they look: copy, go through a count, other letters, other colours."""

# ruff: noqa: E501

from __future__ import annotations

import base64
import json

import pytest
from msgspec.structs import replace

from gputop.output.ticket import ticket_json, ticket_text
from gputop.paint.header import summary, waste_words
from gputop.paint.key_presets import PRESETS, wanted_keys
from gputop.paint.keys import KEYS, REPLAY_KEYS, rebound
from gputop.paint.process_columns import job_words
from gputop.paint.replay_bar import replay_bar, shown_keys
from gputop.paint.view import Replay, View
from gputop.paint.view_changes import next_counted
from gputop.tui.terminal.driver import MOST_COPIED_BYTES, copy_sequence
from tests.support.fake_app import app_on
from tests.support.frames import demo_frame
from tests.support.steady_pilot import shown


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("/home/ml/project/.venv/bin/python3.11 -u /home/ml/project/train.py --config big.yaml", "python train.py --config big.yaml"),
        ("/usr/bin/python -m vllm.entrypoints.openai.api_server --model llama", "python -m vllm.entrypoints.openai.api_server --model llama"),
        ("python -X dev -c print(1)", "python -c print(1)"),
        ("/opt/tritonserver/bin/tritonserver --model-repository=/m", "tritonserver --model-repository=/m"),
        ("python", "python"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_command_line_reads_as_the_job_that_it_is(command: str, words: str) -> None:
    assert job_words(command) == words


def test_the_share_that_was_no_work_is_of_the_node_and_what_was_not_judged_stands_apart() -> None:
    frame = demo_frame()
    waste = replace(
        frame.waste, recent_s=600.0, recent_gpus=6.0, recent_lost_gpus=1.1, recent_idle_gpus=2.0
    )
    assert (
        waste_words(replace(frame, waste=waste))
        == "last 10 min: 1.1 of 8 GPUs' time was wasted, 2.0 idle, 2.0 not judged"
    )
    # Of one GPU, too, what was not judged is no part of what was well or wasted.
    snapshot = replace(frame.snapshot, gpus=frame.snapshot.gpus[:1])
    one = replace(frame, snapshot=snapshot, diagnoses=frame.diagnoses[:1])
    waste = replace(waste, recent_gpus=0.14, recent_lost_gpus=0.13, recent_idle_gpus=0.0)
    assert (
        waste_words(replace(one, waste=waste))
        == "last 10 min: 13 % of the GPU's time was wasted, 86 % not judged"
    )


def test_a_click_on_a_count_goes_through_exactly_those_gpus() -> None:
    frame, view = demo_frame(), View()
    target = summary(frame, view, 160).target("count")
    words = {
        str(part.key)
        for column in range(160)
        if (part := target.at_column(column)) is not None and part.key
    }
    assert "BUSY, NOT WORKING" in words
    seen = []
    for _ in range(3):
        view = next_counted(view, frame, "BUSY, NOT WORKING")
        seen.append(
            next(i for i, gpu in enumerate(frame.snapshot.gpus) if gpu.static.uuid == view.gpu)
        )
    flagged = [i for i, d in enumerate(frame.diagnoses) if d.busy_not_working]
    assert seen == [flagged[0], flagged[1], flagged[0]]
    assert next_counted(view, frame, "LOST") is view


def test_a_ticket_says_where_what_why_and_what_helps() -> None:
    frame = demo_frame()
    text, data = ticket_text(frame, 0), json.loads(ticket_json(frame, 0))
    assert text.startswith("simulated by gputop demo: node-17 GPU 0") and data["simulated"] is True
    assert "busy, not working: small kernels" in text
    assert "evidence: util " in text and "what helps: larger batch" in text and "pid 4711" in text
    assert (data["verdict"], data["busy_not_working"], data["gpu"]) == ("small_kernels", "A", 0)


def test_the_clipboard_is_reached_through_tmux_too_and_too_much_is_said() -> None:
    plain = copy_sequence("héllo", {})
    assert (
        plain is not None
        and base64.b64decode(plain.split(";")[2].rstrip("\x07")).decode() == "héllo"
    )
    through = copy_sequence("héllo", {"TMUX": "/tmp/x,1,0"})
    assert (
        through is not None and through.startswith(plain) and "\x1bPtmux;\x1b\x1b]52;c;" in through
    )
    assert copy_sequence("x" * (MOST_COPIED_BYTES + 1), {}) is None


@pytest.mark.parametrize("preset", list(PRESETS))
def test_a_preset_only_gives_known_actions_keys_that_exist_and_the_user_s_own_win(
    preset: str,
) -> None:
    keys, problems = rebound(
        KEYS, wanted_keys(preset, {"quit": "x"}), [key.id for key in REPLAY_KEYS]
    )
    assert set(PRESETS[preset]) <= {key.id for key in (*KEYS, *REPLAY_KEYS)}
    assert not [each for each in problems if "no action" in each.words or "no key" in each.words], (
        problems
    )
    assert next(key.keys for key in keys if key.id == "quit") == "x"
    taken = [name for key in keys for name in key.keys.split(",") if name]
    assert len(taken) == len(set(taken)), "no key does two things"


def test_the_help_begins_with_the_keys_and_has_every_word_of_the_screen() -> None:
    from gputop.output.ansi import plain_text
    from gputop.paint.glyphs import COLOUR
    from gputop.paint.help_rows import SCREEN_WORDS, help_rows

    lines = plain_text(help_rows(COLOUR, 80)).splitlines()
    first = "\n".join(lines[:23])
    assert not lines[22] and all(f" {key.short}" in first for key in (*KEYS, *REPLAY_KEYS)), (
        "on one page of 80×24"
    )
    assert all(any(line.startswith(f"  {word}") for line in lines) for word in SCREEN_WORDS)


async def test_the_palette_has_themes_columns_and_gpus_in_words() -> None:
    app, _ = app_on()
    async with shown(app, (120, 40)) as pilot:
        await pilot.pause()
        offered = {
            command.title: command.callback for command in app.get_system_commands(app.screen)
        }
        assert {"theme: light", "sort by CPU%", "go to GPU 5"} <= set(offered)
        offered["sort by CPU%"]()
        offered["go to GPU 5"]()
        offered["theme: light"]()
        assert app.frame is not None
        assert (app.view.sort, app.view.gpu, app.look.name) == (
            "cpu_pct",
            app.frame.snapshot.gpus[5].static.uuid,
            "light",
        )


def test_a_click_into_the_bar_of_the_past_means_its_key_or_its_moment() -> None:

    frame, replay = demo_frame(), Replay(0.0, 100.0, 50.0, playing=False, speed=1.0, own_past=True)
    rows, targets = replay_bar(frame, View(), replay, 160, 48)
    state = "".join(text for text, _ in rows[0])
    for words, key_id in (
        ("esc live", "release"),
        ("→ step", "on"),
        ("N verdict", "previous_change"),
        ("G ends", "end"),
    ):
        target = targets[0] and targets[0].at_column(state.index(words))
        assert target is not None and target.key == key_id
    assert (
        targets[0] is not None
        and targets[0].at_column(2) is not None
        and targets[0].at_column(2).key is None
    )  # type: ignore[union-attr]
    nvitop = (
        *rebound(KEYS, wanted_keys("nvitop", {}))[0],
        *rebound(REPLAY_KEYS, {"slower": "<", "on": "L"})[0],
    )
    other = "".join(
        text
        for text, _ in replay_bar(frame, View(past_keys=shown_keys(nvitop)), replay, 160, 48)[0][0]
    )
    assert "← L step" in other
    assert "< . speed" in other
    assert (
        targets[1] is not None
        and targets[1].key == (4, 154, 0.0, 100.0)
        and len(targets) == len(rows)
    )
