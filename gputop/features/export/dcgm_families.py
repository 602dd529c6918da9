"""The values of GPUs under the names of dcgm-exporter, for dashboards and alerts that were made for it."""

from __future__ import annotations

from collections.abc import Sequence

from gputop.features.export.exposition import Sample, TextPage, labels
from gputop.model.dcgm_names import FB_FREE, HOST_LABEL, NAMES, DcgmName, Generation
from gputop.model.metrics import GPU_METRICS
from gputop.model.snapshot import GpuSample, value

_FREE_TEXT = "device memory that is free"


def dcgm_families(
    generation: Generation, page: TextPage, gpus: Sequence[GpuSample], hostname: str
) -> None:
    """Add the families of one generation of dcgm-exporter to a page.

    Names, units and labels are dcgm-exporter's. Their type is left open: what counts up has names there that no
    counter may have (promtool: 'counter metrics should have "_total" suffix'), and queries do not read types.
    """
    parents = {gpu.static.uuid: gpu.static.index for gpu in gpus}
    rows = [(gpu, _labels(generation, gpu, parents, hostname)) for gpu in gpus]
    for name in NAMES[generation].values():
        metric = GPU_METRICS[name.key]
        page.family(name.name, metric.definition, _samples(name, rows), "untyped")
    free = FB_FREE[generation]
    page.family(free.name, _FREE_TEXT, _free_samples(free, rows), "untyped")


def _samples(name: DcgmName, rows: Sequence[tuple[GpuSample, str]]) -> list[Sample]:
    samples = []
    for gpu, named in rows:
        measured = value(gpu, name.key)
        if measured is not None:
            samples.append((named, measured / name.divisor))
    return samples


def _free_samples(free: DcgmName, rows: Sequence[tuple[GpuSample, str]]) -> list[Sample]:
    samples = []
    for gpu, named in rows:
        if gpu.mem_total_bytes is not None and gpu.mem_used_bytes is not None:
            samples.append((named, (gpu.mem_total_bytes - gpu.mem_used_bytes) / free.divisor))
    return samples


def _labels(generation: Generation, gpu: GpuSample, parents: dict[str, int], hostname: str) -> str:
    """Return dcgm-exporter's labels of a GPU.

    A MIG instance goes by its parent's number and UUID, and its GPU instance.
    """
    static = gpu.static
    index = static.index
    uuid = static.uuid
    if static.mig_parent is not None:
        uuid = static.mig_parent
        index = parents.get(uuid, index)
    instance, _, _ = (static.mig_instance or "").partition("/")
    return labels(
        ("gpu", str(index)),
        ("UUID", uuid),
        ("pci_bus_id", static.pci_bus_id),
        ("device", f"nvidia{index}"),
        ("modelName", static.name),
        ("GPU_I_ID", instance),
        (HOST_LABEL[generation], hostname),
    )
