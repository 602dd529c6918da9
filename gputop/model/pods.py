"""A container of a pod that a GPU was given to."""

from __future__ import annotations

from msgspec import Struct


class PodContainer(Struct, frozen=True, order=True):
    """Names as Kubernetes has them; from outside, so whoever shows them cleans them."""

    namespace: str
    pod: str
    container: str
