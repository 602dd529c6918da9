"""Where a fleet may be: addresses, secrets, selectors, clusters of the configuration; and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gputop.cli import main
from gputop.config import ConfigError, Settings, load
from gputop.config.toml_lines import assignment
from gputop.features.fleet.read import screen_queries as queries
from gputop.features.fleet.read.address import (
    address_of,
    checked_select,
    cluster_of,
    expanded,
    is_ssh_host,
)
from gputop.features.fleet.read.last_hour import hour_questions
from gputop.model.fleet_settings import hosts_of
from gputop.model.source import UsageError

ONE = {"prod": {"url": "https://prom.example"}}
TWO = {**ONE, "test": {"url": "https://test.example"}}


@pytest.mark.parametrize(("url", "says"), [
    ("", "which hosts.*by ssh.*--prom URL"), ("prometheus:9090", "must be http://"), ("ftp://x", "must be http://"),
    ("http://", "must be http://"), ("http://user:secret@x", "no user or password in the URL"),
    ("http://x/?q=1", "no \\?"), ("http://x:99999", "not a URL"), ("http://[::1", "not a URL"),
])  # fmt: skip
def test_an_address_that_cannot_be_is_refused_and_not_repeated_with_its_password(
    url: str, says: str
) -> None:
    with pytest.raises(UsageError, match=says) as error:
        address_of(url, {})
    assert "secret" not in str(error.value)


def test_secrets_go_over_https_or_to_this_machine_and_come_from_private_files(
    tmp_path: Path,
) -> None:
    token = tmp_path / "token"
    token.write_text("abc\n")
    environ = {"GPUTOP_PROM_TOKEN_FILE": str(token)}
    for mode, url, says in ((0o644, "https://x", "chmod 600"), (0o600, "http://x", "https only")):
        token.chmod(mode)
        with pytest.raises(UsageError, match=says):
            address_of(url, environ)
    assert address_of("http://[::1]:9", environ).headers == {"Authorization": "Bearer abc"}
    token.write_text("not a header\n")
    for path, says in ((token, "line 1"), (tmp_path / "none", "cannot read")):
        with pytest.raises(UsageError, match=says):
            address_of("https://x", {}, header_file=str(path))
    assert (
        address_of(None, {"GPUTOP_PROM_URL": "http://x/prometheus/api/v1/query"}).url
        == "http://x/prometheus"
    )


def test_a_clusters_token_goes_to_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("prod", "other"):
        (tmp_path / name).write_text(f"{name}-token\n")
        (tmp_path / name).chmod(0o600)
    environ = {"GPUTOP_PROM_URL": "https://else", "GPUTOP_PROM_TOKEN_FILE": str(tmp_path / "other")}
    bare = address_of(None, environ, cluster=ONE["prod"])
    assert (bare.url, bare.headers) == ("https://prom.example", {})
    own = address_of(None, environ, cluster={**ONE["prod"], "token_file": "~/prod"})
    assert own.headers == {"Authorization": "Bearer prod-token"}


@pytest.mark.parametrize(
    "text", ["up", 'a="b"} or up{', "a=b", 'a="b" c="d"', '"a"="b"', 'a="b\n"', "{"]
)
def test_a_selector_that_is_no_promql_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--select takes label matchers"):
        checked_select(text)


def test_a_selector_reaches_every_name() -> None:
    assert checked_select('{cluster="a", job=~"x|y",}') == 'cluster="a", job=~"x|y"'
    select = 'c="a"'
    known, own = (
        queries.FleetSchema((name,), {name: ("instance", "gpu")}, select=select)
        for name in ("legacy", "gputop")
    )
    for text in (
        queries.identities(own), queries.removed(own), queries.names(select), queries.names(select, is_past=True),
        queries.scrapes(select), queries.marks(known, ages=True),
        *(question.promql for question in hour_questions(own, 0.0).values()),
    ):  # fmt: skip
        assert text.count('c="a"') == text.count("{")


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "a;b", "a$(b)", "", "a\n", "ä", "x:"])
def test_a_host_that_ssh_or_a_shell_could_misread_is_none_for_ssh(host: str) -> None:
    assert not is_ssh_host(host) and is_ssh_host("node-1.example:22")


@pytest.mark.parametrize(("words", "hosts"), [
    (["a", "user@b", "a"], ("a", "user@b")),
    (["gpu[01-03,10]"], ("gpu01", "gpu02", "gpu03", "gpu10")),
    (["http://c:9401", "http://c:9400/metrics"], ("http://c:9401/metrics", "http://c:9400/metrics")),
])  # fmt: skip
def test_words_name_hosts(words: list[str], hosts: tuple[str, ...]) -> None:
    assert expanded(words) == hosts


@pytest.mark.parametrize("word", [
    "-oProxyCommand=x", "a;b", "a b", "$(x)", "", "a\n", "gpu[1-33]", "gpu[8-1]", "gpu[3,1-0]", "gpu[]", "gpu[1",
    "gpu[a-b]", "http://u:p@c", "http://", "http://c:9401/?x", "gpu[0-999999999]", f"a[1-{'9' * 5000}]",
    "a" + 3000 * "[1]",
])  # fmt: skip
def test_what_is_no_host_is_refused_at_once_in_one_line(word: str) -> None:
    with pytest.raises(UsageError) as error:
        expanded([word])
    assert "\n" not in str(error.value) and str(error.value).isprintable()


def test_the_named_cluster_is_asked_or_the_only_one_and_an_address_goes_before_it() -> None:
    assert cluster_of(TWO, "test", None, {}) == ("test", TWO["test"])
    assert cluster_of(ONE, None, None, {}) == ("prod", ONE["prod"])
    for clusters, url, environ in (
        (ONE, "http://x", {}),
        (ONE, None, {"GPUTOP_PROM_URL": "http://x"}),
        ({}, None, {}),
    ):
        assert cluster_of(clusters, None, url, environ) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("clusters", "name", "url", "says"), [
    (TWO, None, None, "which cluster? Give --cluster with one of prod, test"),
    (TWO, "prd", None, "no [fleet.prd] in the configuration; did you mean prod?"),
    (TWO, "x", None, "it knows prod, test"),
    ({}, "x", None, "it has none"),
    (ONE, "prod", "http://x", "give one of them"),
])  # fmt: skip
def test_a_cluster_that_is_not_there_is_one_line(
    clusters: Any, name: str | None, url: str | None, says: str
) -> None:
    with pytest.raises(UsageError) as error:
        cluster_of(clusters, name, url, {})
    assert says in str(error.value) and "\n" not in str(error.value)


FILE = """
[keys]
waste = "W"
wasted = "x"

[fleet.prod]
url = "https://prom.example"
header_file = "/secret/place"
tokenfile = "/x"
"""


def test_the_check_names_a_wrong_field_and_knows_the_keys_of_the_fleets_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(FILE)
    assert main(["config", "--check", "--config", str(path)]) == 2
    err = capsys.readouterr().err.splitlines()
    assert sorted(line.rpartition("config.toml")[2] for line in err) == [
        ": [fleet.prod]: no field 'tokenfile'; did you mean token_file?",
        ": no action 'wasted' to bind; did you mean waste?",
    ]


@pytest.mark.parametrize(("table", "says"), [
    ('fleet = "x"', "fleet must be tables"),
    ("[fleet.prod]\nurl = 5", "fleet must be tables"),
    ("[fleet.prod]\nselect = ''", "needs url"),
    ("[fleet.prod]\nurl = 'prom:9090'", "must begin with http://"),
    ("[fleet.prod]\nurl = 'https://me:secret@x'", "no user or password"),
    ("[fleet.lab]\nhosts = 'a'", "hosts must be a list of texts"),
    ("[fleet.lab]\nurl = ['https://x']", "url must be a text"),
    ("[fleet.lab]\nhosts = ['a']\nurl = 'https://x'", "url belongs to a Prometheus"),
    ("[fleet.'a b']\nurl = 'https://x'", "a cluster's name"),
])  # fmt: skip
def test_a_table_that_cannot_be_is_refused_without_its_secrets(
    tmp_path: Path, table: str, says: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(table)
    with pytest.raises(ConfigError) as error:
        load(str(path), {}, {})
    assert (
        says in str(error.value)
        and "secret" not in str(error.value)
        and "\n" not in str(error.value)
    )


def test_a_table_is_printed_as_it_was_written_but_for_where_its_secrets_are(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[fleet.lab]\nhosts = ["box1", "gpu[01-08]"]\nssh_config = "/f"\n')
    settings, _ = load(str(path), {}, {})
    assert hosts_of(settings.fleet["lab"]) == ("box1", "gpu[01-08]")
    assert (
        assignment("fleet", settings.fleet) == path.read_text()
        and assignment("fleet", Settings().fleet) == ""
    )
    text = assignment(
        "fleet",
        {"prod": {"url": "https://x", "header_file": "/home/me/h", "token_file": "/home/me/t"}},
    )
    assert text.startswith('[fleet.prod]\nurl = "https://x"\n') and "/home/me" not in text
