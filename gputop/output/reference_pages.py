"""The pages of ``gputop help`` and docs/ that are made of gputop's own tables, so that they cannot differ from it."""

from __future__ import annotations

from collections.abc import Mapping

from gputop.diagnosis import thresholds
from gputop.diagnosis.catalogue import badge_rows, verdict_rows
from gputop.diagnosis.rules.remedy_rows import REMEDIES, plain_words
from gputop.diagnosis.signals import LEAST_SAMPLES
from gputop.diagnosis.window import WINDOW_S
from gputop.diagnosis.worth import MOST_SPEEDUP
from gputop.model import derived, metrics
from gputop.model.feature_table import key_tables
from gputop.model.metrics import Metric
from gputop.model.sm import SM_SOURCES
from gputop.output.document import Block, Document, Entries, Paragraph, page, part, section
from gputop.paint.keys import KEYS, PAGE_KEYS, REPLAY_KEYS, Key
from gputop.paint.process_columns import ALIASES, COLUMNS

# The filter language, from its own tables.

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


# Every key, from the tables that bind them.


def _sections(keys: tuple[Key, ...], before: str = "") -> list[tuple[Block, ...]]:
    return [
        section(
            before + (title if before else title[0].upper() + title[1:]),
            (),
            ("key", "what it does"),
            tuple(
                (f"`{key.shown}`" if key.shown else "with a preset", key.does) for key in keys if key.section == title
            ),
        )
        for title in dict.fromkeys(key.section for key in keys)
    ]


def key_actions() -> tuple[Block, ...]:
    """The names under which keys can be changed, for the page of the settings."""
    tables = (KEYS, REPLAY_KEYS, PAGE_KEYS, *(keys for _, keys in key_tables()))
    shown = {key.id: f"`{key.shown}`" if key.shown else "" for table in reversed(tables) for key in reversed(table)}
    return section(
        "Actions of keys",
        ('Below `[keys]` in the file `quit = "q,x"` gives an action its keys, an empty text removes them.',),
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


# Every number, from the metric catalogue.

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
    sections = [section(title, (), METRICS_HEAD, tuple(map(_row, table.values()))) for title, table in TABLES]
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
    definition = f"{metric.definition}; JSON has `{metric.field}`" if metric.field else metric.definition
    return f"`{metric.key}`", definition, metric.unit, metric.label, metric.origin or "", dcgm


# Where the numbers come from, from the table of SM sources and the catalogue's origins.


def sources_page() -> Document:
    rows = tuple((f"`{name}`", row.works_on, row.asks, row.shown) for name, row in SM_SOURCES.items())
    return page(
        "Sources",
        (
            "gputop asks NVML and reads /proc, /sys and cgroup files, as the user who runs it. It needs no root, sends "
            "nothing anywhere and writes no file unless asked. `gputop help metrics` names the call or file of each "
            "number.",
            "SM activity has several sources. For each GPU the first that works is used; where it fails the next one "
            "takes over, the chart's line breaks there, and the place is marked. Two sources are never mixed into one "
            "number. `gputop doctor` says for each GPU which of them work, why the others do not, and what to do.",
        ),
        (section("SM activity", (), ("source", "works on", "what it asks", "shown as"), rows),),
    )


# The verdicts and badges, from the rules.

RECORDED = (
    ("train_untuned", "no_tensor_cores", "H100", "fine-tuning of 0.5B in FP32, 26.6 times slower than its twin"),
    ("train_tuned", "healthy", "H100", "its tuned twin: bf16, packed"),
    ("t4_hollow_gemm", "small_kernels", "T4", "additions of 64 elements in a loop (C)"),
    ("t4_hollow_gemm", "healthy", "T4", "FP16 matrix products"),
    ("sglang_gemma3_rtx50", "working", "GeForce Blackwell", "SGLang under a benchmark"),
    ("vllm_0.2rps", "starved_unattributed", "H100", "a server with a request each five seconds, without its processes"),
    ("h200_train", "healthy", "H200", "training of a transformer in bf16"),
    ("h200_loader", "healthy", "H200", "the same from four loader workers that keep up"),
    ("h200_small_steps", "main_process", "H200", "the same with steps too small for the GPU"),
    ("h200_main_cpu", "main_process", "H200", "the main thread computes between the steps"),
    ("h200_loader_cpu", "dataloader_cpu", "H200", "four workers that compute too long"),
    ("h200_decode", "memory_bandwidth", "H200", "one row times large matrices"),
    ("h200_checkpoint", "checkpoint_pause", "H200", "weights saved each 3 s"),
    ("h200_pageable", "pcie_transfer", "H200", "copies of pageable memory"),
)
"""Loads of real GPUs in tests/telemetry: recording, the verdict that is right, card, what ran."""
OF_H200 = sum(card == "H200" for _, _, card, _ in RECORDED)
LEAST_RIGHT = 0.025 ** (1 / OF_H200)
"""Where n of n are right, the least share of right ones that agrees with it: exact binomial bound, 95 %, two-sided."""


def _flags() -> tuple[tuple[str, str, str], ...]:
    """Return flag, conditions and the place where it is left."""
    a, b, c = thresholds.FLAG_A_SM, thresholds.FLAG_B_RATIO, thresholds.FLAG_C_RATIO
    return (
        ("A", f"util ≥ {thresholds.FLAG_A_UTIL:.0f} %; SM < {a:.0f} %", f"SM {a.leave:.0f} %"),
        ("B", f"not A; util ≥ {thresholds.FLAG_B_UTIL:.0f} %; SM / util < {b:g}", f"SM / util {b.leave:g}"),
        (
            "C, hollow",
            f"neither A nor B; util ≥ {thresholds.FLAG_C_UTIL:.0f} %; 0 < SM / util < {c:g}; a compute process and "
            "nothing that renders, or no process is known at all",
            f"SM / util {c.leave:g}",
        ),
    )


def verdicts_page() -> Document:
    verdicts = tuple((f"`{row.id}`", row.condition, row.title, row.level, row.remedy) for row in verdict_rows())
    checked = tuple((f"`{row.id}`", row.checked) for row in verdict_rows() if row.checked)
    badges = tuple((f"`{row.id}`", row.condition, row.level) for row in badge_rows())
    return page(
        "Verdicts and badges",
        (
            "A GPU has one verdict: the first of these whose conditions hold. `starved_unattributed` gives way to "
            f"verdicts that need a flag. A verdict is judged on the means of the last {WINDOW_S:.0f} s, from "
            f"{LEAST_SAMPLES} samples on, unless its conditions say otherwise. It is shown with its evidence and its "
            "remedy. A GPU may have any number of badges beside it.",
            "The level is the colour in every output: red where a GPU is busy and does not work, yellow where it "
            "waits.",
            "Ratios are of means over the same samples, so idle time in the window changes SM activity and not its "
            "ratio to util. A rule with a second number leaves there, so on a steady load no verdict comes and goes. "
            "Confidence is high only where the claim itself was measured.",
        ),
        (
            part(
                "Flags of a GPU that is busy, not working",
                Paragraph(
                    "A flag is shown only where the verdict's state is busy, not working. The time of `communication` "
                    "under a flag counts there, too, with that cause."
                ),
                Entries(("flag", "when", "leaves at"), _flags(), listed=True),
            ),
            part("Verdicts", Entries(("verdict", "when", "shown as", "level", "what helps"), verdicts, listed=True)),
            section(
                "What a remedy wins at most",
                (
                    "A starved GPU runs no kernel for a share of its time. Without that time the same kernels end "
                    "1 / (1 − share) times sooner: idle 62 % is `up to 2.6 × faster` (`speedup_at_most`). It is a "
                    "bound, not a forecast. The share is that of the last window, in a report that of all time under "
                    "the verdict. It counts all idle time, also where a second cause takes over once the first is "
                    "cured, and kernels may become slower beside more work. Above "
                    f"{MOST_SPEEDUP:.0f} × the rest of the time is too short to be measured, and no number is given.",
                    "A GPU that is busy and does not work leaves a share of the chip unused (`unused_pct`). That says "
                    "nothing of time: how much faster other kernels would be is not known. Idle GPUs have no bound: "
                    "they have no work to speed up. With a price, the lost share of an hour is given in money.",
                ),
            ),
            section(
                "What they were checked on",
                (
                    f"{len(RECORDED)} loads of real GPUs are in the repository (`tests/telemetry`), and a test holds "
                    "their verdicts. Those of H100, T4 and GeForce others have published, without processes, and the "
                    "thresholds were chosen with them in view. Those of the H200 gputop recorded itself, and no "
                    "threshold was changed for them: of the eight, six were judged right as they came, and nothing "
                    "healthy was accused. Of the two whose steps were too small for the GPU one was not judged in time "
                    "and one's cause was not seen; what the engine itself counts, and the time of PyTorch's threads "
                    f"for gradients, are used since. {OF_H200} of {OF_H200} would show no more than that at least "
                    f"{LEAST_RIGHT:.2f} of such loads are judged right (exact binomial bound, 95 %).",
                    "Each rule rests on one independent job or two, `healthy` on four. There is no recording of a "
                    "real load for any rule that is not named here: all others were checked on simulated machines and "
                    "on real processes without a GPU.",
                ),
                ("recording", "verdict", "card", "what ran"),
                tuple((f"`{name}`", f"`{verdict}`", card, load) for name, verdict, card, load in RECORDED),
            ),
            section(
                "What their thresholds lie between",
                ("Also of loads that others have published and that are not in the repository.",),
                ("verdict", "checked on"),
                checked,
            ),
            section(
                "Remedies of a GPU that starves or idles",
                (
                    "The first row whose condition was measured is given. What is in braces is measured. What was "
                    "tried is a remedy in a real training loop with a pretended GPU, on two busy cores: steps a second "
                    "before and after. What is not tried needs a GPU, more cores or a machine of another kind.",
                ),
                ("found", "measured", "remedy", "tried"),
                tuple(
                    (", ".join(row.causes), row.measured, plain_words(row), row.trial or "not tried")
                    for row in REMEDIES
                ),
            ),
            section("Badges", (), ("badge", "when", "level"), badges),
        ),
    )
