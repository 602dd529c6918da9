"""What looks like a secret in a command line or in free text, and what stands in its place.

Three things give a secret away: the name before it (``--api-key X``, ``HF_TOKEN=X``, ``Authorization: Bearer X``), its
place in a URL (``user:X@host``), and its own shape: random letters of both cases and digits behind a prefix, as most
issuers make them, and what some publish so that scanners find it (``hf_…``, ``AKIA…``, JWTs). Names are read word by
word, because ``--tokenizer bert`` and ``--max-tokens 512`` are no secrets. Where it is in doubt it is masked, but bare
hex digits, UUIDs, paths and names of checkpoints: they are mostly none, and tell runs apart. Masked text is masked to
itself.

The rules are in ``secret_rules`` and are imported when a text holds one of the marks in ``secret_marks``: most hold
none, and the first frame does not wait for patterns to be compiled.
"""

from __future__ import annotations

from collections.abc import Sequence

from gputop.model.secret_marks import may_hold_one


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
