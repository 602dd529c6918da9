"""Faults of those who look at the screen in a browser, and of those who are not asked to."""

from __future__ import annotations

from tests.faults.row import Row

SERVE, BROWSER = "tests/features/web/test_serve.py::", "tests/features/web/test_serve_chromium.py::"
SERVER, GATE = "tests/features/web/test_web_server.py::", "tests/features/web/test_web_gate.py::"


def rows() -> list[Row]:
    """The part of the matrix about `gputop serve`."""
    return [
        Row("a browser asks for a screen of a billion columns", "in its address and in its messages",
            "a screen of 500×200", "everything", None, SERVE + "test_no_size_makes_a_viewer_large"),
        Row("a browser sends keys without end", "and half a key, and half a pasted text",
            "the screen, behind the keys", "others' screens; < 300 MiB each", None,
            SERVE + "test_a_viewer_that_types_without_end_stays_small_and_is_gone_with_its_browser"),
        Row("a browser reads nothing", "the screen is drawn into a socket that is full", "–",
            "others' screens; < 200 MiB", None, SERVE + "test_a_browser_that_reads_nothing_costs_no_memory"),
        Row("a viewer's process hangs", "its browser leaves", "–", "killed after 3 s", None,
            SERVE + "test_a_viewer_that_does_not_leave_is_killed_after_three_seconds"),
        Row("eight viewers' processes hang", "their browsers leave, others come", "their own screens",
            "never more than eight processes", None,
            SERVER + "test_a_place_is_free_as_soon_as_its_browser_has_left_and_there_are_never_more_processes"),
        Row("a viewer's screen cannot begin", "a damaged recording, no driver", "the reason, in the page", "the server",
            None, SERVE + "test_a_screen_that_cannot_begin_says_why_in_the_page"),
        Row("the server ends", "INT, TERM, HUP or KILL, with a viewer that hangs", "the page says so",
            "no process is left behind", 0, SERVE + "test_all_viewers_die_with_the_server_however_it_ends"),
        Row("1,146 idle connections", "opened by another user of the machine", "–", "the owner's browser gets in", None,
            SERVE + "test_more_than_a_thousand_idle_connections_do_not_lock_the_owner_out"),
        Row("garbage on the server's port", "bad Host, Origin, cookies, frames, requests without end",
            "one line for each kind of refusal", "everything", None,
            SERVE + "test_garbage_is_answered_with_400_or_403_and_leaves_no_traceback"),
        Row("a foreign name or site", "Host or Origin are not this server's", "403", "everything", None,
            GATE + "test_only_the_page_of_this_machine_opens_the_socket"),
        Row("a program on another port", "replays all that a browser sends it", "403", "everything", None,
            BROWSER + "test_all_that_a_server_on_another_port_is_sent_is_of_no_use"),
    ]  # fmt: skip
