"""What the site needs beside mkdocs: pictures from outside of docs/; links that leave docs/ lead to the repository."""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PICTURES = "screenshots"
REPOSITORY = os.environ.get("GITHUB_REPOSITORY")
"""Which repository it is, Actions say; elsewhere a link that leaves docs/ is only its words."""
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(((?:\.\./)+[^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pictures."""
    for path in sorted((ROOT / PICTURES).iterdir()):
        files.append(File.generated(config, f"{PICTURES}/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links out of docs/ lead to the site's own pictures, or to the repository."""

    def moved(match: re.Match[str]) -> str:
        picture, words, link = match.groups()
        target = posixpath.normpath(
            posixpath.join("docs", posixpath.dirname(page.file.src_uri), link)
        )
        if target.startswith("docs/"):
            return match[0]
        if target.startswith(f"{PICTURES}/"):
            inside = posixpath.relpath(target, posixpath.dirname(page.file.src_uri) or ".")
            return f"{picture}[{words}]({inside})"
        return (
            words
            if REPOSITORY is None
            else f"[{words}](https://github.com/{REPOSITORY}/blob/main/{target})"
        )

    return _LINK.sub(moved, markdown)
