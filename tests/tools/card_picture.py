"""``python -m tests.tools.card_picture`` draws README's card of the demo's last minutes."""

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
PRICE = 2.5

if __name__ == "__main__":
    source = SimulatedSource(None, clock=lambda: STARTED, events_past=True)
    report = report_snapshots(source.past(PAST_S), price=PRICE)
    PICTURE.write_bytes(png(card_svg(card_of(report), THEMES["dark"]), zoom=1))
