"""Keys of the user's own: what is bound, what loses its key, and which line says why something cannot be."""

from __future__ import annotations

import pytest
from textual.keys import _character_to_key

from gputop.model.expression import nearest
from gputop.paint.key_names import key_name, shown_key
from gputop.paint.keys import KEYS, REPLAY_KEYS, Key, KeyProblem, rebound

SMALL = (
    Key("quit", "q", "quit", "x"),
    Key("pause", "p", "pause", "x"),
    Key("interrupt", "ctrl+c", "quit from anywhere", "x"),
)


def _keys(keys: tuple[Key, ...]) -> dict[str, str]:
    return {key.id: key.keys for key in keys if key.id != "interrupt"}


@pytest.mark.parametrize("char", "aZ7?[]-+/\\@_=.,;:!#~|<>")
def test_a_character_has_the_name_that_the_screen_gives_it(char: str) -> None:
    assert key_name(char) == _character_to_key(char)


def test_keys_are_taken_as_people_write_them() -> None:
    written = [
        "F5",
        "ctrl+P",
        "PgUp",
        "Esc",
        "shift+up",
        "question_mark",
        "ctrl+i",
        "alt+x",
        "ctrl+[",
    ]
    names = [
        "f5",
        "ctrl+p",
        "pageup",
        "escape",
        "shift+up",
        "question_mark",
        "tab",
        "alt+x",
        "escape",
    ]
    assert [key_name(text) for text in written] == names


@pytest.mark.parametrize(
    "text", ["hyper+x", "f99", "banana", "shift+a", "ctrl+banana", "\x1b", "ctrl+"]
)
def test_what_no_terminal_sends_is_no_key(text: str) -> None:
    assert key_name(text) is None
    keys, problems = rebound(SMALL, {"pause": text})
    assert _keys(keys)["pause"] == "p"
    assert len(problems) == 1


def test_every_default_key_is_one_that_can_be_written() -> None:
    for key in (*KEYS, *REPLAY_KEYS):
        for name in filter(None, key.keys.split(",")):
            assert key_name(name) == name, key


def test_an_action_gets_the_users_keys_and_the_help_shows_them() -> None:
    keys, problems = rebound(SMALL, {"quit": "x, ctrl+q", "pause": "?"})
    assert not problems
    assert keys[0].keys == "x,ctrl+q"
    assert (keys[1].id, keys[1].keys, keys[1].shown) == ("pause", "question_mark", "?")
    assert shown_key("left_square_bracket") == "["
    assert shown_key("ctrl+left_square_bracket") == "ctrl+["


def test_a_comma_can_be_bound() -> None:
    assert rebound(SMALL, {"pause": ","})[0][1].keys == "comma"
    assert rebound(SMALL, {"pause": "p,,,x"})[0][1].keys == "p,comma,x"


def test_a_key_that_was_given_away_leaves_its_action_and_that_is_said() -> None:
    keys, problems = rebound(SMALL, {"quit": "p"})
    assert _keys(keys) == {"quit": "p", "pause": ""}
    assert problems == [
        KeyProblem("quit", "pause has no key left: p is now quit; give it another one")
    ]


def test_two_actions_cannot_have_the_same_key() -> None:
    table = (*SMALL, Key("tree", "t", "tree", "x"))
    keys, problems = rebound(table, {"pause": "z", "tree": "z"})
    assert _keys(keys)["pause"] == "z"
    assert _keys(keys)["tree"] == "t"
    assert problems == [KeyProblem("pause", "z is bound to pause and to tree: pause has it")]


def test_the_screen_can_always_be_left() -> None:
    keys, problems = rebound(SMALL, {"quit": "", "pause": "q,ctrl+c", "interrupt": "x"})
    assert {key.id: key.keys for key in keys} == {"quit": "", "pause": "q", "interrupt": "x,ctrl+c"}
    assert problems == [KeyProblem("pause", "pause: ctrl+c always quits; choose another key")]


def test_an_action_can_go_without_a_key() -> None:
    keys, problems = rebound(SMALL, {"pause": ""})
    assert (_keys(keys)["pause"], keys[1].shown, problems) == ("", "", [])


def test_an_unknown_action_is_named_with_the_nearest_one() -> None:
    assert rebound(SMALL, {"pasue": "x"})[1] == [
        KeyProblem("pasue", "no action 'pasue' to bind; did you mean pause?")
    ]
    assert not rebound(SMALL, {"jump": "x"}, elsewhere=("jump",))[1]


@pytest.mark.parametrize(("word", "names", "hint"), [
    ("--bogus", ["--gpus", "--json"], ""),
    ("--gpu", ["--gpus", "--json"], "; did you mean --gpus?"),
    ("--intervall", ["--interval"], "; did you mean --interval?"),
])  # fmt: skip
def test_only_a_name_that_is_close_is_suggested(word: str, names: list[str], hint: str) -> None:
    assert nearest(word, names) == hint
