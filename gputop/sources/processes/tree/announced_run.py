"""Run and rank of a process, as its launcher announces them in the environment.

Torchrun and its kin, Slurm's steps, MPI's launchers and JAX are read; nothing else of an environment is kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

NUMBERS = (
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
    "JAX_PROCESS_ID",
    "LOCAL_RANK",
)
"""Variables that hold the rank, the most certain first."""
SIZES = (
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "SLURM_STEP_NUM_TASKS",
    "JAX_NUM_PROCESSES",
)
MEETING_PLACES = (
    "MASTER_PORT",
    "PMIX_NAMESPACE",
    "OMPI_MCA_ess_base_jobid",
    "JAX_COORDINATOR_ADDRESS",
)
"""Variables that are equal for all ranks of one run and differ between runs."""
MOST_STEPS = 1 << 31
"""Numbers of Slurm's steps from here on are its own: a batch script, an interactive shell."""


class AnnouncedRun(Struct, frozen=True):
    """What a launcher says of a process; ``run`` is equal for the ranks of one run on a machine."""

    rank: int | None = None
    run: str | None = None


NOTHING_ANNOUNCED = AnnouncedRun()


def announced_run(environment: Mapping[str, str]) -> AnnouncedRun:
    """Return run and rank; nothing of a process that runs alone."""
    size = _first_number(environment, SIZES)
    rank = _first_number(environment, NUMBERS)
    if size is None or size < 2 or rank is None:
        return NOTHING_ANNOUNCED
    places = [environment[name] for name in MEETING_PLACES if environment.get(name)]
    step = environment.get("SLURM_STEP_ID", "")
    if step.isdecimal() and int(step) < MOST_STEPS:
        places.append(f"slurm {environment.get('SLURM_JOB_ID', '')}.{step}")
    if not places:
        return AnnouncedRun(rank)
    return AnnouncedRun(rank, f"{places[0]} of {size}")


def _first_number(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        text = environment.get(name, "")
        if text.isdecimal() and len(text) < 10:
            return int(text)
    return None
