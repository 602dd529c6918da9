"""Addresses that a user gives: a Prometheus with its credentials, or hosts by ssh or by their exporters.

A URL holds no secrets; headers come from private files.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from gputop.model.clean_text import clean_text
from gputop.model.expression import nearest
from gputop.model.fleet_settings import Table, is_loopback
from gputop.model.source import UsageError
from gputop.system.safe_open import is_named_pipe, read_most, without_waiting

URL_VARIABLE, TOKEN_VARIABLE = "GPUTOP_PROM_URL", "GPUTOP_PROM_TOKEN_FILE"
LONGEST_FILE = 64 * 1024
_HEADER = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*([\x20-\x7e\x80-\xff]*)")
_MATCHER = r'\s*[a-zA-Z_][a-zA-Z0-9_]*\s*(?:=~|!~|!=|=)\s*"(?:[^"\\\n]|\\.)*"\s*'
_SELECT = re.compile(rf"{_MATCHER}(?:,{_MATCHER})*,?\s*")
SSH_HOST = re.compile(r"[A-Za-z0-9._:][A-Za-z0-9._:@_-]*", re.ASCII)
"""What ssh and a shell take for a host's name and nothing else."""


class EngineAddress(Struct, frozen=True):
    """URL before ``/api/v1``, secret headers, and a CA file."""

    url: str
    headers: Mapping[str, str]
    ca: str | None
    is_local: bool = False

    def __repr__(self) -> str:
        return f"Address({self.url!r})"


def address_of(
    url: str | None,
    environ: Mapping[str, str],
    *,
    header_file: str | None = None,
    ca: str | None = None,
    cluster: Mapping[str, str] | None = None,
) -> EngineAddress:
    """Build the address from options, environment or a cluster.

    Options go before the cluster's fields. Raises UsageError.
    """
    if cluster is not None:
        # The environment's token belongs to the environment's address and is sent nowhere else.
        files = {
            field: os.path.expanduser(path) for field, path in cluster.items() if field != "url"
        }
        url, environ = cluster["url"], {TOKEN_VARIABLE: files.get("token_file", "")}
        header_file, ca = header_file or files.get("header_file"), ca or files.get("ca")
    text = (url or environ.get(URL_VARIABLE, "")).strip()
    if not text:
        raise UsageError(
            "which hosts? `gputop fleet box1 gpu[01-08]` asks them by ssh; `gputop fleet --prom URL` (or "
            f"{URL_VARIABLE}) asks a Prometheus, and --cluster NAME what the configuration names [fleet.NAME]; "
            "`gputop fleet demo` shows a simulated fleet"
        )
    base, is_local = _checked(text)
    headers: dict[str, str] = {}
    if token_file := environ.get(TOKEN_VARIABLE):
        token = _private(token_file, TOKEN_VARIABLE).strip()
        if not re.fullmatch(r"[\x21-\x7e]+", token):
            raise UsageError(f"{TOKEN_VARIABLE}: {token_file} must hold one token and nothing else")
        headers["Authorization"] = f"Bearer {token}"
    if header_file is not None:
        headers.update(_headers(header_file))
    if headers and base.startswith("http://") and not is_local:
        raise UsageError(
            f"headers and tokens are sent over https only, or to this machine: {base} is neither"
        )
    if ca is not None and not os.path.isfile(ca):
        raise UsageError(f"--prom-ca: no file {ca}")
    return EngineAddress(base, headers, ca, is_local)


def cluster_of(
    clusters: Mapping[str, Table], name: str | None, url: str | None, environ: Mapping[str, str]
) -> tuple[str, Table] | None:
    """Choose a cluster of the configuration; None if an address is given.

    The named one, or the only one. Raises UsageError for an unknown name.
    """
    if name is None:
        if url or environ.get(URL_VARIABLE, "").strip() or not clusters:
            return None
        if len(clusters) > 1:
            raise UsageError(f"which cluster? Give --cluster with one of {', '.join(clusters)}")
        return next(iter(clusters.items()))
    if url:
        raise UsageError("--prom and --cluster both say where Prometheus is: give one of them")
    if name not in clusters:
        hint = nearest(
            name, clusters, f"it knows {', '.join(clusters)}" if clusters else "it has none"
        )
        raise UsageError(f"--cluster: no [fleet.{clean_text(name)}] in the configuration{hint}")
    return name, clusters[name]


def _checked(text: str) -> tuple[str, bool]:
    """The URL without the API's path, and whether it is this machine."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise UsageError("--prom is not a URL; write it like http://prometheus:9090") from None
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise UsageError(
            f"no user or password in the URL: put them into a file for --header-file or {TOKEN_VARIABLE}"
        )
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(f"--prom must be http://HOST[:PORT][/PATH] or https://…, not {text!r}")
    if parts.query or parts.fragment or re.search(r"[\s\x00-\x1f\x7f]", text):
        raise UsageError("--prom ends with the path of Prometheus: no ?, # or spaces in it")
    path = re.sub(r"/(?:api/v1(?:/query)?|graph)?/?$", "", parts.path)
    return f"{parts.scheme}://{parts.netloc}{path}", is_loopback(host)


def _private(path: str, option: str) -> str:
    """The text of a file that no other user can read."""
    try:
        if is_named_pipe(path):
            raise UsageError(f"{option}: {path} is a named pipe: give a file, or <(print-headers)")
        # It may come by a pipe of the shell: --header-file <(print-headers).
        with open(path, "rb", opener=without_waiting) as file:
            mode = os.fstat(file.fileno())
            if stat.S_ISREG(mode.st_mode) and mode.st_mode & 0o077:
                raise UsageError(f"{option}: others can read {path}: chmod 600 it")
            data = read_most(file, LONGEST_FILE + 1)
    except OSError as error:
        raise UsageError(f"{option}: cannot read {path}: {error.strerror}") from None
    if len(data) > LONGEST_FILE:
        raise UsageError(f"{option}: {path} is too long")
    return data.decode("latin-1")


def _headers(path: str) -> dict[str, str]:
    headers = {}
    for number, line in enumerate(_private(path, "--header-file").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _HEADER.fullmatch(line.rstrip())
        if match is None:
            raise UsageError(f"--header-file: line {number} of {path} is not `Name: value`")
        headers[match[1]] = match[2]
    if not headers:
        raise UsageError(
            f"--header-file: {path} has no header in it, such as `Authorization: Bearer …`"
        )
    return headers


def checked_select(text: str | None) -> str:
    """Check label matchers. Raises UsageError."""
    if not text or not text.strip():
        return ""
    text = text.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    # Printed by `fleet queries`, and told by an engine that finds fault with it.
    if _SELECT.fullmatch(text) is None or not all(
        char.isprintable() or char in "\t\n" for char in text
    ):
        raise UsageError(
            f'--select takes label matchers such as \'cluster="a",job!="test"\', not {text!r}'
        )
    return text.rstrip(", ")


def is_ssh_host(host: str) -> bool:
    """Whether neither a shell nor ssh could misread a name."""
    return SSH_HOST.fullmatch(host) is not None and not host.endswith(":")


def is_address(host: str) -> bool:
    """Whether it is scraped by HTTP."""
    return host.startswith(("http://", "https://"))


MOST_HOSTS = 32
LONGEST_WORD = 253
"""Of a host's name (RFC 1035, as text); Python reads no number of more than some thousand digits."""
_RANGE = re.compile(r"([^\[\]]*)\[([0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*)\](.*)")


def expanded(words: Iterable[str]) -> tuple[str, ...]:
    """The hosts that words name: ``gpu[01-08,12]`` are nine.

    Raises UsageError for more than ``MOST_HOSTS``, and for a word that ssh or a shell could take for something else.
    """
    hosts: dict[str, None] = {}
    for word in words:
        for host in _expanded(word):
            hosts[_checked_host(host)] = None
            if len(hosts) > MOST_HOSTS:
                raise UsageError(
                    f"more than {MOST_HOSTS} hosts: let a Prometheus scrape them, and give `gputop fleet --prom URL`"
                )
    return tuple(hosts)


def _expanded(word: str) -> Iterable[str]:
    match = None if is_address(word) or len(word) > LONGEST_WORD else _RANGE.fullmatch(word)
    if match is None:
        yield word
        return
    for part in match[2].split(","):
        first, _, last = part.partition("-")
        numbers = range(int(first), int(last or first) + 1)
        if not numbers:
            raise UsageError(
                f"{clean_text(word)!r}: a range goes upwards, such as [{last}-{first}]"
            )
        for number in numbers[: MOST_HOSTS + 1]:
            yield from _expanded(f"{match[1]}{number:0{len(first)}d}{match[3]}")


def _checked_host(host: str) -> str:
    if not is_address(host):
        if "[" in host and len(host) <= LONGEST_WORD:
            raise UsageError(
                f"{clean_text(host)!r}: a range of hosts is written like gpu[01-08,12]"
            )
        if not is_ssh_host(host):
            raise UsageError(f"no host's name for ssh: {clean_text(host)!r}")
        return host
    try:
        parts = urlsplit(host)
        named, _ = parts.hostname, parts.port
    except ValueError:
        named = None
    if not named or "@" in parts.netloc or re.search(r"[\s\x00-\x1f\x7f?#]", host):
        raise UsageError(f"an exporter's address is http://HOST[:PORT], not {clean_text(host)!r}")
    return host if parts.path.strip("/") else f"{host.rstrip('/')}/metrics"
