"""Which requests are answered: those that name this machine's loopback, and come from no other site.

No cookie is read or set: browsers send cookies to every port of a host, so that a program on another port of this
machine would receive them. The key is asked for later, as the first message on the WebSocket.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

LOCAL_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE | re.ASCII)
"""The accepted Host, with any port, since a forwarded one differs. Any other name was made to point here."""


class Refusal(NamedTuple):
    """Why a request is turned away."""

    status: int
    """HTTP status, 400 or 403."""
    words: str


def refusal(headers: Mapping[str, str], *, socket: bool) -> Refusal | None:
    """Why a request with these headers is turned away, or None; ``socket`` where it opens the WebSocket."""
    host = headers.get("Host", "")
    if LOCAL_HOST.fullmatch(host) is None:
        return Refusal(403, "this server answers to its loopback address only")
    origin = headers.get("Origin")
    if origin is None:
        # Browsers name the origin of every WebSocket.
        return Refusal(403, "only the page of this server may open its socket") if socket else None
    if origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
        return Refusal(403, "another site may not use this screen")
    return None


def headers_for(host: str) -> dict[str, str]:
    """Headers of every answer: they make the browser refuse whatever is not from here.

    ``host`` has passed the gate. The sockets are named because some browsers do not count them as 'self'; textual.js
    writes its styles into the page.
    """
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; "
        f"img-src 'self' data:; connect-src 'self' ws://{host} wss://{host}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
