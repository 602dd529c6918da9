"""Faults of those who look at the screen in a browser, and of those who are not asked to."""

from __future__ import annotations

from tests.faults.row import Row

SERVE, BROWSER = "tests/features/web/test_serve.py::", "tests/features/web/test_serve_chromium.py::"
GATE = "tests/features/web/test_web_gate.py::"


def rows() -> list[Row]:
    """The part of the matrix about `gputop serve`."""
    return [
        Row("a browser asks for a screen of a billion columns", "in its address and in its messages",
            "a screen of 500×200", "everything", None, SERVE + "test_no_size_makes_a_viewer_large"),
        Row("a viewer's process hangs", "its browser leaves", "–", "killed after 3 s", None,
            SERVE + "test_a_viewer_that_does_not_leave_is_killed_after_three_seconds"),
        Row("a viewer's screen cannot begin", "a damaged recording, no driver", "the reason, in the page", "the server",
            None, SERVE + "test_a_screen_that_cannot_begin_says_why_in_the_page"),
        Row("the server ends", "INT, TERM, HUP or KILL, with a viewer that hangs", "the page says so",
            "no process is left behind", 0, SERVE + "test_all_viewers_die_with_the_server_however_it_ends"),
        Row("garbage on the server's port", "bad Host, cookies, frames, requests without end",
            "400 or 403, and not a word here", "everything", None,
            SERVE + "test_garbage_is_answered_with_400_or_403_and_leaves_no_traceback"),
        Row("a foreign name", "Host is not this server's", "403", "everything", None,
            GATE + "test_a_name_that_was_made_to_point_here_is_turned_away"),
        Row("a program on another port", "replays all that a browser sends it", "403", "everything", None,
            BROWSER + "test_all_that_a_server_on_another_port_is_sent_is_of_no_use"),
    ]  # fmt: skip
