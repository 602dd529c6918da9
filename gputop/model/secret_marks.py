"""Mask of secrets, and a quick check for possible secrets."""

from __future__ import annotations

import re

MASK = "********"
"""Mask of one length for every value.

The length of a password is part of the secret.
"""
_NAME_MARKS = (
    "key", "token", "secret", "pass", "pwd", "pw", "cred", "auth", "cookie", "bearer", "basic", "dsn", "jwt", "otp",
    "-pat", "_pat", "sig", "login", "obscure", "sudo", "://", "@", "%3", "hf_", "akia", "asia", "aiza", "eyj", "xox",
    "hooks", "-p", "-w", "-a", "-u", "-k",
)  # fmt: skip
"""Required part of names, options and addresses that announce a secret."""
_LONG_PART = re.compile(r"(?<![A-Za-z0-9])(?=[A-Za-z]*\d|\d+[A-Za-z])[A-Za-z0-9]{8}")
"""Required part of a word with the shape of a secret.

Letters and digits are mixed in it.
"""


def may_hold_one(text: str) -> bool:
    """Return whether any rule could apply to a text.

    Most texts end here.
    """
    lowered = text.lower()
    return (
        any(map(lowered.__contains__, _NAME_MARKS))
        or _LONG_PART.search(text) is not None
        or not text.isascii()
    )
