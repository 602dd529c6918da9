"""Where a fleet's Prometheus may be: addresses, secrets, selectors and host names that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.features.fleet import queries
from gputop.features.fleet.address import address_of, checked_select, ssh_command
from gputop.features.fleet.last_hour import hour_questions
from gputop.model.source import UsageError


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "which Prometheus"),
        ("prometheus:9090", "must be http://"),
        ("ftp://x", "must be http://"),
        ("http://", "must be http://"),
        ("http://user:secret@x", "no user or password in the URL"),
        ("http://x/?q=1", "no ?"),
        ("http://x:99999", "not a URL"),
        ("http://[::1", "not a URL"),
    ],
)
def test_an_address_that_cannot_be_is_refused_and_not_repeated_with_its_password(url: str, says: str) -> None:
    with pytest.raises(UsageError, match=says.replace("?", r"\?")) as error:
        address_of(url, {})
    assert "secret" not in str(error.value)


def test_secrets_go_over_https_or_to_this_machine_and_come_from_private_files(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("abc\n")
    token.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        address_of("https://x", {"GPUTOP_PROM_TOKEN_FILE": str(token)})
    token.chmod(0o600)
    with pytest.raises(UsageError, match="https only"):
        address_of("http://x", {"GPUTOP_PROM_TOKEN_FILE": str(token)})
    assert address_of("http://[::1]:9", {"GPUTOP_PROM_TOKEN_FILE": str(token)}).headers == {
        "Authorization": "Bearer abc"
    }
    token.write_text("not a header\n")
    with pytest.raises(UsageError, match="line 1"):
        address_of("https://x", {}, header_file=str(token))
    with pytest.raises(UsageError, match="cannot read"):
        address_of("https://x", {}, header_file=str(tmp_path / "none"))
    assert address_of(None, {"GPUTOP_PROM_URL": "http://x/prometheus/api/v1/query"}).url == "http://x/prometheus"


@pytest.mark.parametrize("text", ["up", 'a="b"} or up{', "a=b", 'a="b" c="d"', '"a"="b"', 'a="b\n"', "{"])
def test_a_selector_that_is_no_promql_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--select takes label matchers"):
        checked_select(text)


def test_a_selector_reaches_every_name() -> None:
    assert checked_select('{cluster="a", job=~"x|y",}') == 'cluster="a", job=~"x|y"'
    select = 'c="a"'
    known = queries.FleetSchema(("legacy",), {"legacy": ("instance", "gpu")}, select=select)
    own = queries.FleetSchema(("gputop",), {"gputop": ("instance", "gpu")}, select=select)
    for text in (
        queries.identities(own), queries.removed(own), queries.names(select), queries.names(select, is_past=True),
        queries.scrapes(select), queries.marks(known, ages=True),
        *(question.promql for question in hour_questions(own, 0.0).values()),
    ):  # fmt: skip
        assert text.count('c="a"') == text.count("{")


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "a;b", "a$(b)", "", "a\n", "ä", "x:"])
def test_a_host_that_ssh_or_a_shell_could_misread_gets_no_command(host: str) -> None:
    assert ssh_command(host) is None
    assert ssh_command("node-1.example:22") == "ssh -t node-1.example:22 gputop"
