"""Reference page of the verdicts and badges, from the rules."""

from __future__ import annotations

from gputop.diagnosis import thresholds
from gputop.diagnosis.rules.remedy_rows import REMEDIES, plain_words
from gputop.diagnosis.signals import LEAST_SAMPLES
from gputop.diagnosis.verdict.catalogue import badge_rows, verdict_rows
from gputop.diagnosis.verdict.worth import MOST_SPEEDUP
from gputop.diagnosis.window.window import WINDOW_S
from gputop.output.document import Document, Entries, Paragraph, page, part, section

RECORDED = (
    (
        "train_untuned",
        "no_tensor_cores",
        "H100",
        "fine-tuning of 0.5B in FP32, 26.6 times slower than its twin",
    ),
    ("train_tuned", "healthy", "H100", "its tuned twin: bf16, packed"),
    ("t4_hollow_gemm", "small_kernels", "T4", "additions of 64 elements in a loop (C)"),
    ("t4_hollow_gemm", "healthy", "T4", "FP16 matrix products"),
    ("sglang_gemma3_rtx50", "working", "GeForce Blackwell", "SGLang under a benchmark"),
    (
        "vllm_0.2rps",
        "starved_unattributed",
        "H100",
        "a server with a request each five seconds, without its processes",
    ),
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
        (
            "B",
            f"not A; util ≥ {thresholds.FLAG_B_UTIL:.0f} %; SM / util < {b:g}",
            f"SM / util {b.leave:g}",
        ),
        (
            "C, hollow",
            f"neither A nor B; util ≥ {thresholds.FLAG_C_UTIL:.0f} %; 0 < SM / util < {c:g}; a compute process and "
            "nothing that renders, or no process is known at all",
            f"SM / util {c.leave:g}",
        ),
    )


def verdicts_page() -> Document:
    verdicts = tuple(
        (f"`{row.id}`", row.condition, row.title, row.level, row.remedy) for row in verdict_rows()
    )
    checked = tuple((f"`{row.id}`", row.checked) for row in verdict_rows() if row.checked)
    badges = tuple((f"`{row.id}`", row.condition, row.level) for row in badge_rows())
    return page(
        "Verdicts and badges",
        (
            "A GPU has one verdict: the first of these whose conditions hold. `starved_unattributed` gives way to "
            f"verdicts that need a flag. A verdict is judged on the means of the last {WINDOW_S:.0f} s, from "
            f"{LEAST_SAMPLES} samples on, unless its conditions say otherwise. It is shown with its evidence and its "
            "remedy. A GPU may have any number of badges beside it.",
            "The level is the colour in every output, and `level` in all data: red where a GPU is busy and does not "
            "work, hangs or is broken, yellow where it waits or wastes, info where nothing is wrong, grey where "
            "nothing can be said. A lost GPU, a hardware error and a straggler come before the verdict. In a trace a "
            f"loss below {thresholds.SOME_LOSS:.0f} % of the time is info whatever its verdict, and communication that "
            "is only suspected is yellow, as are small kernels between which the GPU idles.",
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
            part(
                "Verdicts",
                Entries(
                    ("verdict", "when", "shown as", "level", "what helps"), verdicts, listed=True
                ),
            ),
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
                    "they have no work to speed up. With a price, the wasted share of an hour is given in money.",
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
                tuple(
                    (f"`{name}`", f"`{verdict}`", card, load)
                    for name, verdict, card, load in RECORDED
                ),
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
                    (
                        ", ".join(row.causes),
                        row.measured,
                        plain_words(row),
                        row.trial or "not tried",
                    )
                    for row in REMEDIES
                ),
            ),
            section("Badges", (), ("badge", "when", "level"), badges),
        ),
    )
