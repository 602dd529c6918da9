"""A program that is talked to line by line, against programs of a few lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec import Struct

from gputop.system.children import ours
from gputop.system.dialogue import LONGEST_LINE, Dialogue, ProgramGone
from tests.support.waiting import has_ended, until


class Word(Struct, tag_field="t", tag="word"):
    said: str


ECHO = "import sys\nfor line in sys.stdin:\n    print(line, end='', flush=True)"


@contextmanager
def running(code: str) -> Iterator[Dialogue[Word]]:
    dialogue = Dialogue[Word]([sys.executable, "-I", "-S", "-c", code], ours(), Word)
    try:
        yield dialogue
    finally:
        dialogue.close()
        assert has_ended(dialogue.pid)


def answer(dialogue: Dialogue[Word]) -> list[Word]:
    heard: list[Word] = []
    until(lambda: bool(heard.extend(dialogue.heard(0.1)) or heard))
    return heard


def fate(dialogue: Dialogue[Word]) -> str:
    with pytest.raises(ProgramGone) as gone:
        until(lambda: dialogue.heard(0.1) is None)
    return str(gone.value)


def test_what_it_is_told_comes_back_and_what_is_no_message_is_skipped() -> None:
    with running(
        "print('{}'); print('[' * 5000); print('x'); print('{\"t\":\"s\"}', flush=True)\n" + ECHO
    ) as dialogue:
        dialogue.tell(Word("on"))
        assert answer(dialogue) == [Word("on")]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import os; os.kill(os.getpid(), 11)", "ended by SIGSEGV"),
        ("import sys; sys.exit('no such card')", "ended with status 1 (no such card)"),
        ("import os, time; os.close(1); time.sleep(60)", "has closed its output"),
        ("while True: print('x' * 60)", "writes more than it was asked for"),
        (
            f"import time; print('x' * {LONGEST_LINE + 9}, end='', flush=True); time.sleep(60)",
            "writes more",
        ),
    ],
)
def test_how_it_ends_is_told_in_one_line(code: str, why: str) -> None:
    with running(code) as dialogue:
        assert why in fate(dialogue)


def test_one_that_heeds_no_end_of_its_stdin_is_killed_with_what_it_has_started() -> None:
    code = (
        "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nmade = os.fork()\n"
        'if made: print(\'{"t":"word","said":"%d"}\' % made, flush=True)\ntime.sleep(60)'
    )
    with running(code) as dialogue:
        [word] = answer(dialogue)
    until(lambda: has_ended(int(word.said)))
