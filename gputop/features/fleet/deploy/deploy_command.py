"""Write what a cluster needs to watch its GPUs, as files.

Nothing is applied.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from pathlib import Path, PurePath
from typing import Any

from gputop.command_line.registry import Needs
from gputop.config import Settings
from gputop.features.fleet.deploy.queries_command import named
from gputop.features.fleet.deploy.questions import QUESTIONS
from gputop.features.fleet.deploy.rules_file import SUMS, record_of, rules_yaml
from gputop.features.fleet.exporter_names import DIALECTS
from gputop.features.fleet.judge.state_rules import OWNER
from gputop.features.fleet.promql import Names, rule_scope
from gputop.model.json_text import safe_json
from gputop.model.quantity import count
from gputop.model.source import UsageError
from gputop.output.messages import say

FILES = Path(__file__).parent / "files"
RULES = "prometheus/gputop.rules.yml"
OF_JOB = "@of_job"
"""What narrows a dashboard's query to the GPUs of its job."""
FLEET = "gputop-fleet"
"""The dashboard of whole clusters, whose sums are those that the rules record."""
PRICE = "price"
"""The dashboards' variable that holds the price of a GPU-hour."""
CLUSTER = 'cluster=~"$cluster"'
"""The matcher of the clusters chosen in a dashboard."""
_QUERY = re.compile(r"@([a-z_]+)")


LOCAL_IMAGE = "gputop:local"
_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d{{1,5}})?/)?{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[a-f0-9]{64})?",
    re.ASCII,
)


def checked_image(text: str) -> str:
    """Check a container image's reference. Raises UsageError."""
    if len(text) > 512 or _IMAGE.fullmatch(text) is None:
        raise UsageError(
            f"--image is a reference such as registry.example/team/gputop:1.0, not {text!r}"
        )
    if "@" not in text and ":" not in text.rpartition("/")[2]:
        raise UsageError(
            f"--image names no version: {text}:VERSION, or {text}@sha256:…; without one nodes differ"
        )
    return text


def files(names: Names, price: float | None = None, image: str = LOCAL_IMAGE) -> dict[str, str]:
    """Text of every file by its path. Costs only with a ``price``."""
    text_of_path = {
        str(path.relative_to(FILES)): path.read_text(encoding="utf-8")
        for path in sorted(FILES.rglob("*"))
        if path.is_file()
    }
    manifest = "kubernetes/daemonset.yaml"
    text_of_path[manifest] = text_of_path[manifest].replace(
        f"image: {LOCAL_IMAGE}", f"image: {image}"
    )
    for path in [path for path in text_of_path if path.endswith(".json")]:
        text_of_path[path] = dashboard(text_of_path[path], names, price)
    text_of_path[RULES] = (
        "# Recording and alerting rules. Name this file under rule_files of prometheus.yml; vmalert takes it as well.\n"
        f"# Written by gputop fleet deploy --names {names}; each rule's query: gputop fleet queries ID.\n"
        + (f"# Costs assume {price:g} a GPU-hour, as given by --price.\n" if price else "")
        + rules_yaml(names, price)
    )
    return text_of_path


def dashboard(text: str, names: Names, price: float | None = None) -> str:
    """A dashboard under these names, without panels that stay empty."""
    board: dict[str, Any] = json.loads(text)
    variables = [row for row in board["templating"]["list"] if row["name"] != PRICE or price]
    for variable in variables:
        variable["query"] = _values(variable["query"], names, price)
        if variable["name"] == PRICE:
            variable["current"] = {"text": variable["query"], "value": variable["query"]}
    board["templating"]["list"] = variables
    host = DIALECTS[names].hosts[0]
    panels = []
    for panel in board["panels"]:
        can_be_asked = True
        for target in panel.get("targets", ()):
            expr = _panel_promql(
                target["expr"],
                names,
                f"${PRICE}" if price else None,
                of_fleet=board["uid"] == FLEET,
            )
            can_be_asked = can_be_asked and expr is not None
            target["expr"] = expr
            target["legendFormat"] = target["legendFormat"].replace(
                "@legend", f"{{{{{host}}}}} GPU {{{{gpu}}}}"
            )
        if can_be_asked:
            panels.append(panel)
    board["panels"] = panels
    _close_gaps(panels)
    return safe_json(board, indent=1, sort_keys=True) + "\n"


def _panel_promql(expr: str, names: Names, price: str | None, *, of_fleet: bool) -> str | None:
    """Insert the queries that an expression names; None if one cannot be asked."""
    match = _QUERY.search(expr)
    assert match is not None, expr
    query = QUESTIONS[match[1]]
    about = "gpu" if query.alert is None else query.alert.about
    # Targets, and exporters' metrics about themselves, have no GPU; targets have no host but their address.
    has_gpu, host = (
        about not in ("host", "target"),
        "instance" if about == "target" else DIALECTS[names].hosts[0],
    )
    select = f'{CLUSTER},{host}=~"$host"' + ',gpu=~"$gpu"' * has_gpu
    is_recorded = of_fleet and query.id in SUMS
    q = rule_scope(
        names, select, job="$job" * has_gpu, price=price, of_sums=CLUSTER, uses_records=is_recorded
    )
    # What is recorded of money has the price that was given: in the dashboard it can be changed.
    promql = (
        q.record(record_of(query.id)) if is_recorded and not query.needs_price else query.promql(q)
    )
    if promql is None:
        return None
    everywhere = rule_scope(names)
    of_job = f"and on ({everywhere.gpu_labels}) " + everywhere.record(
        OWNER, CLUSTER, 'job_id=~"$job"'
    )
    return expr.replace(match[0], f"({promql})" if OF_JOB in expr else promql).replace(
        OF_JOB, of_job
    )


def _values(query: str, names: Names, price: float | None) -> str:
    """Values of a dashboard's variable, in Grafana's words."""
    util, host = DIALECTS[names].signals["util_pct"].name, DIALECTS[names].hosts[0]
    job = f"gputop_job_info{{{CLUSTER}}}, job_id" if names == "gputop" else f"{util}, hpc_job"
    return {
        "@values:cluster": f"label_values({util}, cluster)",
        "@values:host": f"label_values({util}{{{CLUSTER}}}, {host})",
        "@values:gpu": f'label_values({util}{{{CLUSTER},{host}=~"$host"}}, gpu)',
        "@values:job": f"label_values({job})",
        "@price": f"{price or 0:.10g}",
    }.get(query, query)


def _close_gaps(panels: list[dict[str, Any]]) -> None:
    """Lay the panels out again in rows of 24 columns, in their order."""
    x = y = height = 0
    for panel in panels:
        place = panel["gridPos"]
        if x + place["w"] > 24 or panel["type"] == "row" or place["h"] != height:
            x, y, height = 0, y + height, place["h"]
        place["x"], place["y"] = x, y
        x += place["w"]


NEEDS = Needs("nothing")


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "folder", metavar="DIR", help="directory to write, made if it is not there"
    )
    named(command)
    text = (
        "where the nodes pull the exporter's image, such as registry.example/team/gputop:1.0; see "
        "kubernetes/Dockerfile"
    )
    command.add_argument("--image", metavar="REF", default=LOCAL_IMAGE, help=text)
    command.add_argument(
        "--force", action="store_true", help="overwrite what is there under the same names"
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    folder = Path(args.folder)
    if folder.exists() and not folder.is_dir():
        raise UsageError(
            f"{folder} is not a directory: name an empty one, or one that does not exist"
        )
    try:
        if folder.is_dir() and any(folder.iterdir()) and not args.force:
            raise UsageError(
                f"{folder} is not empty: name another directory, or overwrite files there with --force"
            )
        made = files(args.names, settings.price or None, checked_image(args.image))
        # Before anything is written.
        for directory in sorted(
            {folder / parent for path in made for parent in PurePath(path).parents} - {folder}
        ):
            if directory.is_symlink():
                raise UsageError(
                    f"{directory} is a link to another directory: remove it, or name another directory"
                )
        for path, text in made.items():
            _write(folder / path, text)
    except OSError as error:
        raise UsageError(f"cannot write {error.filename or folder}: {error.strerror}") from error
    say(f"{count(len(made), 'file')} in {folder}; the first lines of each say how to use it")
    return 0


def _write(target: Path, text: str) -> None:
    """Replace a file; links are replaced, not followed.

    A write that fails keeps the old text.
    """
    for folder in reversed([parent for parent in target.parents if not parent.exists()]):
        folder.mkdir()
        folder.chmod(0o755)
    unfinished = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        with unfinished.open("x", encoding="utf-8") as file:
            file.write(text)
        # Whatever the umask: Prometheus and Grafana read them as users of their own, and there is no secret in them.
        unfinished.chmod(0o755 if target.suffix == ".sh" else 0o644)
        unfinished.replace(target)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        # The error must name the file that was meant.
        raise OSError(error.errno, error.strerror, str(target)) from error
