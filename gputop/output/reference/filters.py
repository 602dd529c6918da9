"""The filter language, from its own tables."""

from __future__ import annotations

from gputop.output.reference.page import Page, Section
from gputop.paint.process_columns import COLUMNS
from gputop.paint.process_filter import ALIASES

OPERATORS = (
    ("`:` or `=`", "is this text, or has it as one of its words; of a number: is about this"),
    ("`~`", "has this text anywhere"),
    ("`!=`", "is another"),
    ("`<` `>` `<=` `>=`", "compares a number"),
    ("`!` before a term", "the opposite"),
    ("`,` in a value", "or: `gpu:0,3`"),
)
OTHERS = (
    ("verdict", "what the diagnosis says of the process's GPU, in any of its words"),
    ("name", "the executable's name, or the command line"),
    ("job", "the batch job, the container or the pod"),
)


def filters_page() -> Page:
    short = {key: alias for alias, key in ALIASES.items()}
    fields = [(f"`{field}`", text) for field, text in OTHERS]
    named = dict(OTHERS)
    for key, column in COLUMNS.items():
        if key not in named:
            also = f" (also `{short[key]}`)" if key in short else ""
            fields.append((f"`{key}`", f"{column.definition}{also}"))
    return Page(
        "Filters",
        (
            "For `--filter` and the key `f`: terms with spaces between them, all of which must hold, such as "
            "`gpu:3 user:ml mem>10G verdict:starved name~train !state:D`. A word without a field is searched for in "
            "command, name, user, pid, job and container. Quotes keep spaces. `-u ml` is `user:ml`, `-p 12` is "
            "`pid:12`.",
            "Numbers take the units of their column: `mem>10G`, `age>2h`, `cpu>50`. A number that was not measured "
            "satisfies neither a comparison nor its opposite.",
        ),
        (
            Section("Operators", (), ("operator", "meaning"), OPERATORS),
            Section("Fields", (), ("field", "meaning"), tuple(fields)),
        ),
    )
