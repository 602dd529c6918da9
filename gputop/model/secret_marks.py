"""The marks without which no text holds a secret, and the mask: so cheap to look for that the first frame does.

The rules themselves are in ``secret_rules``; ``secrets`` imports them when a text holds one of these marks.
"""

from __future__ import annotations

import re
from itertools import pairwise

MASK = "********"
"""Equally long for every value: the length of a password is part of the secret."""

_SHAPE_MARKS = (
    "hf_", "sk-", "sk_", "rk-", "rk_", "glpat-", "gldt-", "glrt-", "glcbt-", "xox", "xapp-", "hooks.slack", "discord",
    "AKIA", "ASIA", "ABIA", "ACCA", "AIza", "ya29.", "eyJ", "SG.", "hvs.", "hvb.", "AGE-SECRET", "TT3x", "dapi", "_v1_",
    "shpat_", "shpss_", "shpca_", "shppa_", "pat-", "rpa_", "PRIVATE KEY", "dckr_pat_",
    "GOCSPX-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_",
)  # fmt: skip
"""Without one of these only a random word has the shape of a secret."""
_NAME_MARKS = (
    "key", "token", "secret", "pass", "pwd", "cred", "auth", "cookie", "bearer", "basic", "dsn", "pw", "sas", "jwt",
    "otp", "-pat", "_pat", "pat=", "pin", "sig", "login",
)  # fmt: skip
"""Without one of these no name says secret."""
_PROGRAM_MARKS = (
    "sshpass", "mysql", "mariadb", "mongo", "7z", "rar", "zip", "sqlcmd", "twine", "redis-cli", "keydb-cli", "ldap",
    "curl", "lftp", "wget", "smbclient", "http", "xh", "docker", "podman", "nerdctl", "oras", "helm",
)  # fmt: skip
"""Without one of these no program takes a password by an option of one letter."""
LEAST_RANDOM = 24
"""Characters that a random word has at least, with the prefix of its issuer."""
GENERATED = re.compile(
    r"(?<![\w+/=.\-])(?:[A-Za-z0-9+/]{40}(?![\w+/=.\-])|[A-Za-z][A-Za-z0-9]{1,9}[-_][\w-]{14,}(?![\w\-/:=+]|\.\w))"
)
"""What may be random: a word as long as the secret key of AWS, in base64, or one behind an issuer's prefix, such as
``ghp_``, ``wandb_v1_`` or ``pplx-``. A path, an address, a name with its value and a file with a suffix are none."""


def is_random(word: str) -> bool:
    """Whether a word is long enough, has capitals, small letters and digits behind its prefix, and its longest part
    changes between them at a third of all places or more. Of a random part two thirds do; a hash, a UUID and most paths
    have not all three, and names of models and checkpoints are made of words."""
    first, *rest = re.split(r"[-_]", word)
    kinds = [[_kind(character) for character in part] for part in rest or [first]]
    if len(word) < LEAST_RANDOM or len({kind for part in kinds for kind in part}) < 3:
        return False
    longest = max(kinds, key=len)
    return 3 * sum(before != after for before, after in pairwise(longest)) >= len(longest)


def _kind(character: str) -> str:
    return "0" if character.isdigit() else "A" if character.isupper() else "a"


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
    return any(map(text.__contains__, _SHAPE_MARKS)) or (
        len(text) >= LEAST_RANDOM and any(is_random(match[0]) for match in GENERATED.finditer(text))
    )
