"""The pages of ``gputop help`` and docs/ that are made of gputop's own tables, so that they cannot differ from it."""

from __future__ import annotations

from collections.abc import Mapping

from gputop.model import derived, metrics
from gputop.model.feature_table import key_tables
from gputop.model.metrics import Metric
from gputop.model.sm import SM_SOURCES
from gputop.output.document import Block, Document, page, section
from gputop.paint.keys import KEYS, PAGE_KEYS, REPLAY_KEYS, Key
from gputop.paint.process_columns import COLUMNS
from gputop.paint.process_filter import ALIASES

OPERATORS = {
    "`:` `=` `==`": "is this text, or has it as one of its words; of a number: is about this",
    "`~`": "has this text anywhere",
    "`!=`": "is another",
    "`<` `>` `<=` `>=`": "compares a number",
    "`!` before a term": "the opposite",
    "`,` in a value": "or: `gpu:0,3`",
}
OTHERS = {
    "verdict": "what the diagnosis says of the process's GPU, in any of its words",
    "name": "the executable's name, or the command line",
    "job": "the batch job, the container or the pod",
}


def filters_page() -> Document:
    short = {key: alias for alias, key in ALIASES.items()}
    fields = [(f"`{field}`", text) for field, text in OTHERS.items()]
    for key, column in COLUMNS.items():
        if key not in OTHERS:
            also = f" (also `{short[key]}`)" if key in short else ""
            fields.append((f"`{key}`", f"{column.definition}{also}"))
    return page(
        "Filters",
        (
            "For `--filter` and the key `f`: terms that must all hold, such as `gpu:3 user:ml mem>10G verdict:starved "
            "name~train !state:D`. `or` separates alternatives; `and` may stand between terms, binds tighter. A word "
            "without a field is searched for in command, name, user, pid, job and container. Quotes keep spaces. `-u "
            "ml` is `user:ml`, `-p 12` is `pid:12`. The conditions of alerts are the same language.",
            "Numbers take the units of their column: `mem>10G`, `age>2h`, `cpu>50`. A number that was not measured "
            "satisfies neither a comparison nor its opposite.",
        ),
        (
            section("Operators", (), ("operator", "meaning"), tuple(OPERATORS.items())),
            section("Fields", (), ("field", "meaning"), tuple(fields)),
        ),
    )


def _sections(keys: tuple[Key, ...], before: str = "") -> list[tuple[Block, ...]]:
    return [
        section(
            before + (title if before else title[0].upper() + title[1:]),
            (),
            ("key", "what it does"),
            tuple(
                (f"`{key.shown}`" if key.shown else "with `--key-preset`", key.does)
                for key in keys
                if key.section == title
            ),
        )
        for title in dict.fromkeys(key.section for key in keys)
    ]


def key_actions() -> tuple[Block, ...]:
    """The names under which keys can be changed, for the page of the settings."""
    tables = (KEYS, REPLAY_KEYS, PAGE_KEYS, *(keys for _, keys in key_tables()))
    shown = {
        key.id: f"`{key.shown}`" if key.shown else ""
        for table in reversed(tables)
        for key in reversed(table)
    }
    return section(
        "Actions of keys",
        (
            'Below `[keys]` in the file `quit = "q,x"` gives an action its keys, an empty text removes them.',
        ),
        ("action", "key"),
        tuple((f"`{key_id}`", keys) for key_id, keys in reversed(shown.items())),
    )


def keys_page() -> Document:
    sections = _sections((*KEYS, *REPLAY_KEYS))
    sections += _sections(PAGE_KEYS, "On ")
    for before, keys in key_tables():
        sections += _sections(keys, before)
    return page(
        "Keys",
        (
            "Every key can be changed in the configuration file, by the name of its action: `gputop help settings` "
            "lists them.",
        ),
        tuple(sections),
    )


METRICS_HEAD = ("key", "what it is", "unit", "shown as", "from", "DCGM field")
TABLES: tuple[tuple[str, Mapping[str, Metric]], ...] = (
    ("What a GPU is", metrics.GPU_STATIC),
    ("What a GPU does", metrics.GPU_METRICS),
    ("Where SM activity comes from", metrics.SM_PROVENANCE),
    ("A GPU that cannot be read", metrics.GPU_STATE),
    ("The host", metrics.HOST_METRICS),
    ("A process", metrics.PROCESS_METRICS),
    ("What a process is", metrics.PROCESS_STATIC),
)


def metrics_page() -> Document:
    sections = [
        section(title, (), METRICS_HEAD, tuple(map(_row, table.values())))
        for title, table in TABLES
    ]
    bits = tuple((f"0x{bit:X}", word) for bit, word in derived.WORDS.items())
    return page(
        "Metrics",
        (
            "The keys are those of JSON, CSV, recordings and the process table's columns. A value that was not "
            "measured is null in JSON, empty in CSV and n/a on the screen, with the reason; it is never 0 and never "
            "another value under its name.",
        ),
        (*sections, section("Bits of `throttle_reasons`", (), ("bit", "reason"), bits)),
    )


def _row(metric: Metric) -> tuple[str, ...]:
    dcgm = f"`{metric.dcgm}`" if metric.dcgm else ""
    definition = (
        f"{metric.definition}; JSON has `{metric.field}`" if metric.field else metric.definition
    )
    return f"`{metric.key}`", definition, metric.unit, metric.label, metric.origin or "", dcgm


def sources_page() -> Document:
    rows = tuple(
        (f"`{name}`", row.works_on, row.asks, row.shown) for name, row in SM_SOURCES.items()
    )
    return page(
        "Sources",
        (
            "gputop asks NVML and reads /proc, /sys and cgroup files, as the user who runs it. It needs no root, sends "
            "nothing anywhere and writes no file unless asked. `gputop help metrics` names the call or file of each "
            "number.",
            "SM activity has several sources. For each GPU the first that works is used; where it fails the next one "
            "takes over, the chart's line breaks there, and the place is marked. Two sources are never mixed into one "
            "number. `gputop doctor` says for each GPU which of them work, why the others do not, and what to do.",
            "Nsight Compute beside gputop: `ncu` wants the hardware counters for itself. NVML, GPM and a dcgm-exporter "
            "that gputop only reads leave them to it, so `ncu -o kernel python train.py` runs beside a plain `gputop`. "
            "With `--perf`, or with `--dcgmi` before Hopper, quit gputop first; or start `ncu`, which then says that "
            "the counters are in use, and start it again after 2 s: gputop gives them back when it sees `ncu`, `nsys` "
            "or DCGM, and takes them again 60 s after those have ended.",
        ),
        (section("SM activity", (), ("source", "works on", "what it asks", "shown as"), rows),),
    )
