"""``python -m tests.tools.card_picture`` draws README's card of the demo's last minutes.

It writes the picture, and its drawing as text beside it, by which a test sees that the picture is of today.
"""

from __future__ import annotations

from pathlib import Path

from gputop.command_line.demo_node import PAST_S
from gputop.commands.screenshot import STARTED
from gputop.output.card import card_of
from gputop.output.card_picture import card_svg
from gputop.output.png import png
from gputop.paint.theme import THEMES
from gputop.report.job_report import report_snapshots
from gputop.sources.simulation.simulated import SimulatedSource

PICTURE = Path(__file__).parents[2] / "screenshots" / "card.png"
DRAWING = Path(__file__).parents[1] / "golden" / "card.svg"
MADE_BY = "python -m tests.tools.card_picture"
PRICE = 2.5


def drawing() -> str:
    """Return the card as SVG."""
    source = SimulatedSource(None, clock=lambda: STARTED, events_past=True)
    report = report_snapshots(source.past(PAST_S), price=PRICE)
    return card_svg(card_of(report), THEMES["dark"])


if __name__ == "__main__":
    DRAWING.write_text(drawing())
    PICTURE.write_bytes(png(DRAWING.read_text(), zoom=1))
