"""The pods that the node's GPUs were given to, where the kubelet may be asked for them.

Named as OpenTelemetry names them; ``pod``, ``namespace`` and ``container`` are labels that a scrape gives its targets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gputop.export.page import gpu_labels
from gputop.export.text_format import TextPage, labels
from gputop.model.pods import PodContainer
from gputop.model.snapshot import GpuSample


class PodFamilies:
    """Adds ``gputop_pod_info`` to a page. ``newest`` gives the containers by UUID, and never waits."""

    def __init__(self, newest: Callable[[], Mapping[str, Sequence[PodContainer]]]) -> None:
        self._newest = newest

    def __call__(self, page: TextPage, gpus: Sequence[GpuSample], hostname: str) -> None:
        """Add the pods of these GPUs, whether or not anything runs in them."""
        pods = self._newest()
        samples = [
            (f"{gpu_labels(gpu.static)},{named}", 1.0)
            for gpu in gpus
            # Long names may become equal once they are cut, and a duplicate sample spoils the whole scrape.
            for named in dict.fromkeys(map(_named, pods.get(gpu.static.uuid, ())))
        ]
        page.family("gputop_pod_info", "gauge", "The pods that the kubelet gave a GPU to", samples)


def _named(one: PodContainer) -> str:
    return labels(
        ("k8s_namespace_name", one.namespace), ("k8s_pod_name", one.pod), ("k8s_container_name", one.container)
    )
