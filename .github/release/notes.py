"""``python .github/release/notes.py TAG``: that version's section of the changelog, once the tag is found to be right.

Exit status 1 where the tag, the package's version and the changelog do not name the same version.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    version = sys.argv[1].removeprefix("v")
    package = (ROOT / "gputop" / "__init__.py").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    sections = re.split(
        r"^## ", (ROOT / "docs" / "changelog.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    section = next((text for text in sections if text.split(None, 1)[0] == version), None)
    wrong = [
        name
        for name, found in {
            "gputop/__init__.py": f'__version__ = "{version}"' in package,
            "pyproject.toml": f'\nversion = "{version}"\n' in project,
            "docs/changelog.md": section is not None,
        }.items()
        if not found
    ]
    if wrong or section is None:
        print(f"notes.py: {', '.join(wrong)} do not name version {version}", file=sys.stderr)
        return 1
    print(section.partition("\n")[2].strip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
