"""DataLoaders with a given setting, made from the user's dataset or DataLoader."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from gputop.features.loader_bench.bench_report import LoaderSetting

_KEPT = ("collate_fn", "worker_init_fn", "drop_last", "multiprocessing_context", "timeout")


class LoaderFactory:
    """Make loaders for a dataset, or for the dataset of a DataLoader. Raises TypeError for anything else."""

    def __init__(self, data: Any, batch_size: int | None) -> None:
        is_loader = hasattr(data, "dataset") and hasattr(data, "num_workers")
        self.dataset = data.dataset if is_loader else data
        if not (hasattr(self.dataset, "__getitem__") or hasattr(self.dataset, "__iter__")):
            raise TypeError(f"{type(data).__name__} is neither a dataset nor a DataLoader")
        self._loader = data if is_loader else None
        loader_batch_size = data.batch_size if is_loader else 1
        self.batch_size: int | None = loader_batch_size if batch_size is None else batch_size

    @property
    def uses_cuda(self) -> bool:
        """True if this process has initialised CUDA, which does not survive a fork."""
        torch: Any = sys.modules.get("torch")
        return torch is not None and bool(torch.cuda.is_initialized())

    def make(self, setting: LoaderSetting, seed: int) -> Any:
        """Return a DataLoader with this setting; each seed reads the samples, and so the disk, in another order."""
        from torch.utils.data import DataLoader, IterableDataset

        arguments: dict[str, Any] = dict(setting.kwargs)
        if self._loader is not None:
            kept = {key: getattr(self._loader, key, None) for key in _KEPT}
            arguments |= {key: value for key, value in kept.items() if value is not None}
        if isinstance(self.dataset, IterableDataset) or not hasattr(self.dataset, "__len__"):
            return DataLoader(self.dataset, batch_size=self.batch_size, **arguments)
        if len(self.dataset) == 0:
            raise ValueError("the dataset is empty")
        sampler = getattr(self._loader, "batch_sampler", None)
        if sampler is not None and type(sampler).__name__ != "BatchSampler":
            # The loader's own way to make batches, which is not PyTorch's.
            arguments.pop("drop_last", None)
            return DataLoader(self.dataset, batch_sampler=sampler, **arguments)
        return DataLoader(
            self.dataset, batch_size=self.batch_size, sampler=_EndlessSampler(len(self.dataset), seed), **arguments
        )


class _EndlessSampler:
    """Indices in random order, again and again, so that a short dataset does not end the timing."""

    def __init__(self, count: int, seed: int) -> None:
        self._count, self._seed = count, seed

    def __iter__(self) -> Iterator[int]:
        from random import Random

        random = Random(self._seed)
        while True:
            yield from random.sample(range(self._count), self._count)
