"""Finds NVIDIA's performance libraries."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from gputop.model.extras import install
from gputop.sources.activity.counters.abi import HOST_LIBRARY, TARGET_LIBRARY

WHEELS = {13: "cu13/lib", 12: "cuda_cupti/lib"}
"""CUDA's major version → where its wheel puts the libraries, under ``nvidia``."""
EXTRAS = {13: "perf", 12: "perf-cu12"}
LEAST_DRIVER = {13: 580, 12: 525}
"""The first driver of each CUDA major (its release notes)."""


class NoLibraries(Exception):
    """No usable libraries; ``fix`` is what would help."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason, fix)
        self.reason, self.fix = reason, fix


def find(
    driver: str | None, directory: str | None = None, roots: Iterable[str] | None = None
) -> str:
    """Return the folder with both libraries for this driver.

    They come with the CUPTI wheel: an extra of gputop, or the one that PyTorch installs. Never taken from
    LD_LIBRARY_PATH, or from where others may write: their process may hold a capability. ``directory`` is named by the
    user. Raises NoLibraries.
    """
    if directory:
        if not _holds_both(Path(directory)):
            raise NoLibraries(
                f"no {HOST_LIBRARY} and {TARGET_LIBRARY} in {directory}",
                "name their folder: --perf-lib",
            )
        return _checked(Path(directory))
    major = driver_major(driver)
    if roots is None:
        spec = find_spec("nvidia")
        roots = () if spec is None else spec.submodule_search_locations or ()
    paths = ((cuda, Path(root, rest)) for root in roots for cuda, rest in WHEELS.items())
    path_of_cuda = {cuda: path for cuda, path in paths if _holds_both(path)}
    for cuda in WHEELS:
        if cuda in path_of_cuda and (major is None or major >= LEAST_DRIVER[cuda]):
            return _checked(path_of_cuda[cuda])
    extra = install(EXTRAS[wanted_cuda(major)])
    if path_of_cuda:
        have = max(path_of_cuda)
        needs = f"which needs driver {LEAST_DRIVER[have]} (this is {driver})"
        raise NoLibraries(f"NVIDIA's counter libraries here are of CUDA {have}, {needs}", extra)
    raise NoLibraries("NVIDIA's counter libraries are not installed", extra)


def wanted_cuda(major: int | None) -> int:
    """Return the CUDA major whose wheel fits a driver."""
    return 13 if major is None or major >= LEAST_DRIVER[13] else 12


def driver_major(driver: str | None) -> int | None:
    """Return ``580`` of ``580.65.06``; None for other forms."""
    first = (driver or "").partition(".")[0]
    return int(first) if first.isascii() and first.isdigit() else None


def _holds_both(path: Path) -> bool:
    return (path / HOST_LIBRARY).is_file() and (path / TARGET_LIBRARY).is_file()


def _checked(path: Path) -> str:
    for part in (path, path / HOST_LIBRARY, path / TARGET_LIBRARY):
        real = part.resolve()
        facts = real.stat()
        if facts.st_mode & stat.S_IWOTH or facts.st_uid not in (0, os.getuid()):
            raise NoLibraries(
                f"{part} could be changed by other users, and is not loaded",
                f"chmod o-w {real}, or own it yourself",
            )
    return str(path.resolve())
