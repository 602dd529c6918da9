"""The page of a fleet's series, questions and alerts, from the tables that write rules and dashboards."""

from __future__ import annotations

from collections.abc import Mapping

from gputop.features.fleet.deploy.questions import MODES, QUESTIONS
from gputop.features.fleet.deploy.rules_file import alerts
from gputop.model.dcgm_names import NAMES, Generation
from gputop.model.prometheus_names import gpu_series, host_series, process_series
from gputop.output.document import page, section
from gputop.output.markdown_document import markdown

OPEN_TELEMETRY = {
    "util_pct": "hw.gpu.utilization", "encoder_pct": "hw.gpu.utilization{hw.gpu.task=encoder}",
    "decoder_pct": "hw.gpu.utilization{hw.gpu.task=decoder}", "mem_used_bytes": "hw.gpu.memory.usage",
    "mem_total_bytes": "hw.gpu.memory.limit", "power_w": "hw.power", "energy_j": "hw.energy",
    "temp_c": "hw.temperature", "mem_temp_c": "hw.temperature", "ecc_corrected": "hw.errors",
    "ecc_uncorrected": "hw.errors", "ecc_corrected_volatile": "hw.errors", "ecc_uncorrected_volatile": "hw.errors",
    "pcie_rx_bytes_per_s": "hw.gpu.io{network.io.direction=receive}, a rate here",
    "pcie_tx_bytes_per_s": "hw.gpu.io{network.io.direction=transmit}, a rate here",
}  # fmt: skip
"""Names of OpenTelemetry's semantic conventions for hardware; metrics without one are left out."""
HEADS: Mapping[Generation, str] = {"legacy": "dcgm-exporter up to 4.8", "4.9": "dcgm-exporter 4.9"}
TEXT = (
    "Series that `gputop export` gives, questions that `gputop fleet queries` prints as PromQL, and alerts of the "
    "rules that `gputop fleet deploy` writes. How a fleet is watched: docs/fleet.md.",
)


def reference_page(made_by: str) -> str:
    """The page as Markdown."""
    others = [(f"`{series.name}`", series.help, "host") for series in host_series()]
    others += [
        (f"`{series.name}`", series.help, "process, with --processes")
        for series in process_series()
    ]
    alert_rows = tuple(
        (
            f"`{alert.name}`",
            question.title,
            f"`{question.id}{alert.when}`",
            alert.lasts,
            alert.severity,
        )
        for question, alert in alerts("gputop")
    )
    return markdown(page("Fleet: series, questions, alerts", TEXT, (
        section("GPU", (), ("series", "key", *HEADS.values(), "OpenTelemetry"), _gpu_rows()),
        section("Host and processes", (), ("series", "what it is", "of"), tuple(others)),
        *(section(words, (), ("question", "what it means", "unit", "what to do", "names"), tuple(
            (f"`{row.id}`", f"{row.title}. {row.meaning}", row.unit, row.advice,
             "any" if row.is_answered("legacy") else "gputop")
            for row in QUESTIONS.values()
            if row.mode == mode
        )) for mode, words in MODES.items()),
        section("Alerts", (), ("alert", "what it is", "when", "for", "severity"), alert_rows),
    )), made_by)  # fmt: skip


def _gpu_rows() -> tuple[tuple[str, ...], ...]:
    rows = []
    for series in gpu_series():
        matchers = ",".join(f'{name}="{value}"' for name, value in series.labels)
        others = [NAMES[generation].get(series.key) for generation in HEADS]
        rows.append((
            f"`{series.name}{{{matchers}}}`" if matchers else f"`{series.name}`", f"`{series.key}`",
            *(f"`{other.name}`" if other else "" for other in others), OPEN_TELEMETRY.get(series.key, ""),
        ))  # fmt: skip
    return tuple(rows)
