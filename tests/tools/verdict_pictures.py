"""``docs/pictures.md``: each verdict with the picture of a scenario that reaches it.

Made after the pictures: what has none yet is left out.
"""

from __future__ import annotations

from pathlib import Path

from gputop.diagnosis.verdict.catalogue import verdict_rows
from gputop.sources.simulation.scenarios import DEFAULT, SCENARIOS
from tests.support.expected_verdicts import EXPECTED

DOCS = Path(__file__).parents[2] / "docs"
HEAD = """# Pictures of verdicts

Each verdict as the demo shows it.
"""


def page(made_by: str) -> str:
    """One section for each verdict that a scenario of its own reaches."""
    parts = [HEAD, f"<!-- written by `{made_by}` -->\n"]
    for row in verdict_rows():
        own = [
            name for name in SCENARIOS if name != DEFAULT and row.id == EXPECTED[name][0].verdict
        ]
        # The scenario that is named after it shows it best.
        name = row.id if row.id in own else own[0] if own else ""
        if row.id == "collecting" or not (DOCS / picture_of(name)).is_file():
            continue
        parts.append(f"## {row.title[:1].upper()}{row.title[1:]}\n")
        parts.append(f"![{SCENARIOS[name].title}]({picture_of(name)})\n")
        parts.append(
            f"`gputop demo {name}`; when and what helps: [{row.id}](verdicts.md#{row.id})\n"
        )
    return "\n".join(parts)


def picture_of(name: str) -> str:
    """Where the picture of a scenario lies, from docs/."""
    return f"../screenshots/scenario_{name}.svg"
