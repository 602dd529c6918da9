"""The terminal's clipboard by OSC 52, also through tmux."""

from __future__ import annotations

import base64
from collections.abc import Mapping

MOST_BYTES = 74_994
"""xterm takes no more than 100,000 characters of base64 with their frame."""


def copy_sequence(text: str, environ: Mapping[str, str]) -> str | None:
    """Return the sequence that copies a text; None if too long.

    In tmux the sequence is sent twice: as it is, for ``set-clipboard on``, and passed through to the terminal outside.
    """
    data = text.encode()
    if len(data) > MOST_BYTES:
        return None
    plain = f"\x1b]52;c;{base64.b64encode(data).decode()}\x07"
    if environ.get("TMUX"):
        return plain + "\x1bPtmux;" + plain.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    return plain
