"""Loaders of whole frameworks, each installed for itself."""

from __future__ import annotations

import io
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.case import case
from tests.e2e.cases.torch_loaders import loader
from tests.e2e.job import Gpu
from tests.e2e.loads import compute, endless, fed_by


def decoded(samples: list[int]) -> object:
    import torch

    compute(0.3)
    return torch.tensor(samples)


@case(("dataloader_cpu",), ("cpu", "queued"), 2, cores=2.0, requires=("accelerate>=1,<2",))
def accelerate_prepare(gpu: Gpu) -> None:
    """accelerate: a prepared DataLoader, whose workers decode."""
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    loader = DataLoader(range(100_000), batch_size=4, num_workers=2, collate_fn=decoded)  # type: ignore[arg-type]
    gpu.train(iter(Accelerator(cpu=True).prepare(loader)), 0.05)


def make(sample: object) -> object:
    import numpy

    compute(0.05)
    return numpy.zeros(16, dtype=numpy.uint8)


@case(("dataloader_cpu",), ("cpu", "queued"), 1, cores=2.0, requires=("nvidia-dali-cuda120>=1.50,<3", "numpy"))
def dali_source(gpu: Gpu) -> None:
    """DALI without a GPU: its own Python workers make what its pipeline takes in, a batch of eight at a time."""
    from nvidia.dali import fn, pipeline_def

    @pipeline_def(batch_size=8, num_threads=1, device_id=None, py_num_workers=2, py_start_method="spawn")
    def pipeline() -> object:
        return fn.external_source(source=make, batch=False, parallel=True)

    made = pipeline()
    made.build()

    def batches() -> Iterator[object]:
        while True:
            yield made.run()

    gpu.train(batches(), 0.05)


def decode(batch: dict[str, list[int]]) -> dict[str, list[int]]:
    compute(0.3)
    return batch


@case(("dataloader_cpu",), ("cpu", "queued"), 2, cores=2.0, requires=("datasets>=4,<6",))
def datasets_transform(gpu: Gpu) -> None:
    """Hugging Face datasets: a transform that decodes when an item is read, in the workers of a DataLoader."""
    import datasets
    from torch.utils.data import DataLoader

    data = datasets.Dataset.from_dict({"number": list(range(100_000))}).with_transform(decode)
    gpu.train(iter(DataLoader(data, batch_size=None, num_workers=2)), 0.05)


def decode_number(number: int) -> int:
    compute(0.3)
    return number


@case(("dataloader_cpu",), ("cpu", "queued"), 1, cores=2.0, requires=("grain>=0.2,<0.3",))
def grain_workers(gpu: Gpu) -> None:
    """grain: a pipeline that reads in worker processes of its own."""
    import grain.python as grain

    # By default sixteen threads read ahead in each worker.
    one = grain.ReadOptions(num_threads=1, prefetch_buffer_size=1)
    data = grain.MapDataset.range(100_000).map(decode_number).to_iter_dataset(one)
    gpu.train(iter(data.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))), 0.05)


@case(("dataloader_cpu",), ("cpu", "queued"), 2, cores=2.0, requires=("lightning>=2.5,<3",))
def lightning_fit(gpu: Gpu) -> None:
    """Lightning: its Trainer drives the loop, and the DataLoader's workers decode."""
    import lightning
    import torch

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def training_step(self, batch: Any, index: int) -> Any:
            gpu.step(0.05)
            return self.layer(torch.zeros(1, 4)).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = lightning.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, max_epochs=1
    )
    trainer.fit(Model(), loader())


@case(("dataloader_cpu",), ("cpu", "queued"), 1, cores=2.0, requires=("ray>=2.50,<3",))
def ray_actor(gpu: Gpu) -> None:
    """Ray: an actor beside the trainer makes the batches. Neither is a child of the other."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    make = ray.remote(compute)

    def batches() -> Iterator[object]:
        waiting = [make.remote(0.3) for _ in range(2)]
        while True:
            waiting.append(make.remote(0.3))
            yield ray.get(waiting.pop(0))

    gpu.train(batches(), 0.05)


STEPS, EVALUATES_S = 15, 3.0


@case(
    ("main_process",),
    ("cpu", "queued"),
    cores=1.0,
    never=("lock", "sleep", "fetch", "disk"),
    requires=("scikit-learn>=1.5,<2",),
)
def sklearn_evaluation(gpu: Gpu) -> None:
    """scikit-learn: every few steps the main thread fits and evaluates a probe, beside workers that are ahead."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier

    features = np.random.default_rng(0).random((6000, 60))
    labels = (features[:, 0] + features[:, 1] > 1.0).astype(int)
    ready = fed_by([lambda: endless(lambda: b"")] * 2)

    def batches() -> Iterator[bytes]:
        while True:
            for _ in range(STEPS):
                yield next(ready)
            end = time.monotonic() + EVALUATES_S
            while time.monotonic() < end:
                KNeighborsClassifier(15).fit(features, labels).predict(features[:1500])
                LogisticRegression(max_iter=200).fit(features, labels)

    gpu.train(batches(), 0.2)


@case(("dataloader_cpu",), ("cpu", "queued"), 1, ("thread",), cores=2.0, requires=("tensorflow-cpu>=2.19,<3",))
def tf_data_map(gpu: Gpu) -> None:
    """tf.data: its own threads decode, below no process of their own."""
    import tensorflow

    def decode(number: object) -> object:
        picture = tensorflow.random.uniform((900, 900))
        for _ in range(12):
            picture = tensorflow.linalg.matmul(picture, picture) / 900.0
        return tensorflow.reduce_sum(picture)

    data = tensorflow.data.Dataset.range(1_000_000).map(decode, num_parallel_calls=2).prefetch(2)
    gpu.train(iter(data), 0.02)


def _shard(path: Path) -> None:
    with tarfile.open(path, "w") as tar:
        for number in range(64):
            info = tarfile.TarInfo(f"{number:06d}.bin")
            info.size = 1024
            tar.addfile(info, io.BytesIO(bytes(info.size)))


def decode_tar(sample: dict[str, bytes]) -> bytes:
    return compute(0.3)


@case(("dataloader_cpu",), ("cpu", "queued"), 2, cores=2.0, requires=("webdataset>=1,<2",))
def webdataset_decode(gpu: Gpu) -> None:
    """webdataset: shards in tar files, decoded by the workers of its WebLoader."""
    import webdataset

    folder = Path(tempfile.mkdtemp())
    paths = [folder / f"{number:04d}.tar" for number in range(2)]
    for path in paths:
        _shard(path)
    data = webdataset.WebDataset([str(path) for path in paths], shardshuffle=False).repeat().map(decode_tar)
    gpu.train(iter(webdataset.WebLoader(data, batch_size=None, num_workers=2)), 0.05)
