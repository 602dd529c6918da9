"""``uv_as_pip.py UV ARGUMENT…``: run uv with the package indexes that pip is set to, which uv itself does not read."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}
SEPARATOR = {"UV_FIND_LINKS": ","}
SECTIONS = ("global", "install", ":env:")
"""pip's sections, each of which holds over those before it."""


def pip_settings() -> dict[str, str]:
    """What ``pip config`` says of the settings that uv knows by another name, as uv's environment variables."""
    words = [sys.executable, "-m", "pip", "config", "list"]
    lines = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    found = dict(line.split("=", 1) for line in lines)
    settings = {}
    for section in SECTIONS:
        for name, variable in SETTINGS.items():
            if value := found.get(f"{section}.{name}"):
                settings[variable] = SEPARATOR.get(variable, " ").join(
                    ast.literal_eval(value).split()
                )
    return settings


def main() -> None:
    # As pip does: of all indexes the newest version that fits, not that of the first index which has the package.
    settings = {"UV_INDEX_STRATEGY": "unsafe-best-match", **pip_settings()}
    os.execve(sys.argv[1], sys.argv[1:], {**settings, **os.environ})


if __name__ == "__main__":
    main()
