"""Decode marks of scraped addresses, and alerts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputop.features.fleet import queries
from gputop.features.fleet.decode_labels import Labels, Place, place_of
from gputop.features.fleet.exporter_names import host_of
from gputop.features.fleet.fleet_reading import FiringAlert
from gputop.model.quantity import clean_text

MOST_ALERTS = 500
_NO_SUBJECT = ("__name__", "alertname", "alertstate", "severity")
"""Labels that do not say what an alert is about."""


def marked_places(
    rows: Iterable[tuple[Labels, float]], place: Sequence[str]
) -> tuple[dict[str, dict[Place, float]], tuple[FiringAlert, ...]]:
    """Values of scraped addresses by mark, and the firing alerts.

    Of several values of an address the greatest counts.
    """
    marked: dict[str, dict[Place, float]] = {
        queries.UP: {},
        queries.LATE: {},
        queries.DEAD: {},
        queries.AGE: {},
    }
    alerts = []
    for row, value in rows:
        if (of_mark := marked.get(row.get(queries.DIALECT_LABEL, ""))) is not None:
            where = place_of(row, place)
            of_mark[where] = max(value, of_mark.get(where, value))
        elif name := row.get("alertname"):
            labels = {
                clean_text(key): clean_text(value) for key, value in sorted(row.items()) if key not in _NO_SUBJECT
            }
            severity = clean_text(row.get("severity", ""))
            alerts.append(FiringAlert(clean_text(name), severity, clean_text(host_of(row)), labels))
    return marked, tuple(sorted(alerts, key=lambda alert: (alert.name, alert.host))[:MOST_ALERTS])
