"""Where a dcgm-exporter is looked for, which addresses are taken, and what is shown of them."""

from __future__ import annotations

import pytest

from gputop.model.source import UsageError
from gputop.sources.activity.dcgm_exporter import Exporter
from gputop.sources.activity.fallback_chain import SmReadFailed, Waiting
from tests.dcgm.scripted_exporter import NEW, WHOLE, exporter


def test_only_a_guessed_address_is_given_up_at_the_first_failure() -> None:
    for url, forever in ((None, True), ("http://node:9400/metrics", False)):
        source = exporter(OSError("connection refused"), url=url)
        source.scrape(0.0)
        with pytest.raises(SmReadFailed) as failure:
            source.newest(WHOLE, 0.0)
        assert failure.value.forever is forever


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        (None, [("http://localhost:9400/metrics", 0.3), ("http://localhost:9400/metrics", 1.0)]),
        ("http://node:1/m", [("http://node:1/m", 1.0), ("http://node:1/m", 1.0)]),
    ],
)
def test_the_usual_place_is_looked_at_with_little_patience(url: str | None, asked: list[tuple[str, float]]) -> None:
    fetched = []

    def fetch(address: str, timeout_s: float) -> str:
        fetched.append((address, timeout_s))
        return NEW

    source = Exporter(url, fetch)
    assert fetched == [], "nothing is asked before it is needed"
    source.scrape(0.0)
    source.scrape(1.0)
    assert fetched == asked


def test_one_that_was_found_at_the_usual_place_is_not_given_up() -> None:
    source = exporter(NEW, OSError("connection refused"), url=None)
    source.scrape(0.0)
    source.scrape(1.0)
    with pytest.raises(SmReadFailed, match=r"^dcgm-exporter: connection refused") as failure:
        source.newest(WHOLE, 1.0)
    assert not failure.value.forever


def test_before_the_first_answer_it_is_only_being_looked_for() -> None:
    got = exporter("").newest(WHOLE, 0.0)
    assert isinstance(got, Waiting)
    assert got.looking


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "localhost:9400", "ftp://x/metrics", "http://", "http://[::1", "http://x:99999/metrics",
        "http://x/\x1b[2J", "http://x/a b", "http://x/\r\nHost: y", "http://ü/metrics", "",
    ],
)  # fmt: skip
def test_only_http_addresses_are_taken(url: str) -> None:
    with pytest.raises(UsageError, match="--dcgm-url") as refusal:
        Exporter(url)
    assert str(refusal.value).isprintable()


def test_a_password_in_the_address_is_never_shown() -> None:
    source = exporter(OSError("refused"), url="http://me:secret@node:9400/metrics")
    source.scrape(0.0)
    with pytest.raises(SmReadFailed, match="at node:9400: refused") as failure:
        source.newest(WHOLE, 0.0)
    assert "secret" not in failure.value.reason
    with pytest.raises(UsageError) as refusal:
        Exporter("ftp://me:secret@node/metrics")
    assert "secret" not in str(refusal.value)
