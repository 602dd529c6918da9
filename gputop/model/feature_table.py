"""Table of gputop's features and their contributions.

No other module of the core names a feature. A feature is a folder of ``gputop.features``. Nothing here imports one:
modules, functions and tables are named by path, ``module:name``, and ``resolve`` imports them on use. A test resolves
every line. The command line reads this table before anything else, so it imports the standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

_NONE: Mapping[str, Any] = {}


class CommandPart(NamedTuple):
    """Part of a command: its summary and its module."""

    summary: str
    module: str


class Command(NamedTuple):
    """Command: its purpose, summary, module and parts.

    ``purpose`` is one of PURPOSES. ``parts`` are keyed by the command's second word.
    """

    purpose: str
    summary: str
    module: str
    parts: Mapping[str, CommandPart] = _NONE


class Picture(NamedTuple):
    """A picture that ``gputop screenshot NAME`` draws.

    ``options(command)`` adds to the command's options; ``rows(args, settings, width, height)`` gives the painted rows.
    """

    options: str
    rows: str


class Feature(NamedTuple):
    """Contributions of one feature, by path.

    - ``commands``: by name; ``topics``: pages of ``gputop help``, each a function that makes the page;
    - ``faults``: by the name of a setting, ``function(value)`` that returns one line for each mistake; ``examples``:
      ``function()`` that returns the text for ``gputop config --init``;
    - ``doctor``: ``function(args, settings)`` that returns a part of the report: lists of the same name are joined, and
      ``problems`` are collected from all parts;
    - ``keys``: tables of keys, each with a prefix for the titles of its sections;
    - ``watchers``: ``function(args, settings, tell=…)`` that returns an observer of every frame of a ``run``, or None;
      for the live ``screen`` ``function(args, settings)``;
    - ``pictures``: by name.
    """

    commands: Mapping[str, Command] = _NONE
    topics: Mapping[str, str] = _NONE
    faults: Mapping[str, str] = _NONE
    examples: Mapping[str, str] = _NONE
    doctor: tuple[str, ...] = ()
    keys: tuple[tuple[str, str], ...] = ()
    pictures: Mapping[str, Picture] = _NONE
    watchers: Mapping[str, str] = _NONE


FEATURES: Mapping[str, Feature] = {
    "alerts": Feature(
        commands={
            "alerts": Command(
                "Evidence",
                "your alerts: list them, try them on a recording, or fire one",
                "gputop.features.alerts.alerts_command",
            )
        },
        faults={"alert": "gputop.features.alerts.alert_table:faults"},
        examples={"alert": "gputop.features.alerts.alert_table:examples"},
        doctor=("gputop.features.alerts.alerts_command:doctor_report",),
        watchers={
            "run": "gputop.features.alerts.alerts_command:alerts_here",
            "screen": "gputop.features.alerts.alerts_command:alerts_on_screen",
        },
    ),
    "export": Feature(
        commands={
            "export": Command(
                "The fleet",
                "this node for Prometheus: what it measures and concludes",
                "gputop.features.export.export_command",
            )
        },
        doctor=("gputop.features.export.doctor_rows:doctor_report",),
    ),
    "fleet": Feature(
        commands={
            "fleet": Command(
                "The fleet",
                "every GPU of a cluster, from its Prometheus or by ssh",
                "gputop.features.fleet.fleet_command",
                {
                    "demo": CommandPart("a simulated fleet, on any machine", "gputop.features.fleet.demo_command"),
                    "deploy": CommandPart(
                        "rules, dashboards, manifests and units, as files", "gputop.features.fleet.deploy_command"
                    ),
                    "queries": CommandPart(
                        "the questions behind the dashboards, as PromQL", "gputop.features.fleet.queries_command"
                    ),
                },
            )
        },
        keys=(("In `gputop fleet`: ", "gputop.features.fleet.fleet_view:FLEET_KEYS"),),
        doctor=("gputop.features.fleet.fleet_command:doctor_report",),
        pictures={
            "fleet": Picture(
                "gputop.features.fleet.fleet_command:prometheus_options",
                "gputop.features.fleet.fleet_command:fleet_rows",
            )
        },
    ),
    "loader_bench": Feature(
        commands={
            "loader": Command(
                "A job",
                "how many loader workers a job needs, measured on its dataset",
                "gputop.features.loader_bench.loader_command",
            )
        }
    ),
    "memory_snapshot": Feature(
        commands={
            "memory": Command(
                "Evidence",
                "what holds a GPU's memory, from PyTorch's snapshot",
                "gputop.features.memory_snapshot.memory_command",
            )
        }
    ),
    "prove": Feature(
        commands={
            "prove": Command(
                "Set-up", "kernels of known width, to check what is measured", "gputop.features.prove.prove_command"
            )
        }
    ),
    "traces": Feature(
        commands={
            "trace": Command(
                "Evidence", "where a step's time went, from a profiler's trace", "gputop.features.traces.trace_command"
            )
        }
    ),
    "web": Feature(
        commands={
            "serve": Command(
                "Watch",
                "the screen in a browser: read-only, on this machine's loopback",
                "gputop.features.web.serve_command",
            )
        }
    ),
}


def resolve(path: str) -> Any:
    """Import and return the object that ``module:name`` names."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def hook(kind: str, name: str) -> Any:
    """Return the entry ``name`` of any feature's table ``kind``.

    The entry is imported. None if no feature has one.
    """
    for feature in FEATURES.values():
        path = getattr(feature, kind).get(name)
        if path is not None:
            return resolve(path)
    return None


def key_tables() -> Iterator[tuple[str, Any]]:
    """Yield each feature's key tables with the prefix of their titles."""
    for feature in FEATURES.values():
        for before, path in feature.keys:
            yield before, resolve(path)
