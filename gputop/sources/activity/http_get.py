"""Fetches small texts with limits on time and size.

No redirects, proxies or compression.
"""

from __future__ import annotations

import re
from time import monotonic

from gputop.model.clean_text import clean_text
from gputop.model.source import UsageError

MOST_BYTES = 4 << 20
LONGEST_S = 3.0
"""An answer that takes longer is given up, even if no single wait was too long."""
_PIECE = 1 << 16
_LONGEST_WORDS = 120


def get(url: str, timeout_s: float) -> str:
    """Return the body of one GET, at most 4 MiB.

    ``timeout_s`` limits each wait, ``LONGEST_S`` the whole answer. A user and password in the address are sent as
    basic authentication. Raises OSError, and ValueError for what cannot be metrics; their texts are printable and hold
    nothing of the body.
    """
    # Imported here: they cost more than the rest of this source, and most machines never get this far.
    from base64 import b64encode
    from http.client import HTTPConnection, HTTPException, HTTPSConnection
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url)
    kind, port = (HTTPSConnection, 443) if parts.scheme == "https" else (HTTPConnection, 80)
    headers = {"Accept": "text/plain", "Accept-Encoding": "identity", "Connection": "close"}
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {b64encode(credentials.encode()).decode()}"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection = kind(parts.hostname or "", parts.port or port, timeout=timeout_s)
    try:
        connection.request("GET", target, headers=headers)
        response = connection.getresponse()
        if response.status != 200:
            redirect = ", and redirects are not followed" if 300 <= response.status < 400 else ""
            raise ValueError(
                f"answers {response.status} {_words(response.reason)}".rstrip() + redirect
            )
        encoding = response.getheader("Content-Encoding", "identity")
        if encoding.strip().lower() != "identity":
            raise ValueError(f"answers in {_words(encoding)}, which was not asked for")
        declared = response.length
        body, end = bytearray(), monotonic() + LONGEST_S
        while (declared is None or len(body) < declared) and (piece := response.read1(_PIECE)):
            body += piece
            if len(body) > MOST_BYTES:
                raise ValueError(f"answers with more than {MOST_BYTES >> 20} MiB")
            if monotonic() > end:
                raise ValueError(f"takes more than {LONGEST_S:.0f} s for one answer")
    except HTTPException as error:
        raise ValueError(f"does not speak HTTP ({type(error).__name__})") from error
    finally:
        connection.close()
    if declared is not None and len(body) < declared:
        raise ValueError("breaks off in the middle of its answer")
    return body.decode(errors="replace")


def checked(
    url: str, option: str = "--dcgm-url", example: str = "http://localhost:9400/metrics"
) -> str:
    """Return a valid address; raise UsageError with an example otherwise."""
    from urllib.parse import urlsplit

    shown = _without_password(url)
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not url.isascii() or not url.isprintable() or " " in url:
        raise UsageError(f"{option} {shown}: give an address like {example}")
    return url


def place_of(url: str) -> str:
    """Return host and port of an address, without user and password."""
    return _without_password(url).partition("://")[2].partition("/")[0]


def _without_password(url: str) -> str:
    return re.sub(r"(?<=//)[^/]*@", "", clean_text(url).strip(), count=1)


def trouble(error: OSError | ValueError) -> str:
    """Describe an error for the screen."""
    return _words(getattr(error, "strerror", None) or str(error)) or type(error).__name__


def _words(text: str) -> str:
    return clean_text(text).strip()[:_LONGEST_WORDS]
