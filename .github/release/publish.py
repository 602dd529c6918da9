"""``python .github/release/publish.py [OWNER/NAME]``: let README say that the package index has gputop.

Writes its badges and its line about installing between their marks. The release runs it before it builds, so that what
is published says so, and proposes the same change to the main branch.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXTRAS, README = ROOT / "gputop" / "model" / "extras.py", ROOT / "README.md"
BEGIN, END = "<!-- install -->", "<!-- /install -->"


def main() -> int:
    repository = sys.argv[1] if len(sys.argv) > 1 else None
    source = EXTRAS.read_text(encoding="utf-8")
    named = re.search(r'^DISTRIBUTION = "([\w-]+)"$', source, re.MULTILINE)
    text = README.read_text(encoding="utf-8")
    if named is None or text.count(BEGIN) != 1 or text.count(END) != 1:
        print(
            "publish.py: the distribution's name or README's marks are not where they were",
            file=sys.stderr,
        )
        return 1
    before, rest = text.split(BEGIN)
    README.write_text(
        f"{before}{BEGIN}\n{lines(named[1], repository)}\n{END}{rest.split(END)[1]}",
        encoding="utf-8",
    )
    return 0


def lines(distribution: str, repository: str | None) -> str:
    """Badges, where it is known of which repository, and the line that runs it without installing anything."""
    badges = [
        f"[![version](https://img.shields.io/pypi/v/{distribution})](https://pypi.org/project/{distribution}/)",
        f"[![Python](https://img.shields.io/pypi/pyversions/{distribution})](https://pypi.org/project/{distribution}/)",
    ]
    if repository is not None:
        checks = f"https://github.com/{repository}/actions/workflows/checks.yml"
        badges.insert(0, f"[![checks]({checks}/badge.svg)]({checks})")
    run = f"```sh\nuvx --from {distribution} gputop demo     # or: pipx run --spec {distribution} gputop demo\n```"
    return "\n".join([*badges, "", "Try it on any Linux machine, no GPU needed:", "", run])


if __name__ == "__main__":
    sys.exit(main())
