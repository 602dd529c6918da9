"""What ``gputop help TOPIC`` explains: each topic, and the file that makes its page. Standard library only."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputop.output.reference.page import Page

TOPICS = {
    "options": "gputop.commands.options_page",
    "settings": "gputop.commands.settings_page",
    "keys": "gputop.output.reference.keys",
    "alerts": "gputop.output.reference.alerts",
    "filters": "gputop.output.reference.filters",
    "metrics": "gputop.output.reference.metrics",
    "sources": "gputop.output.reference.sources",
    "verdicts": "gputop.output.reference.verdicts",
    "faults": "gputop.output.reference.faults",
    "fleet": "gputop.commands.fleet_page",
}
"""Topic → the module whose ``page()`` explains it."""


def page_of(topic: str) -> Page:
    """The page of a topic of TOPICS."""
    page: Page = import_module(TOPICS[topic]).page()
    return page
