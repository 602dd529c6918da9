"""The file system under the workers stops to answer: the GPU idles, and it is said where they hang."""

from __future__ import annotations

from tests.e2e.case import Case
from tests.e2e.cases import fuse_reads
from tests.e2e.job import Gpu

CASE = Case(("idle",), ("mount",), 0, ("mount-",), cores=0.1, mount_s=0.1, hangs_s=12.0, changes=1, watch_s=75.0)


def main(gpu: Gpu) -> None:
    fuse_reads.main(gpu)
