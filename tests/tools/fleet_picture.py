"""``python -m tests.tools.fleet_picture SECONDS`` draws panels of the fleet's dashboard from live data.

A real Prometheus scrapes ``gputop export demo`` for that long; the panels' own queries are asked and drawn as Grafana
lays them out. It is no picture of Grafana: none was there to be photographed.
"""

from __future__ import annotations

import json
import math
import re
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from html import escape
from pathlib import Path
from typing import Any

from gputop.features.fleet.deploy_command import files
from gputop.features.fleet.rules import rules_yaml
from tests.support.export_program import exporting
from tests.support.prom_servers import Engine, engines

TARGET = Path(__file__).parent.parent.parent / "docs" / "fleet_dashboard.svg"
PANELS = (
    "GPUs by state", "No work: share, last hour", "Power of all GPUs",
    "Busy, not working: last hour", "Starved: last hour", "GPUs without SM activity",
    "Utilisation", "SM activity", "Busy, not working", "Starved GPUs by cause",
    "No work, by job and user: last hour", "Bound by memory bandwidth",
)  # fmt: skip
CELL, ROW, GAP = 56, 34, 8
COLOURS = ("#73bf69", "#f2cc0c", "#5794f2", "#ff780a", "#b877d9", "#f2495c", "#8ab8ff", "#96d98d")
STEP_S = 2


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 100.0
    board = json.loads(files("gputop")["grafana/gputop-fleet.json"])
    wanted = {panel["title"]: panel for panel in board["panels"] if panel["title"] in PANELS}
    with tempfile.TemporaryDirectory() as folder, exporting("demo") as program:
        scrapes = f"  - job_name: gputop\n    static_configs: [{{targets: ['127.0.0.1:{program.port}']}}]\n"
        with engines(Path(folder), scrapes, rules_yaml("gputop")) as found:
            time.sleep(seconds)
            TARGET.write_text(_drawn([wanted[title] for title in PANELS], found["prometheus"], seconds))


def _drawn(panels: list[dict[str, Any]], engine: Engine, seconds: float) -> str:
    x = y = height = 0
    parts = []
    for panel in panels:
        place = panel["gridPos"]
        if x + place["w"] > 24 or place["h"] != height:
            x, y, height = 0, y + height, place["h"]
        parts.append(_panel(panel, x * CELL, y * ROW, place["w"] * CELL - GAP, place["h"] * ROW - GAP, engine, seconds))
        x += place["w"]
    width, tall = 24 * CELL, (y + height) * ROW
    style = "text{font:13px system-ui,sans-serif;fill:#d8d9da}.t{font-weight:600}.s{font-size:11px;fill:#9fa1a6}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {tall}" width="{width}" height="{tall}">'
        f'<style>{style}</style><rect width="100%" height="100%" fill="#111217"/>{"".join(parts)}</svg>\n'
    )


def _panel(panel: dict[str, Any], x: int, y: int, w: int, h: int, engine: Engine, seconds: float) -> str:
    target = panel["targets"][0]
    query = re.sub(r"\$(cluster|host|gpu|job)", ".*", target["expr"]).replace("[2m]", "[16s]").replace("[5m]", "[40s]")
    unit = panel["fieldConfig"]["defaults"]["unit"]
    inside = _lines(engine, query, unit, w, h, seconds) if panel["type"] == "timeseries" else _rows(
        engine.ask(query), unit, w, h, big=panel["type"] == "stat", legend=target["legendFormat"]
    )  # fmt: skip
    return (
        f'<g transform="translate({x},{y})"><rect width="{w}" height="{h}" rx="3" fill="#181b1f" stroke="#2c2f36"/>'
        f'<text class="t" x="10" y="20">{escape(panel["title"])}</text>{inside}</g>'
    )


def _rows(found: list[tuple[dict[str, str], float]], unit: str, w: int, h: int, *, big: bool, legend: str) -> str:
    """A figure, or several with their names, the largest first."""
    found = sorted(found, key=lambda row: row[1], reverse=True)
    if len(found) == 1 and big:
        text = escape(_shown(found[0][1], unit))
        return f'<text x="{w / 2}" y="{h / 2 + 22}" text-anchor="middle" style="font-size:34px">{text}</text>'
    if not found:
        return f'<text class="s" x="{w / 2}" y="{h / 2 + 10}" text-anchor="middle">none</text>'
    lines, most = [], max((h - 30) // 15, 1)
    for index, (labels, value) in enumerate(found[:most]):
        name = " ".join(labels[key] for key in ("state", "verdict", "user", "job_id") if labels.get(key))
        lines.append(
            f'<text class="s" x="10" y="{40 + 15 * index}">{escape(name)}</text>'
            f'<text x="{w - 10}" y="{40 + 15 * index}" text-anchor="end">{escape(_shown(value, unit))}</text>'
        )
    return "".join(lines)


def _lines(engine: Engine, query: str, unit: str, w: int, h: int, seconds: float) -> str:
    end = time.time()
    fields = {"query": query, "start": f"{end - seconds + 10:.0f}", "end": f"{end:.0f}", "step": str(STEP_S)}
    address = f"http://127.0.0.1:{engine.port}/api/v1/query_range?{urllib.parse.urlencode(fields)}"
    with urllib.request.urlopen(address, timeout=20) as answer:
        found = json.load(answer)["data"]["result"]
    values = [float(v) for row in found for _, v in row["values"]]
    top = 1.0 if unit == "percentunit" else max(values, default=1.0) * 1.1 or 1.0
    left, right, high, low = 46, w - 10, 32, h - 34
    parts = []
    for share in (0.0, 0.5, 1.0):
        at = low - (low - high) * share
        parts.append(
            f'<path d="M{left} {at:.1f}H{right}" stroke="#2c2f36"/>'
            f'<text class="s" x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{_shown(top * share, unit)}</text>'
        )
    for index, row in enumerate(sorted(found, key=lambda row: row["metric"].get("gpu", ""))):
        gpu = escape(row["metric"].get("gpu", ""))
        colour = COLOURS[int(row["metric"].get("gpu", index)) % len(COLOURS)]
        places = " ".join(
            f"{right - (right - left) * (end - t) / (seconds - 10):.1f},"
            f"{low - (low - high) * min(1.0, float(v) / top):.1f}"
            for t, v in row["values"]
            if math.isfinite(float(v))
        )
        parts.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(
            f'<rect x="{left + 62 * index}" y="{h - 22}" width="10" height="3" fill="{colour}"/>'
            f'<text class="s" x="{left + 14 + 62 * index}" y="{h - 17}">GPU {gpu}</text>'
        )
    return "".join(parts)


def _shown(value: float, unit: str) -> str:
    if unit == "percentunit":
        return f"{100 * value:.0f} %"
    if unit == "watt":
        return f"{value / 1000:.2f} kW" if value >= 1000 else f"{value:.0f} W"
    if unit == "h":
        return f"{value:.3f} h"
    return f"{value:.0f}"


if __name__ == "__main__":
    main()
