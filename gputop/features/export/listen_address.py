"""Address on which the exporter listens, as people type it, and its socket."""

from __future__ import annotations

import re
import socket

from msgspec import Struct

from gputop.model.fleet_settings import is_loopback
from gputop.model.source import UsageError

DEFAULT = "127.0.0.1:9401"
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([\w.-]*)):(\d{1,5})", re.ASCII)
HOST_PATTERN = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(?::\d{1,5})?", re.ASCII)


class ListenAddress(Struct, frozen=True):
    """``host`` is empty for every interface."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host or "0.0.0.0"
        return f"{host}:{self.port}"


def parse(text: str) -> ListenAddress:
    """Parse an address to listen on. Raises UsageError.

    ``127.0.0.1:9401``, ``[::1]:9401``, or ``:9401`` for every interface.
    """
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match[3]) > 65535:
        raise UsageError(
            f"--listen must be HOST:PORT such as {DEFAULT} or [::1]:9401, not {text!r}"
        )
    return ListenAddress(match[1] or match[2] or "", int(match[3]))


BACKLOG = 1024
"""Connections that wait to be taken: beyond it a client has to try again after a second."""


def listen(address: ListenAddress) -> socket.socket:
    """Return a listening socket. Raises UsageError where the address cannot be used."""
    try:
        addresses = socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a name"
        raise UsageError(f"--listen: no address {address.host!r}: {reason}") from None
    # Every interface: an IPv6 socket, where there is IPv6, accepts IPv4 as well.
    family, _, _, _, place = max(addresses, key=lambda row: row[0] == socket.AF_INET6)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(
                socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if not address.host else 1
            )
        listener.bind(place)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"cannot listen on {address}: {error.strerror}; choose another one with --listen"
        ) from None
    return listener
