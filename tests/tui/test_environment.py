"""Environments and signals as rows: secrets masked, hostile text made harmless, questions that name the process."""

from __future__ import annotations

import pytest

from gputop.model.inspection import Environment, ProcessIdentity, SignalOutcome
from gputop.model.secret_marks import MASK
from gputop.paint.cells import cells
from gputop.paint.deep_look_rows import environment_rows, is_secret, shown_value
from gputop.paint.line import Row
from gputop.paint.signal_rows import (
    Addressee,
    outcome_rows,
    outcome_words,
    question,
    signal_choices,
    signal_rows,
)

ME = ProcessIdentity(4711, 99)


def _texts(rows: list[Row]) -> list[str]:
    return ["".join(text for text, _ in row) for row in rows]


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "wandb_api_key", "DB_PASSWORD", "PGPASSWD", "GOOGLE_CREDENTIALS",
     "PRIVATE_ID", "NETRC_AUTH", "SENTRY_DSN", "SESSION_COOKIE"],
)  # fmt: skip
def test_names_that_say_secret_are_masked_at_one_length(name: str) -> None:
    assert is_secret(name)
    assert (
        shown_value(name, "x", revealed=False)
        == shown_value(name, "y" * 99, revealed=False)
        == MASK
    )
    assert shown_value(name, "x", revealed=True) == "x"
    assert shown_value(name, "", revealed=False) == ""


@pytest.mark.parametrize(
    "name", ["PATH", "HOME", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "OMP_NUM_THREADS"]
)
def test_other_names_are_not(name: str) -> None:
    assert not is_secret(name)
    assert shown_value(name, "/usr", revealed=False) == "/usr"


def test_a_password_inside_a_url_is_masked_in_place() -> None:
    assert (
        shown_value("PROXY", "http://me:pw@host:80/x", revealed=False)
        == f"http://me:{MASK}@host:80/x"
    )
    assert shown_value("URL", "http://host:80/a@b", revealed=False) == "http://host:80/a@b"


def test_rows_say_how_many_values_are_masked_until_they_are_shown() -> None:
    environment = Environment(ME, (("A_TOKEN", "t0p"), ("PATH", "/usr\x1b[2J漢字"), ("Z", "1")))
    masked = _texts(environment_rows(environment, "python \x1b[1m", 80, revealed=False))
    assert "look like secrets: 1; v shows them" in masked[1]
    assert not any("t0p" in row or "\x1b" in row for row in masked)
    assert {cells(row) for row in masked} == {80}
    shown = _texts(environment_rows(environment, "", 80, revealed=True))
    assert any("t0p" in row for row in shown)


def test_looking_for_a_value_does_not_look_behind_the_mask() -> None:
    environment = Environment(ME, (("A_TOKEN", "t0p"), ("PATH", "/usr"), ("Z", "1")))
    find = [environment_rows(environment, "", 80, revealed=r, search="T0P") for r in (False, True)]
    assert "no variable" in _texts(find[0])[1]
    assert "A_TOKEN" in _texts(find[1])[1]


def test_a_reason_stands_where_there_is_no_environment() -> None:
    rows = _texts(environment_rows(Environment(ME, reason="root only"), "", 80, revealed=False))
    assert "root only" in rows[1]


def test_the_signal_that_lets_a_process_clean_up_comes_first() -> None:
    choices = signal_choices()
    assert choices[0].name == "SIGTERM" and choices[0].number == 15
    assert len({c.number for c in choices}) == len(choices)
    assert {"SIGKILL", "SIGINT", "SIGSTOP", "SIGCONT", "SIGHUP", "SIGUSR1"} <= {
        c.name for c in choices
    }


def test_the_question_names_pid_user_and_command() -> None:
    who = [Addressee(ME, "ml", "python train.py \x1b[31m" + "x" * 300)]
    rows = _texts(signal_rows(who, signal_choices(), 0, 80, is_chosen=True))
    text = "\n".join(rows)
    assert "4711" in text and "ml" in text and "python train.py" in text
    assert "Send SIGTERM to process 4711?" in text
    assert "\x1b" not in text
    assert {cells(row) for row in rows} == {80}


def test_many_processes_are_counted_in_the_question() -> None:
    who = [Addressee(ProcessIdentity(n, 1), None, None) for n in range(20)]
    assert question(signal_choices()[3], who) == "Send SIGKILL to these 20 processes?"
    rows = _texts(signal_rows(who, signal_choices(), 0, 80, is_chosen=False))
    assert any("and 12 more" in row for row in rows)


def test_what_became_of_a_signal_is_told_in_one_line() -> None:
    sent, failed = (
        SignalOutcome(ME, True),
        SignalOutcome(ProcessIdentity(5, 1), False, "permission denied: it belongs to ops"),
    )
    assert outcome_words([sent], "SIGTERM") == "SIGTERM sent to process 4711"
    assert outcome_words([sent, sent], "SIGTERM") == "SIGTERM sent to 2 processes"
    assert (
        outcome_words([failed], "SIGTERM")
        == "SIGTERM not sent to 5: permission denied: it belongs to ops"
    )
    assert outcome_words([sent, failed], "SIGTERM").endswith("(1 of 2 sent)")
    text = "\n".join(_texts(outcome_rows([sent, failed], "SIGTERM", 80)))
    assert "4711  sent" in text and "5  not sent: permission denied" in text
