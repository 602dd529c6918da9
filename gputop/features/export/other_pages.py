"""The same values under DCGM's names, for dashboards that were made for a dcgm-exporter.

Off by default: beside a running dcgm-exporter, sums would count every GPU twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gputop.features.export.metrics_page import Sample, TextPage, gpu_labels, labels
from gputop.features.export.pod_resources import PodContainer
from gputop.model.metrics import GPU_METRICS
from gputop.model.prometheus_names import COUNTERS, FB_FREE, HOST_LABEL, NAMES, Generation
from gputop.model.snapshot import GpuSample, value


class DcgmFamilies:
    """Adds the families of one generation of DCGM names to a page."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation

    def __call__(self, page: TextPage, gpus: Sequence[GpuSample], hostname: str) -> None:
        """Add what is measured of these GPUs."""
        parents = {gpu.static.uuid: gpu.static.index for gpu in gpus}
        rows = [(gpu, self._labels(gpu, parents, hostname)) for gpu in gpus]
        for row in NAMES[self._generation].values():
            kind = "counter" if row.key in COUNTERS else "gauge"
            samples: list[Sample] = [
                (gpu_label, measured / row.divisor)
                for gpu, gpu_label in rows
                if (measured := value(gpu, row.key)) is not None
            ]
            page.family(row.name, kind, GPU_METRICS[row.key].definition, samples)
        free = FB_FREE[self._generation]
        page.family(free.name, "gauge", "device memory that is free", [
            (gpu_label, (gpu.mem_total_bytes - gpu.mem_used_bytes) / free.divisor)
            for gpu, gpu_label in rows
            if gpu.mem_total_bytes is not None and gpu.mem_used_bytes is not None
        ])  # fmt: skip

    def _labels(self, gpu: GpuSample, parents: dict[str, int], hostname: str) -> str:
        """As dcgm-exporter labels a GPU; an instance goes by its parent's number and its GPU instance."""
        static = gpu.static
        index = parents.get(static.mig_parent or "", static.index)
        return labels(
            ("gpu", str(index)),
            ("UUID", static.mig_parent or static.uuid),
            ("pci_bus_id", static.pci_bus_id),
            ("device", f"nvidia{index}"),
            ("modelName", static.name),
            ("GPU_I_ID", (static.mig_instance or "").partition("/")[0]),
            (HOST_LABEL[self._generation], hostname),
        )


# The pods that the node's GPUs were given to, where the kubelet may be asked for them.
#
# Named as OpenTelemetry names them; ``pod``, ``namespace`` and ``container`` are labels that a scrape gives its
# targets.


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


def _named(container: PodContainer) -> str:
    return labels(
        ("k8s_namespace_name", container.namespace),
        ("k8s_pod_name", container.pod),
        ("k8s_container_name", container.container),
    )
