"""The marks without which no text holds a secret, and the mask: so cheap to look for that the first frame does.

The rules themselves are in ``secret_rules``; ``secrets`` imports them when a text holds one of these marks.
"""

from __future__ import annotations

import re

MASK = "********"
"""Equally long for every value: the length of a password is part of the secret."""

_SHAPE_MARKS = (
    "hf_", "sk-", "sk_", "rk-", "rk_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "gldt-",
    "glrt-", "glcbt-", "xox", "xapp-", "hooks.slack", "discord", "AKIA", "ASIA", "ABIA", "ACCA", "AIza", "ya29.",
    "GOCSPX-", "eyJ", "nvapi-", "gsk_", "r8_", "npm_", "pypi-", "dckr_pat_", "_v1_", "SG.", "whsec_", "hvs.", "hvb.",
    "AGE-SECRET", "glsa_", "lin_api_", "xai-", "shpat_", "PRIVATE KEY",
)  # fmt: skip
"""Without one of these nothing has the shape of a secret."""
_NAME_MARKS = (
    "key", "token", "secret", "pass", "pwd", "cred", "auth", "cookie", "bearer", "basic ", "dsn", "pw", "sas", "jwt",
    "otp", "-pat", "_pat", "pat=", "pin", "sig", "login",
)  # fmt: skip
"""Without one of these no name says secret."""
_PROGRAM_MARKS = (
    "sshpass", "mysql", "mariadb", "mongo", "7z", "rar", "zip", "sqlcmd", "twine", "redis-cli", "keydb-cli", "ldap",
    "curl", "lftp", "wget", "smbclient", "http", "xh", "docker", "podman", "nerdctl", "oras", "helm",
)  # fmt: skip
"""Without one of these no program takes a password by an option of one letter."""
FORTY = re.compile(r"(?<![\w+/=.\-])[A-Za-z0-9+/]{40}(?![\w+/=.\-])")
"""A word as long as the secret key of AWS, in base64."""


def may_hold_one(text: str) -> bool:
    """Whether any rule could apply; most texts end here."""
    lowered = text.lower()
    return (
        "://" in text
        or "@" in text
        or any(map(lowered.__contains__, _NAME_MARKS))
        or may_have_its_shape(text)
        or any(map(text.__contains__, _PROGRAM_MARKS))
    )


def may_have_its_shape(text: str) -> bool:
    """Whether something in the text could have the shape of a secret."""
    return any(map(text.__contains__, _SHAPE_MARKS)) or (len(text) >= 40 and FORTY.search(text) is not None)
