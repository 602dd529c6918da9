"""gputop.tui.terminal.driver: a terminal that does not read costs a bounded queue, and a picture anew."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gputop.tui.terminal.driver import MOST_QUEUED, TerminalDriver


@pytest.mark.parametrize(
    ("waiting", "is_written"), [(0, True), (MOST_QUEUED - 1, True), (MOST_QUEUED, False)]
)
def test_a_write_that_finds_a_full_queue_is_dropped_and_told(
    waiting: int, is_written: bool
) -> None:
    written: list[bytes] = []
    driver = TerminalDriver.__new__(TerminalDriver)
    driver._encoding, driver.has_dropped = "utf-8", False
    driver._writer = SimpleNamespace(queued=lambda: waiting, put=written.append)  # type: ignore[assignment]
    driver.write("x")
    assert (written == [b"x"], driver.has_dropped) == (is_written, not is_written)
    assert driver.is_behind == (waiting > 0)
