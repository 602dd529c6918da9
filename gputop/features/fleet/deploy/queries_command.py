"""Print the questions to a fleet as PromQL."""

from __future__ import annotations

import argparse
import sys

from gputop.command_line.shared_options import stdout_is_text
from gputop.config import Settings
from gputop.features.fleet.deploy.questions import MODES, QUESTIONS, FleetQuestion
from gputop.features.fleet.promql import ALL_NAMES, Scope, rule_scope
from gputop.features.fleet.read.address import checked_select
from gputop.model.clean_text import wrapped
from gputop.model.expression import nearest
from gputop.model.source import UsageError

WIDTH = 100


def arguments(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("id", nargs="?", metavar="ID", help="this one only; without it all of them")
    named(command)
    add(
        "--select",
        default="",
        metavar="MATCHERS",
        help="""only series that match, such as 'cluster="a"'""",
    )


def named(command: argparse.ArgumentParser) -> None:
    """Add the option for exporters' names."""
    text = (
        "names of gputop export (default), of dcgm-exporter 4.9 and newer, or of older ones "
        "(legacy)"
    )
    command.add_argument("--names", choices=ALL_NAMES, default="gputop", help=text)


def run(args: argparse.Namespace, settings: Settings) -> int:
    if args.id is not None and args.id not in QUESTIONS:
        raise UsageError(
            f"no query {args.id!r}{nearest(args.id, QUESTIONS)}; `gputop fleet queries` lists them"
        )
    scope = rule_scope(args.names, checked_select(args.select), price=settings.price or None)
    stdout_is_text(settings)
    if args.id is not None:
        sys.stdout.write(_query_text(QUESTIONS[args.id], scope))
        return 0
    for mode, words in MODES.items():
        sys.stdout.write(f"# {words}\n\n")
        sys.stdout.writelines(
            _query_text(query, scope) + "\n" for query in QUESTIONS.values() if query.mode == mode
        )
    return 0


def _query_text(query: FleetQuestion, scope: Scope) -> str:
    """The query with its meaning, as comments that PromQL allows."""
    lines = [f"# {query.id}: {query.title} ({query.unit})"]
    for text in (query.meaning, f"→ {query.advice}"):
        lines += wrapped(text, WIDTH, "#   ", "#   ")
    promql = query.promql(scope)
    if promql is None and query.needs_price and not scope.price:
        lines.append("#   only with your price of a GPU-hour: --price 2.50")
    else:
        if promql is not None and "gputop:" in promql:
            lines.append("#   asks for what the rules of gputop fleet deploy record")
        lines.append(promql or "#   only gputop export can answer this: --names gputop")
    return "\n".join(lines) + "\n"
