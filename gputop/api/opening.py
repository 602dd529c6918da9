"""Opens what a watch reads, and what selects the job's GPUs from it."""

from __future__ import annotations

import os

from gputop.api.members import JobGpus
from gputop.api.options import Options
from gputop.api.ranks import Role
from gputop.model.source import MarkedSource
from gputop.sources.local import LocalSource
from gputop.sources.marked import Marked


def opened(options: Options, role: Role) -> tuple[MarkedSource, JobGpus | None]:
    """The source, not yet started, and what cuts its snapshots down to the job's GPUs; None where all are shown.

    Everything that a source imports later is imported here, on the caller's thread: a fork while another thread imports
    leaves the child with a lock that nobody gives back.
    """
    if options.source is not None:
        return Marked(options.source, at_once=True), None
    import psutil  # noqa: F401

    import gputop.sources.host  # noqa: F401

    mine = options.gpus == "mine"
    # Each rank on a node may see another GPU: the one that samples takes the whole job's.
    visible = mine and role.local_rank is None and "CUDA_VISIBLE_DEVICES" in os.environ
    chosen = None if options.gpus in ("mine", "all") else options.gpus
    source = LocalSource(options.interval, chosen, visible, options.dcgm_url, own_process=False)
    cuts = JobGpus(alone=options.ranks == "all") if mine and not visible else None
    return Marked(source, at_once=True), cuts
