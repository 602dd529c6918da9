"""Describes places that limit measuring: WSL, Jetson, virtual GPUs.

Each sentence names the values that are measured there, those that are not, and the reason. Nothing here calls a
function of the driver.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection

from gputop.model.quantity import numbers
from gputop.model.source import SourceError
from gputop.sources.pci_cards import AMD, INTEL, NVIDIA, card_name, cards
from gputop.sources.procfs import text_of

LIBRARY = "libnvidia-ml.so.1"
NO_DRIVER = f"no NVIDIA driver found ({LIBRARY} is missing)"
DEMO = "to look around without a GPU: gputop demo"
_INSTALL = "install the driver, or start the container with GPUs (docker run --gpus all)"
_WSL = (
    "under WSL the driver is that of Windows: install NVIDIA's driver there, not here; its library is then in "
    "/usr/lib/wsl/lib"
)
_JETSON = (
    "this is a Jetson, whose driver has no NVML before JetPack 7: tegrastats shows its load, and gputop measures "
    "nothing of it"
)
WSL = (
    "under WSL the driver of Windows answers: SM activity is at best a bound, for there are neither GPM nor counters, "
    "and no process can be named; what else it does not answer is n/a; on Linux itself all of it is measured"
)


def no_driver(proc: str = "/proc", sys: str = "/sys") -> str:
    """Return why there is no driver, and what to do."""
    bus_cards = cards(sys)
    others = [card for card in bus_cards if card.vendor in (AMD, INTEL)]
    if "nvidia,tegra" in text_of(f"{proc}/device-tree/compatible"):
        advice = _JETSON
    elif is_wsl(proc):
        advice = _WSL
    elif others and not any(card.vendor == NVIDIA for card in bus_cards):
        named = " and ".join(dict.fromkeys(map(card_name, others)))
        advice = f"this machine has {named}, and gputop measures NVIDIA's GPUs alone"
    else:
        advice = _INSTALL
    return f"{NO_DRIVER}: {advice}"


def check_library() -> None:
    """Raise SourceError where the driver's library cannot be loaded.

    No function of it is called.
    """
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        raise SourceError(f"{no_driver()}; {DEMO}") from None


def is_wsl(proc: str = "/proc") -> bool:
    """Whether this kernel is the one that Windows runs."""
    return "microsoft" in text_of(f"{proc}/sys/kernel/osrelease").lower()


def limits_here(virtual: Collection[int], *, wsl: bool) -> list[str]:
    """Describe the limits of WSL and of virtual GPUs, by index."""
    limits = [WSL] if wsl else []
    if virtual:
        limits.append(
            f"GPU {numbers(virtual)}: a virtual GPU: memory and processes are this machine's own, utilisation may be "
            "other machines' as well, and SM activity is counted by the host alone"
        )
    return limits
