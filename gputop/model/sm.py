"""Sources of SM activity: names, texts, and properties.

No other module declares them. A new source is a name and a row here, the source that reads it, and its place on the
chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from gputop.model.bounds import Text

SmSource = Literal["gpm", "dcgm-exporter", "dcgmi", "counters", "bound", "none"]
SmChoice = Literal["auto", "gpm", "dcgm-exporter", "dcgmi", "counters", "bound"]
"""Values of ``--sm-source``: the best working source, or one source only."""


class SmOptions(Struct, frozen=True):
    """User's choices of SM sources, named like the settings.

    Empty texts are unset. ``dcgm_url`` is the address of a dcgm-exporter; otherwise GPUTOP_DCGM_URL is used, or the
    usual address is tried once. ``dcgmi`` lets gputop run ``dcgmi dmon`` if all other sources fail, ``perf`` lets it
    take the GPUs' hardware counters, with the libraries in the folder ``perf_lib`` or in a wheel; ``sm_source`` forces
    one source and opts in to it.
    """

    dcgm_url: str = ""
    dcgmi: bool = False
    perf: bool = False
    perf_lib: str = ""
    sm_source: SmChoice = "auto"


NO_OPTIONS = SmOptions()


def sm_options(settings: object) -> SmOptions:
    """The options among all settings."""
    return SmOptions(**{name: getattr(settings, name) for name in SmOptions.__struct_fields__})


class SmSourceRow(Struct, frozen=True):
    """One source: label, kind of values, and supported systems.

    ``measured`` distinguishes measured values from bounds. A ``dcgm`` source reports under the names of DCGM's fields.
    A ``slow`` source gives means over many seconds that may be old: the header then says so. A ``program`` is started
    first.
    """

    label: str
    measured: bool
    works_on: str
    asks: str
    shown: str
    dcgm: bool = False
    slow: bool = False
    program: bool = False


SM_SOURCES: Mapping[str, SmSourceRow] = {
    "gpm": SmSourceRow(
        "GPM", measured=True,
        works_on="Hopper and newer, without root: data-centre cards, GeForce Blackwell and MIG instances are known to "
        "answer, virtual machines mostly do not",
        asks="NVML's GPU performance metrics: the difference of two samples",
        shown="`SM measured · GPM`",
    ),
    "dcgm-exporter": SmSourceRow(
        "DCGM", measured=True, dcgm=True, slow=True,
        works_on="Volta and newer data centre GPUs, and MIG instances",
        asks="a dcgm-exporter that already runs: tried once on localhost:9400, or where `--dcgm-url` says",
        shown="`SM measured · DCGM`, with its averaging time and its age",
    ),
    "dcgmi": SmSourceRow(
        "dcgmi", measured=True, dcgm=True, program=True,
        works_on="Volta and newer data centre GPUs",
        asks="`dcgmi dmon`, only with `--dcgmi`: before Hopper it occupies the profiling unit",
        shown="`SM measured · dcgmi`",
    ),
    "counters": SmSourceRow(
        "counters (exclusive)", measured=True, program=True,
        works_on="Turing and newer, with the counters free and readable; not MIG, vGPU or WSL",
        asks="the hardware counters, only with `--perf`: no profiler can use them meanwhile",
        shown="`SM measured · counters (exclusive)`",
    ),
    "bound": SmSourceRow(
        "bound", measured=False,
        works_on="all GPUs that report utilisation",
        asks="nothing more: at most this share of the multiprocessors was active",
        shown="`≤ 40`, never a number of its own",
    ),
    "none": SmSourceRow(
        "none", measured=False,
        works_on="GPUs that report nothing, such as MIG instances without DCGM",
        asks="nothing",
        shown="`n/a`, with the reason",
    ),
}  # fmt: skip
"""Every value of ``SmSource``, the best source first."""

COUNTERS_DENIED = "this driver lets only administrators read GPU counters"
"""Reason if the driver denies the hardware counters to most users.

`gputop doctor` prints the remedy.
"""
LackKind = Literal["collecting", "denied", "virtual"]


class SmLack(Struct, frozen=True, omit_defaults=True):
    """Reasons for missing SM activity, and a fix if known.

    There is one reason per source, the best source first. ``kind`` is the reason for code: the source in use waits for
    the second of two samples, the hardware counters are denied to this user (``COUNTERS_DENIED``), or the GPU is a
    virtual one. All other reasons are None.
    """

    reasons: Annotated[tuple[Text, ...], Meta(max_length=64)]
    fix: Text = ""
    kind: LackKind | None = None

    @property
    def reason(self) -> str:
        """The reasons in words, without what would help."""
        return ", ".join(self.reasons)

    @property
    def words(self) -> str:
        """The reasons, and after a semicolon what would help."""
        return "; ".join(filter(None, (self.reason, self.fix)))


INTEGRATED = ("orin", "xavier", "thor", "tegra", "nvgpu")
CONSUMER = ("geforce", "titan")
"""Words in names of consumer GPUs.

They determine the remedy for missing SM activity.
"""
MEASURED = frozenset(name for name, row in SM_SOURCES.items() if row.measured)
"""Sources that measure SM activity, rather than bound it."""
