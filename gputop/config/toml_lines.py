"""Settings as lines of TOML, without secrets of alerts and clusters."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import starmap
from typing import Any

from gputop.model.fleet_settings import SECRET
from gputop.model.secret_marks import MASK
from gputop.model.secrets import masked_text


def assignment(name: str, value: Any) -> str:
    """A setting as TOML, without secrets of alerts and clusters."""
    if name == "alert":
        return "".join(
            f"[[alert]]\n{''.join(starmap(assignment, masked_alert(alert).items()))}"
            for alert in value
        )
    if name == "fleet":
        return "".join(
            assignment(f"fleet.{cluster}", masked_cluster(table))
            for cluster, table in value.items()
        )
    if isinstance(value, Mapping):
        rows = "".join(assignment(key, row) for key, row in value.items())
        return f"[{name}]\n{rows}"
    if isinstance(value, bool):
        return f"{name} = {str(value).lower()}\n"
    if isinstance(value, tuple):
        return f"{name} = [{', '.join(map(_quoted, value))}]\n"
    return f"{name} = {_quoted(value) if isinstance(value, str) else f'{value:g}'}\n"


def masked_alert(alert: Mapping[str, Any]) -> dict[str, Any]:
    """An alert without the arguments of its program."""
    run = alert.get("run")
    return {**alert, "run": (run[0], *[MASK] * len(run[1:]))} if run else dict(alert)


def masked_cluster(table: Mapping[str, str | tuple[str, ...]]) -> dict[str, str | tuple[str, ...]]:
    """A cluster without secrets and their places."""
    return {
        key: f"/{MASK}"
        if key in SECRET
        else masked_text(value)
        if isinstance(value, str)
        else value
        for key, value in table.items()
    }


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return (
        '"'
        + "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in escaped)
        + '"'
    )
