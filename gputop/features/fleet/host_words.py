"""Read the hosts that a user names: ranges, ssh names and exporters' addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from gputop.features.fleet.address import SSH_HOST
from gputop.model.quantity import clean_text
from gputop.model.source import UsageError


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
            hosts[_checked(host)] = None
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
            raise UsageError(f"{clean_text(word)!r}: a range goes upwards, such as [{last}-{first}]")
        for number in numbers[: MOST_HOSTS + 1]:
            yield from _expanded(f"{match[1]}{number:0{len(first)}d}{match[3]}")


def _checked(host: str) -> str:
    if not is_address(host):
        if "[" in host and len(host) <= LONGEST_WORD:
            raise UsageError(f"{clean_text(host)!r}: a range of hosts is written like gpu[01-08,12]")
        if SSH_HOST.fullmatch(host) is None or host.endswith(":"):
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
