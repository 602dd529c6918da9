"""Commands, tables and pages of gputop's features, by path.

No other module of the core names a feature. A feature is a folder of ``gputop.features``. Nothing here imports one:
modules, functions and tables are named by path below ``gputop`` (``module:name``), and ``resolve`` imports them. A
test resolves every path. The command line reads these tables before anything else, so they need the standard library
only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple


class Command(NamedTuple):
    """Command: its purpose in the help, its summary, and its module."""

    purpose: str
    summary: str
    module: str


class Picture(NamedTuple):
    """A picture that ``gputop screenshot NAME`` draws.

    ``options(command)`` adds to the command's options; ``rows(args, settings, width, height)`` gives the painted rows.
    """

    options: str
    rows: str


# fmt: off
FEATURE_COMMANDS: Mapping[str, Command] = {
    "alerts": Command("Evidence", "your alerts: list them, try them on a recording, or fire one",
                      "features.alerts.alerts_command"),
    "export": Command("The fleet", "this node for Prometheus: what it measures and concludes",
                      "features.export.export_command"),
    "fleet": Command("The fleet", "every GPU of a cluster, from its Prometheus or by ssh",
                     "features.fleet.fleet_command"),
    "fleet demo": Command("The fleet", "a simulated fleet, on any machine", "features.fleet.demo_command"),
    "fleet deploy": Command("The fleet", "rules, dashboards, manifests and units, as files",
                            "features.fleet.deploy.deploy_command"),
    "fleet queries": Command("The fleet", "the questions behind the dashboards, as PromQL",
                             "features.fleet.deploy.queries_command"),
    "loader": Command("A job", "how many loader workers a job needs, measured on its dataset",
                      "features.loader_bench.loader_command"),
    "memory": Command("Evidence", "what holds a GPU's memory, from PyTorch's snapshot",
                      "features.memory_snapshot.memory_command"),
    "prove": Command("Set-up", "kernels of known width, to check what is measured", "features.prove.prove_command"),
    "serve": Command("Watch", "the screen in a browser: read-only, on this machine's loopback",
                     "features.web.serve_command"),
    "trace": Command("Evidence", "where a step's time went, from a profiler's trace",
                     "features.traces.trace_command"),
}
# fmt: on
KEY_TABLES = {"In `gputop fleet`: ": "features.fleet.show.fleet_view:FLEET_KEYS"}
"""Tables of keys by the prefix for the titles of their sections."""
PICTURES = {
    "fleet": Picture(
        "features.fleet.fleet_command:prometheus_options", "features.fleet.fleet_run:group_rows"
    )
}
ALERT_FAULTS = "features.alerts.alert_table:faults"
"""``function(tables)`` that returns a line for each mistake in the setting."""
ALERT_EXAMPLES = "features.alerts.alert_table:examples"
"""``function()`` that returns the text for ``gputop config --init``."""
ALERTS_OF_RUN = "features.alerts.alerts_command:alerts_here"
"""``function(args, settings, tell=…)`` that returns an observer of every frame of a run, or None."""
ALERTS_OF_SCREEN = "features.alerts.alerts_command:alerts_on_screen"
"""``function(args, settings)`` that returns the same for the live screen."""


def resolve(path: str) -> Any:
    """Import and return the object that ``module:name`` below ``gputop`` names."""
    module, _, name = path.partition(":")
    return getattr(import_module(f"gputop.{module}"), name)


def key_tables() -> Iterator[tuple[str, Any]]:
    """Yield the features' key tables with the prefix of their titles."""
    return ((before, resolve(path)) for before, path in KEY_TABLES.items())
