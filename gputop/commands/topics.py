"""What ``gputop help TOPIC`` explains: each topic, and the function that makes its page. Standard library only."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputop.output.reference.page import Page

TOPICS = {
    "options": "gputop.commands.options_page:options_page",
    "settings": "gputop.commands.settings_page:settings_page",
    "keys": "gputop.output.reference.keys:keys_page",
    "alerts": "gputop.output.reference.alerts:alerts_page",
    "filters": "gputop.output.reference.filters:filters_page",
    "metrics": "gputop.output.reference.metrics:metrics_page",
    "sources": "gputop.output.reference.sources:sources_page",
    "verdicts": "gputop.output.reference.verdicts:verdicts_page",
    "faults": "gputop.output.reference.faults:faults_page",
    "fleet": "gputop.commands.fleet_page:fleet_page",
}
"""Topic → module and function that make its page."""


def page_of(topic: str) -> Page:
    """The page of a topic of TOPICS."""
    module, _, function = TOPICS[topic].partition(":")
    page: Page = getattr(import_module(module), function)()
    return page
