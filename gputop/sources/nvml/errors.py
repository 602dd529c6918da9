"""NVML's error codes turned into what gputop does about them and into words.

Knows codes and texts only: asks the driver nothing.
"""

from __future__ import annotations

import pynvml

from gputop.model.source import SourceError
from gputop.model.text import clean_text
from gputop.sources.nvml.library import DEMO, NO_DRIVER

LOST_CODES = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
"""The whole GPU is gone, whichever call says so."""

CORE_LOST_CODES = LOST_CODES | {
    pynvml.NVML_ERROR_UNKNOWN,
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
}
"""The same, but only from a call that every working GPU answers: some drivers say "unknown" to a rare question."""

NEVER_CODES = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
"""This GPU with this driver will never answer this call: asked once, then remembered."""

_REASONS = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not supported by this GPU",
    pynvml.NVML_ERROR_INVALID_ARGUMENT: "not supported by this GPU",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "not offered by this driver",
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: "not offered by this driver",
    pynvml.NVML_ERROR_DEPRECATED: "not offered by this driver",
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission: needs more rights on the driver (root, or an admin capability)",
    pynvml.NVML_ERROR_GPU_IS_LOST: "GPU is lost: it fell off the bus; see dmesg for its Xid, then reset or reboot",
    pynvml.NVML_ERROR_RESET_REQUIRED: "GPU needs a reset: nvidia-smi --gpu-reset, or reboot",
    pynvml.NVML_ERROR_UNKNOWN: "the driver answers with an unknown error",
    pynvml.NVML_ERROR_NOT_FOUND: "not found by the driver",
    pynvml.NVML_ERROR_TIMEOUT: "the driver timed out",
    pynvml.NVML_ERROR_NO_DATA: "no data yet",
    pynvml.NVML_ERROR_NOT_READY: "no data yet",
    pynvml.NVML_ERROR_IN_USE: "in use by another program",
    pynvml.NVML_ERROR_UNINITIALIZED: "NVML is not initialised",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the driver was unloaded: sudo modprobe nvidia; gputop then goes on by itself",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the driver was upgraded under us: reload the nvidia modules or reboot, then restart gputop"
    ),
}

_START = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: NO_DRIVER,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded: sudo modprobe nvidia, or reboot",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the NVIDIA driver was upgraded under the running kernel module: reboot, or reload the nvidia modules"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "no permission to open the NVIDIA driver: the user needs to read and write /dev/nvidiactl and /dev/nvidia*"
    ),
}


def reason(code: int) -> str:
    """Why a single value or a GPU is not available, in words fit for the screen."""
    return _REASONS.get(code) or f"NVML error {code}: {clean_text(str(pynvml.NVMLError(code))).strip()}"


def cannot_start(code: int) -> SourceError:
    """One line for a driver that cannot be talked to at all: what is wrong, how to fix it, and the demo."""
    what = _START.get(code) or f"the NVIDIA driver does not start ({reason(code)}): see nvidia-smi and dmesg"
    return SourceError(f"{what}; {DEMO}")
