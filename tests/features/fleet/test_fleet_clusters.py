"""Clusters by name: tables of the configuration, who is asked, and that no secret goes where it does not belong."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputop.cli import main
from gputop.commands.config import assignment
from gputop.config import ConfigError, Settings, load
from gputop.features.fleet.address import address_of, cluster_of
from gputop.model.fleet_settings import hosts_of
from gputop.model.source import UsageError

ONE = {"prod": {"url": "https://prom.example"}}
TWO = {**ONE, "test": {"url": "https://test.example"}}


def test_the_named_cluster_is_asked_or_the_only_one_and_an_address_goes_before_it() -> None:
    assert cluster_of(TWO, "test", None, {}) == ("test", TWO["test"])
    assert cluster_of(ONE, None, None, {}) == ("prod", ONE["prod"])
    assert cluster_of(ONE, None, "http://x", {}) is None
    assert cluster_of(ONE, None, None, {"GPUTOP_PROM_URL": "http://x"}) is None
    assert cluster_of({}, None, None, {}) is None


@pytest.mark.parametrize(
    ("clusters", "name", "url", "says"),
    [
        (TWO, None, None, "which cluster? Give --cluster with one of prod, test"),
        (TWO, "prd", None, "no [fleet.prd] in the configuration; did you mean prod?"),
        (TWO, "x", None, "it knows prod, test"),
        ({}, "x", None, "it has none"),
        (ONE, "prod", "http://x", "give one of them"),
    ],
)
def test_a_cluster_that_is_not_there_is_one_line(
    clusters: dict[str, dict[str, str]], name: str | None, url: str | None, says: str
) -> None:
    with pytest.raises(UsageError) as error:
        cluster_of(clusters, name, url, {})
    assert says in str(error.value) and "\n" not in str(error.value)


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


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('fleet = "x"', "fleet must be tables"),
        ("[fleet.prod]\nurl = 5", "fleet must be tables"),
        ("[fleet.prod]\nselect = ''", "needs url"),
        ("[fleet.prod]\nurl = 'prom:9090'", "must begin with http://"),
        ("[fleet.prod]\nurl = 'https://me:secret@x'", "no user or password"),
        ("[fleet.lab]\nhosts = 'a'", "hosts must be a list of texts"),
        ("[fleet.lab]\nurl = ['https://x']", "url must be a text"),
        ("[fleet.lab]\nhosts = ['a']\nurl = 'https://x'", "url belongs to a Prometheus"),
        ("[fleet.'a b']\nurl = 'https://x'", "a cluster's name"),
    ],
)
def test_a_table_that_cannot_be_is_refused_without_its_secrets(tmp_path: Path, table: str, says: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(table)
    with pytest.raises(ConfigError) as error:
        load(str(path), {}, {})
    assert says in str(error.value) and "secret" not in str(error.value) and "\n" not in str(error.value)


def test_a_table_of_hosts_is_read_and_printed_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[fleet.lab]\nhosts = ["box1", "gpu[01-08]"]\nssh_config = "/f"\n')
    settings, _ = load(str(path), {}, {})
    assert hosts_of(settings.fleet["lab"]) == ("box1", "gpu[01-08]")
    assert assignment("fleet", settings.fleet) == path.read_text()


def test_the_configuration_is_printed_without_where_secrets_are(tmp_path: Path) -> None:
    tables = {"prod": {"url": "https://x", "header_file": "/home/me/h", "token_file": "/home/me/t"}}
    text = assignment("fleet", tables)
    assert text.startswith('[fleet.prod]\nurl = "https://x"\n') and "/home/me" not in text
    assert assignment("fleet", Settings().fleet) == ""
