"""What looks like a secret in a command line or in free text, and what stands in its place.

Three things give a secret away: the name before it (``--api-key X``, ``HF_TOKEN=X``, ``Authorization: Bearer X``), its
place in a URL (``user:X@host``), and its own shape (``hf_…``, ``ghp_…``, ``AKIA…``, JWTs; the prefixes are those that
their issuers publish so that scanners find them). Names are read word by word, because ``--tokenizer bert`` and
``--max-tokens 512`` are no secrets. Where it is in doubt it is masked. Masked text is masked to itself.

Every pattern takes time linear in the text: command lines are written by anybody.

The rules are in ``secret_rules`` and are imported when a text holds one of the marks here: most hold none, and the
first frame does not wait for patterns to be compiled.
"""

from __future__ import annotations

from collections.abc import Sequence

MASK = "********"
"""Of one length for every value: the length of a password is part of it."""

_SHAPE_MARKS = (
    "hf_", "sk-", "sk_", "rk-", "rk_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "gldt-",
    "glrt-", "glcbt-", "xox", "xapp-", "hooks.slack", "AKIA", "ASIA", "ABIA", "ACCA", "AIza", "ya29.", "GOCSPX-",
    "eyJ", "nvapi-", "gsk_", "r8_", "npm_", "pypi-", "dckr_pat_", "_v1_", "SG.", "whsec_", "hvs.", "hvb.",
    "AGE-SECRET", "glsa_", "lin_api_", "xai-", "shpat_", "PRIVATE KEY",
)  # fmt: skip
"""Without one of these nothing has the shape of a secret."""
_NAME_MARKS = (
    "key", "token", "secret", "pass", "pwd", "cred", "auth", "cookie", "bearer", "basic ", "dsn", "jwt", "otp", "-pat",
    "_pat", "pat=", "pin", "sig", "login",
)  # fmt: skip
"""Without one of these no name says secret."""
_PROGRAM_MARKS = (
    "sshpass", "mysql", "mariadb", "mongo", "7z", "rar", "zip", "redis-cli", "keydb-cli", "ldap", "curl", "lftp",
    "wget", "smbclient", "http", "xh", "docker", "podman", "nerdctl", "oras", "helm",
)  # fmt: skip
"""Without one of these no program takes a password by an option of one letter."""


def may_hold_one(text: str) -> bool:
    """Whether any rule could apply; most texts end here."""
    lowered = text.lower()
    return (
        "://" in text
        or any(mark in lowered for mark in _NAME_MARKS)
        or may_have_its_shape(text)
        or any(mark in text for mark in _PROGRAM_MARKS)
    )


def may_have_its_shape(text: str) -> bool:
    """Whether something in the text could have the shape of a secret."""
    return any(mark in text for mark in _SHAPE_MARKS)


def masked_words(words: Sequence[str]) -> list[str]:
    """The arguments of a program, the program itself first, each value that looks like a secret masked."""
    if not may_hold_one("\n".join(words)):
        return list(words)
    from gputop.model.secret_rules import without_secrets

    return without_secrets(words)


def masked_text(text: str) -> str:
    """Free text, or a command line that has become one text: a mark, a name, what ``sh -c`` was given."""
    if not may_hold_one(text):
        return text
    from gputop.model.secret_rules import text_without_secrets

    return text_without_secrets(text)
