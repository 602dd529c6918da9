"""NVML's error codes and their meaning."""

from __future__ import annotations

import pynvml

from gputop.model.clean_text import clean_text
from gputop.model.source import SourceError
from gputop.sources.surroundings import DEMO, no_driver

LOST_CODES = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
"""The whole GPU is gone, whichever call says so."""

FAILED_CODES = frozenset(
    {
        pynvml.NVML_ERROR_UNKNOWN,
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
"""The driver itself fails. From a single question that is this answer alone: under WSL 2 utilisation may say so."""

NEVER_CODES = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
"""This GPU with this driver will never answer this call, as NVML documents them: asked once, then remembered."""

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
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: (
        "the NVIDIA driver is too old: install a newer one (390 is the oldest that gputop was tried with)"
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded: sudo modprobe nvidia, or reboot",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the NVIDIA driver was upgraded under the running kernel module: reboot, or reload the nvidia modules"
    ),
    pynvml.NVML_ERROR_UNKNOWN: (
        "the NVIDIA driver answers with an unknown error: a container whose devices were withdrawn (systemctl "
        "daemon-reload) must be restarted, best with CDI devices; else see nvidia-smi and dmesg"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "no permission to open the NVIDIA driver: the user needs to read and write /dev/nvidiactl and /dev/nvidia*"
    ),
}


def reason(code: int) -> str:
    """Return why a value or a GPU is not available."""
    return (
        _REASONS.get(code)
        or f"NVML error {code}: {clean_text(str(pynvml.NVMLError(code))).strip()}"
    )


def cannot_start(code: int) -> SourceError:
    """Return the error for a driver that does not start.

    One line: the problem, the fix, and the demo.
    """
    if code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return SourceError(f"{no_driver()}; {DEMO}")
    problem = (
        _START.get(code)
        or f"the NVIDIA driver does not start ({reason(code)}): see nvidia-smi and dmesg"
    )
    return SourceError(f"{problem}; {DEMO}")
