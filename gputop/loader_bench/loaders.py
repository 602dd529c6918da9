"""PyTorch loaders made for a setting, from a dataset or from a loader that the job already has."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from gputop.loader_bench.rows import Setting

_KEPT = ("collate_fn", "worker_init_fn", "drop_last", "multiprocessing_context", "timeout")


class Loadable:
    """The given object, and how to make a loader of it. Raises TypeError for what is neither dataset nor loader."""

    def __init__(self, data: Any, batch_size: int | None) -> None:
        is_loader = hasattr(data, "dataset") and hasattr(data, "num_workers")
        self.dataset = data.dataset if is_loader else data
        if not (hasattr(self.dataset, "__getitem__") or hasattr(self.dataset, "__iter__")):
            raise TypeError(f"{type(data).__name__} is neither a dataset nor a DataLoader")
        self._loader = data if is_loader else None
        given = data.batch_size if is_loader else 1
        self.batch_size: int | None = given if batch_size is None else batch_size

    @property
    def uses_cuda(self) -> bool:
        """Whether this process has initialised CUDA, which does not survive a fork."""
        torch: Any = sys.modules.get("torch")
        return torch is not None and bool(torch.cuda.is_initialized())

    @property
    def may_pin(self) -> bool:
        """Whether there is an NVIDIA device and a PyTorch that can use it. Found out without touching CUDA: the child
        does that, and has the last word."""
        torch: Any = sys.modules.get("torch")
        return torch is not None and torch.version.cuda is not None and os.path.exists("/dev/nvidiactl")

    def passes(self, setting: Setting, seed: int) -> Any:
        """A loader with this setting. Each seed reads the samples in another order, and so other pages first."""
        from torch.utils.data import DataLoader, IterableDataset

        given = self._arguments(setting)
        if isinstance(self.dataset, IterableDataset) or not hasattr(self.dataset, "__len__"):
            return DataLoader(self.dataset, batch_size=self.batch_size, **given)
        if len(self.dataset) == 0:
            raise ValueError("the dataset is empty")
        custom = self._batches()
        if custom is not None:
            given.pop("drop_last", None)
            return DataLoader(self.dataset, batch_sampler=custom, **given)
        return DataLoader(self.dataset, batch_size=self.batch_size, sampler=_Endless(len(self.dataset), seed), **given)

    @property
    def can_be_short(self) -> bool:
        """Whether a pass can be cut to a few batches: an iterable or a batch sampler decides itself where it ends."""
        from torch.utils.data import IterableDataset

        if isinstance(self.dataset, IterableDataset) or not hasattr(self.dataset, "__len__"):
            return False
        return self.batch_size is not None and self._batches() is None and len(self.dataset) > 0

    def short_pass(self, setting: Setting, batches: int) -> Any:
        """A loader that ends after so many batches."""
        from torch.utils.data import DataLoader

        size = self.batch_size or 1
        indices = [i % len(self.dataset) for i in range(batches * size)]
        return DataLoader(self.dataset, batch_size=size, sampler=indices, **self._arguments(setting))

    def _arguments(self, setting: Setting) -> dict[str, Any]:
        given: dict[str, Any] = dict(setting.kwargs)
        if self._loader is not None:
            given |= {key: getattr(self._loader, key) for key in _KEPT if getattr(self._loader, key, None) is not None}
        return given

    def _batches(self) -> Any:
        """The loader's own way to make batches, where it is not PyTorch's."""
        sampler = getattr(self._loader, "batch_sampler", None)
        return None if sampler is None or type(sampler).__name__ == "BatchSampler" else sampler


class _Endless:
    """Every index once in random order, and again without end, so that a short dataset does not end the timing."""

    def __init__(self, count: int, seed: int) -> None:
        self._count, self._seed = count, seed

    def __iter__(self) -> Iterator[int]:
        from random import Random

        random = Random(self._seed)
        while True:
            order = list(range(self._count))
            random.shuffle(order)
            yield from order
