"""Asks for a GPU's health: recovery action, retired pages, NVLinks that are down, power of the module.

All of it is one call of nvmlDeviceGetFieldValues, on the driver's slow schedule.
"""

from __future__ import annotations

from typing import Any

import pynvml

from gputop.sources.nvml.field_values import value_of
from gputop.sources.nvml.handle import Handle, MetricAnswers
from gputop.sources.nvml.nvml_errors import reason

RECOVERY_ACTION: int = getattr(pynvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", 230)
"""Which nvidia-ml-py 12.560 does not name."""
RETIRED_PENDING: int = pynvml.NVML_FI_DEV_RETIRED_PENDING
POWER: int = pynvml.NVML_FI_DEV_POWER_INSTANT
MODULE: int = getattr(pynvml, "NVML_POWER_SCOPE_MODULE", 1)
"""Scope of a power field: GPU, CPU and memory of a GH200 or GB200 together."""
LINK_COUNT: int = pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT
LINK_STATE: int = pynvml.NVML_FI_DEV_NVLINK_GET_STATE
MOST_LINKS: int = pynvml.NVML_NVLINK_MAX_LINKS
FIELDS = ("nvmlDeviceGetFieldValues",)
LINK_KEYS = ("nvlink_count", "nvlink_active")
"""Which are down has no reason of its own: it is missing with the number of those that are up."""
KEYS = ("recovery_action", "retired_pending", "module_power_w", *LINK_KEYS)
NO_LINKS = "no NVLink on this GPU"
NONE_DOWN = "none"


class DeviceHealth:
    """Health of one whole GPU."""

    __slots__ = ("_asked", "_links")

    def __init__(self) -> None:
        self._links = MOST_LINKS
        """How many links are asked for: all that there may be, until their number is known."""
        self._asked = self._fields()

    def _fields(self) -> tuple[Any, ...]:
        links = [(LINK_STATE, link) for link in range(self._links)]
        return (RECOVERY_ACTION, RETIRED_PENDING, (POWER, MODULE), LINK_COUNT, *links)

    def ask_into(self, handle: Handle, into: MetricAnswers, now: float) -> None:
        """Ask for all of it in one call. Raises LostGpu."""
        answer = handle.ask(FIELDS, (self._asked,), now)
        if answer.__class__ is str:
            into.miss(KEYS, answer)
            return
        recovery, retired, power, count, *links = list(answer)
        _keep(into, "recovery_action", recovery, value_of(recovery))
        pending = value_of(retired)
        _keep(into, "retired_pending", retired, None if pending is None else bool(pending))
        milliwatts = value_of(power)
        _keep(into, "module_power_w", power, None if milliwatts is None else milliwatts / 1000)
        self._take_links(into, count, links)

    def _take_links(self, into: MetricAnswers, count: Any, links: list[Any]) -> None:
        """Keep the number of links, and which of them are down."""
        number = value_of(count)
        if not number:
            why = NO_LINKS if number == 0 else reason(count.nvmlReturn)
            into.miss(LINK_KEYS, why)
            return
        down, unknown = [], ""
        for link, field in enumerate(links[:number]):
            state = value_of(field)
            if state is None:
                unknown = reason(field.nvmlReturn or pynvml.NVML_ERROR_NOT_SUPPORTED)
            elif not state:
                down.append(link)
        into.put("nvlink_count", number)
        if unknown:
            into.miss(("nvlink_active",), unknown)
        else:
            into.put("nvlink_active", number - len(down))
            into.values["nvlink_down"] = ", ".join(map(str, down)) or NONE_DOWN
        if self._links != min(number, MOST_LINKS):
            self._links = min(number, MOST_LINKS)
            self._asked = self._fields()


def recovery_of(handle: Handle) -> int | None:
    """Return the recovery action of a GPU that answers nothing else, if it tells."""
    try:
        (field,) = handle.run("nvmlDeviceGetFieldValues", (RECOVERY_ACTION,))
    except pynvml.NVMLError:
        return None
    action = value_of(field)
    return None if action is None else int(action)


def _keep(into: MetricAnswers, key: str, field: Any, value: Any) -> None:
    """Keep a field's value, or the reason for none."""
    if value is None:
        into.miss((key,), reason(field.nvmlReturn or pynvml.NVML_ERROR_NOT_SUPPORTED))
    elif isinstance(value, bool):
        into.values[key] = value
    else:
        into.put(key, value)
