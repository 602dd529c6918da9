"""The driver's own library: whether it is there, and what to do where it is not.

Asks the driver nothing and needs no binding, so that a program without a GPU learns it at once.
"""

from __future__ import annotations

import ctypes

from gputop.model.source import SourceError

LIBRARY = "libnvidia-ml.so.1"
DEMO = "to look around without a GPU: gputop demo"
NO_DRIVER = (
    f"no NVIDIA driver found ({LIBRARY} is missing): install the driver, or start the container with GPUs "
    "(docker run --gpus all)"
)


def check_library() -> None:
    """Raises SourceError where the library cannot be loaded. It is loaded and no function of it is called."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        raise SourceError(f"{NO_DRIVER}; {DEMO}") from None
