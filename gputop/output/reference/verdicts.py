"""The verdicts and badges, from the rules."""

from __future__ import annotations

from gputop.diagnosis.catalogue import badge_rows, verdict_rows
from gputop.diagnosis.signals import FLAG_A_SM, FLAG_A_UTIL, FLAG_B_RATIO, FLAG_B_UTIL, LEAST_SAMPLES, WINDOW_S
from gputop.output.reference.page import Page, Section


def verdicts_page() -> Page:
    verdicts = tuple((f"`{row.id}`", row.condition, row.remedy, row.level, row.title) for row in verdict_rows())
    badges = tuple((f"`{row.id}`", row.condition, row.level) for row in badge_rows())
    return Page(
        "Verdicts and badges",
        (
            "A GPU has one verdict: the first row whose condition holds, except that `starved_unattributed` gives way "
            "to the rows that need A or B. It is judged on the means over the last "
            f"{WINDOW_S:.0f} s, from {LEAST_SAMPLES} samples on, unless its row says otherwise, and shown "
            "with its evidence and its remedy. Any number of badges may accompany it.",
            f"A and B are the flags of a GPU that is busy, not working. A: util ≥ {FLAG_A_UTIL:.0f} % and SM < "
            f"{FLAG_A_SM:.0f} %. B, where A is not: util ≥ {FLAG_B_UTIL:.0f} % and SM / util < {FLAG_B_RATIO:g}.",
        ),
        (
            Section("Verdicts", (), ("verdict", "when", "what helps", "level", "shown as"), verdicts),
            Section("Badges", (), ("badge", "when", "level"), badges),
        ),
    )
