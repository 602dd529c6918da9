"""Why an engine did not answer, in one line each: what is wrong, and what to do. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from gputop.fleet.address import TOKEN_VARIABLE
from gputop.model.text import clean_text

LONGEST_WORDS = 160


class _Said(Struct, frozen=True):
    error: str = ""


_SAID = msgspec.json.Decoder(_Said)


def refusal(status: int, headers: Mapping[str, str], body: bytes, asked: str) -> str:
    """What a status other than success means."""
    if b"no org id" in body[:512]:
        return f"{status}, no tenant: Mimir and Cortex want a line `X-Scope-OrgID: NAME` in --header-file"
    if status in (401, 403):
        return f"{status}, not allowed: give a token by {TOKEN_VARIABLE} or a header by --header-file"
    if status == 404:
        return "404, no Prometheus under this path: a part such as /prometheus may be missing from the URL"
    if 300 <= status < 400:
        return f"redirects to {cut(headers.get('location', 'nowhere'))}: give that address if you trust it"
    if is_page(body):
        return f"{status} with a web page: is this Prometheus' address?"
    try:
        reason = _SAID.decode(body).error
    except msgspec.DecodeError:
        # Gateways and Thanos' stores answer in plain text.
        reason = body[:LONGEST_WORDS].decode("utf-8", "replace")
    if status in (400, 422):
        narrower = "; narrow it by --select" if "exceeded" in reason else ""
        return f"{status}, it refuses {cut(asked)}: {cut(reason)}{narrower}"
    return f"{status}, the engine failed{': ' * bool(reason.strip())}{cut(reason).strip()}"


def no_answer(error: msgspec.DecodeError | UnicodeDecodeError, kind: str, body: bytes) -> str:
    """Why a successful response is not an answer."""
    if "html" in kind or is_page(body):
        return "answers with a web page, not with JSON: a login page, or another service"
    if "truncated" in str(error):
        return "its answer broke off"
    if isinstance(error, msgspec.ValidationError):
        return "answers with JSON that is not Prometheus': is this its address?"
    return "does not answer with JSON: is this Prometheus' address?"


def is_page(body: bytes) -> bool:
    """Whether this is HTML."""
    return body[:512].lstrip()[:1] == b"<"


def cut(text: str) -> str:
    """Words from outside in one line that can be shown."""
    return clean_text(re.sub(r"\s+", " ", text))[:LONGEST_WORDS]
