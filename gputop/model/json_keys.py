"""Convert structs of a snapshot to flat JSON.

Every key is present; null means "not measured". The keys of samples are the metric catalogue's: shares of time and
static facts are beside the values. A metric that is the text form of a field (``main_waits`` of ``main_looks``) has the
field's key and value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite
from operator import attrgetter
from typing import Any

from msgspec import Struct, to_builtins

from gputop.model.quantity import rounded
from gputop.model.snapshot import CATALOGUE, GpuSample

DIGITS = 6
"""Decimals of a number in JSON; further ones are noise."""


def _sample_keys(kind: type[Struct]) -> Iterator[tuple[str, Callable[[Struct], Any]]]:
    for metric in CATALOGUE[kind].values():
        if not metric.field:
            yield metric.key, attrgetter(metric.path or metric.key)
        else:
            yield (
                metric.field,
                attrgetter(f"static.{metric.field}" if metric.path else metric.field),
            )
    yield "unavailable", attrgetter("unavailable")


_READERS = {kind: dict(_sample_keys(kind)) for kind in CATALOGUE}


def keys_of(kind: type[Struct]) -> tuple[str, ...]:
    """Return the JSON keys of a kind of struct."""
    return tuple(_READERS[kind]) if kind in _READERS else kind.__struct_fields__


def json_keys(struct: Struct) -> dict[str, Any]:
    """Return the JSON object of a struct.

    The key ``doubts`` is present if there are any.
    """
    readers = _READERS.get(type(struct)) or {
        name: attrgetter(name) for name in struct.__struct_fields__
    }
    data = {key: _plain(read(struct)) for key, read in readers.items()}
    if isinstance(struct, GpuSample) and struct.doubts:
        data["doubts"] = dict(struct.doubts)
    return data


def _plain(value: Any) -> Any:
    # By tuples of types, which takes two thirds of the time of a union: a frame may hold 250,000 values.
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return round(value, DIGITS) if isfinite(value) else None
    return rounded(to_builtins(value, enc_hook=dict), DIGITS)
