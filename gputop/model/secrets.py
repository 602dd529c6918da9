"""Mask likely secrets in command lines and free text.

Three things give a secret away: a name before it (``--api-key X``, ``HF_TOKEN=X``, ``Authorization: Bearer X``), its
place as user info in a URL (``user:X@host``), and its own shape: a known prefix (``hf_…``, ``AKIA…``), or random
letters and digits. Bare hex digits, UUIDs, paths and names of checkpoints stay: they mostly are none, and tell runs
apart.

The rules are in ``secret_rules``, imported when a text may hold a secret: most texts hold none, and the first frame
does not wait for patterns to be compiled.
"""

from __future__ import annotations

from collections.abc import Sequence

from gputop.model.secret_marks import may_hold_one


def masked_words(words: Sequence[str]) -> list[str]:
    """Return the arguments of a program with each secret masked."""
    if not may_hold_one("\n".join(words)):
        return list(words)
    from gputop.model.secret_rules import without_secrets

    return without_secrets(words)


def masked_text(text: str) -> str:
    """Mask each secret in free text or a command line."""
    if not may_hold_one(text):
        return text
    from gputop.model.secret_rules import text_without_secrets

    return text_without_secrets(text)
