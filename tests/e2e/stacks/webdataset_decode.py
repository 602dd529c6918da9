"""webdataset: shards in tar files, decoded by the workers of its WebLoader."""

from __future__ import annotations

import io
import tarfile
import tempfile
from pathlib import Path

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import compute

REQUIREMENTS = ("webdataset>=1,<2",)
CASE = Case(("dataloader_cpu",), ("cpu", "queued"), 2, cores=2.0)


def _shard(path: Path) -> None:
    with tarfile.open(path, "w") as tar:
        for number in range(64):
            info = tarfile.TarInfo(f"{number:06d}.bin")
            info.size = 1024
            tar.addfile(info, io.BytesIO(bytes(info.size)))


def decode(sample: dict[str, bytes]) -> bytes:
    return compute(0.3)


def main(gpu: Gpu) -> None:
    import webdataset

    folder = Path(tempfile.mkdtemp())
    paths = [folder / f"{number:04d}.tar" for number in range(2)]
    for path in paths:
        _shard(path)
    data = webdataset.WebDataset([str(path) for path in paths], shardshuffle=False).repeat().map(decode)
    gpu.train(iter(webdataset.WebLoader(data, batch_size=None, num_workers=2)), 0.05)
