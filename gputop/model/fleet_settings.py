"""Tables ``[fleet.NAME]`` of the configuration: a cluster's address or hosts."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from gputop.model.expression import nearest
from gputop.model.foreign_values import quoted

FIELDS: Mapping[str, str] = {
    "url": "address of Prometheus, VictoriaMetrics, Thanos or Mimir",
    "select": 'label matchers that every series gets, such as cluster="a"',
    "header_file": "file of HTTP headers, one a line, that only you can read",
    "token_file": "a bearer token, in a file that only you can read",
    "ca": "CA certificates to check the server's certificate with",
    "hosts": 'in place of url, hosts for ssh and addresses of exporters: ["box1", "gpu[01-08]", "http://c:9401"]',
    "ssh_config": "with hosts, a configuration file for ssh in place of your own",
    "gputop": "with hosts, where gputop is on them if it is not in PATH",
}  # fmt: skip
SECRET = ("header_file", "token_file")
"""Fields that locate a secret."""
OF_HOSTS = ("hosts", "ssh_config", "gputop")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,40}")
Table = Mapping[str, str | tuple[str, ...]]


def hosts_of(table: Table) -> tuple[str, ...]:
    """The hosts of a cluster that has no Prometheus."""
    hosts = table.get("hosts", ())
    return hosts if isinstance(hosts, tuple) else ()


def texts_of(table: Table) -> dict[str, str]:
    """The other fields."""
    return {field: value for field, value in table.items() if isinstance(value, str)}


def fault_of(clusters: Mapping[str, Table]) -> str | None:
    """Return the first mistake in these tables.

    Addresses are not quoted: they may hold passwords.
    """
    return next(
        (fault for name, fields in clusters.items() if (fault := _fault(name, fields))), None
    )


def _fault(name: str, fields: Table) -> str | None:
    """Return the first mistake in one table."""
    table = f"[fleet.{name}]"
    if not _NAME.fullmatch(name):
        return (
            f"[fleet.{quoted(name)}]: a cluster's name is made of up to 40 letters, digits, dots and "
            "hyphens"
        )
    for field in fields:
        if field not in FIELDS:
            hint = nearest(field, FIELDS, f"it takes {', '.join(FIELDS)}")
            return f"{table}: no field {quoted(field)}{hint}"
        if (field == "hosts") == isinstance(fields[field], str):
            return f"{table}: {field} must be {'a list of texts' if field == 'hosts' else 'a text'}"
    if hosts_of(fields):
        odd = next((field for field in fields if field not in OF_HOSTS), "")
        return f"{table}: {odd} belongs to a Prometheus, and hosts are without one" if odd else None
    url = texts_of(fields).get("url", "")
    if not url:
        return f"{table} needs url, the address of its Prometheus, or hosts"
    if not re.match(r"https?://[^/]", url):
        return f"{table}: url must begin with http:// or https://"
    if "@" in url.partition("://")[2].partition("/")[0]:
        return (
            f"{table}: no user or password in the url: put them into a file, header_file or "
            "token_file"
        )
    return None


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is the loopback.

    Addresses have no brackets. Other names are not resolved.
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
