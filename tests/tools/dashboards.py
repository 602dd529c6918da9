"""``python -m tests.tools.dashboards`` builds the Grafana dashboards that ``gputop fleet deploy`` writes.

Built with Grafana's own typed builder, which gputop itself does not need: a panel's query is ``@`` and the id of one in
the library, put into words when it is written. A test builds them again.
"""

from __future__ import annotations

from pathlib import Path

from grafana_foundation_sdk.builders import bargauge, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    DataSourceRef,
    VariableHide,
    VariableRefresh,
)

from gputop.features.fleet.deploy.questions import MODES, QUESTIONS, FleetQuestion, Mode
from gputop.features.fleet.deploy.rules_file import SUMS

FOLDER = (
    Path(__file__).parent.parent.parent
    / "gputop"
    / "features"
    / "fleet"
    / "deploy"
    / "files"
    / "grafana"
)
UNITS = {
    "ratio": "percentunit", "watts": "watt", "celsius": "celsius", "bytes": "bytes", "bytes/s": "Bps",
    "joules": "joule", "seconds": "s", "GPU-hours": "h", "GPUs": "short", "flag": "short", "1/s": "ops",
    "money": "short",
}  # fmt: skip
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
JOB_SHOWN = (
    "utilization", "sm_active", "tensor", "power", "memory_share", "starved", "gap", "straggler_slow",
    "straggler_starved",
    "step_seconds", "steps_per_second",
)  # fmt: skip
"""What the dashboard of a job shows."""
MOST_LINES = 20
"""Lines of a panel over a whole fleet: those of all GPUs would be megabytes each time."""
STATS = {
    "down", "absent", "fewer_targets", "late", "dead", "vanished", "lost", "ecc_uncorrected", "row_remap",
    "cluster_power", "unmeasured",
    "waste_share",
    "hours_busy_not_working", "hours_starved", "hours_idle_allocated", "hours_allocated_unused", "hours_idle",
    "hours_total", "gpus_by_state",
    "cost_no_work",
}  # fmt: skip
COUNTED = {"down", "absent", "late", "dead", "vanished", "lost", "ecc_uncorrected", "row_remap"}
"""Of these the number is shown, which are none on a good day."""
TABLES = {
    "waste_by_job",
    "cost_by_job",
    "idle_with_memory",
    "allocated_unused",
    "straggler_slow",
    "straggler_starved",
    "straggler_step",
    "xid",
}
BARS = {"starved_by_cause"}
OF_JOBS = {"step_seconds", "steps_per_second"}
"""These have their job as a label, and no GPU."""


def built() -> dict[str, str]:
    """File name → JSON of each dashboard."""
    return {
        "gputop-fleet.json": _dashboard("fleet"),
        "gputop-job.json": _dashboard("job"),
    }


def _dashboard(kind: str) -> str:
    titles = {"fleet": "the fleet", "job": "one job"}
    other = "job" if kind == "fleet" else "fleet"
    built = (
        dashboard.Dashboard(f"gputop: {titles[kind]}")
        .uid(f"gputop-{kind}")
        .description(
            "Import it into Grafana, or provision the folder. Its queries: gputop fleet queries."
        )
        .tags(["gputop", "gpu"])
        .editable()
        .refresh("1m")
        .time("now-1h", "now")
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Source").type("prometheus")
        )
        .link(
            dashboard.DashboardLink(f"gputop: {titles[other]}")
            .type(DashboardLinkType.LINK)
            .tooltip("the other dashboard, with the same choice")
            .url(f"/d/gputop-{other}")
            .include_vars(True)
            .keep_time(True)
        )
    )
    for name in ("cluster", "host", "gpu", "job"):
        one = kind == name
        variable = (
            dashboard.QueryVariable(name)
            .label({"gpu": "GPU"}.get(name, name.capitalize()))
            .datasource(SOURCE)
            .query(f"@values:{name}")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(not one)
            .include_all(not one)
            .hide(VariableHide.DONT_HIDE)
        )
        built = built.with_variable(variable if one else variable.all_value(".*"))
    # Nobody knows the price but the user: without one deploy leaves the variable and its panels out.
    price = dashboard.TextBoxVariable("price").label("Price of a GPU-hour").default_value("@price")
    built = built.with_variable(price)
    if kind == "job":
        for id in JOB_SHOWN:
            built = built.with_panel(_panel(QUESTIONS[id], kind))
        return JSONEncoder(sort_keys=True, indent=1).encode(built.build()) + "\n"
    for mode, words in MODES.items():
        built = built.with_row(dashboard.Row(words))
        for query in _of(mode):
            built = built.with_panel(_panel(query, kind))
    return JSONEncoder(sort_keys=True, indent=1).encode(built.build()) + "\n"


def _of(mode: Mode) -> list[FleetQuestion]:
    found = [query for query in QUESTIONS.values() if query.mode == mode]
    # Figures first, in one line, then what has a shape.
    return sorted(found, key=lambda query: query.id not in STATS)


def _panel(query: FleetQuestion, kind: str) -> object:
    expr = f"count(@{query.id})" if query.id in COUNTED else f"@{query.id}"
    of_gpus = query.alert is None or query.alert.about == "gpu"
    shape = query.id not in STATS and query.id not in TABLES and query.id not in BARS
    if kind == "job" and query.id not in OF_JOBS:
        expr = f"{expr} @of_job"
    elif kind == "fleet" and shape and of_gpus:
        expr = f"topk({MOST_LINES}, {expr})"
    asked = prometheus.Dataquery().expr(expr).ref_id("A").datasource(SOURCE)
    text = f"{query.meaning}\n\n→ {query.advice}"
    if kind == "fleet" and query.id in SUMS:
        text += (
            "\n\nOf whole clusters, as the rules record it: a chosen host, GPU or job does not "
            "narrow it."
        )
    unit = UNITS[query.unit]
    if query.id in STATS:
        made = stat.Panel().span(4).height(4).no_value("none")
    elif query.id in TABLES:
        made = table.Panel().span(12).height(7)
    elif query.id in BARS:
        made = bargauge.Panel().span(12).height(7)
    else:
        made = timeseries.Panel().span(12).height(7)
        made = (
            made.min(0).max(1)
            if query.unit == "ratio" and query.id not in ("gap", "pcie_saturation")
            else made
        )
    if query.id in STATS or query.id in TABLES or query.id in BARS:
        asked = asked.instant()
    if query.id in TABLES:
        asked = asked.format("table")
    legend = "@legend" if kind == "fleet" else "GPU {{gpu}}"
    if query.id.endswith("_by_state"):
        legend = "{{state}}"
    elif query.id in BARS:
        legend = "{{verdict}}"
    elif query.id.startswith("step"):
        legend = "{{job_id}} rank {{rank}}"
    return made.title(query.title).description(text).unit(unit).datasource(SOURCE).with_target(
        asked.legend_format(legend)
    )  # fmt: skip


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in built().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
