"""The fabric between machines, as fields of the host's row."""

from __future__ import annotations

from gputop.diagnosis.fabric import FabricSignals
from gputop.paint.glyphs import Glyphs
from gputop.paint.numbers import Field
from gputop.paint.text import rate


def trouble_fields(fabric: FabricSignals | None) -> list[Field]:
    """Links in trouble and packets lost; empty where nothing is wrong."""
    if fabric is None:
        return []
    fields: list[Field] = []
    if fabric.links:
        fields.append((f"fabric {fabric.links}", "level.red"))
    if fabric.has_losses:
        fields.append((f"fabric {fabric.losses}", "level.yellow"))
    return fields


def traffic_fields(fabric: FabricSignals | None, glyphs: Glyphs) -> list[Field]:
    """What goes over the fabric each way; empty without one."""
    if fabric is None or not fabric.there:
        return []
    both = ((glyphs.down, fabric.rx_bytes_per_s), (glyphs.up, fabric.tx_bytes_per_s))
    return [("fabric " + " ".join(f"{arrow}{rate(value)}" for arrow, value in both), "text")]
