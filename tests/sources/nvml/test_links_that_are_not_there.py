"""A GPU without NVLink has no NVLink traffic, although the driver's counters say 0."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.nvml.stand_in import Scenario
from tests.support.local_reader import Run

pytestmark = pytest.mark.nvml


@pytest.mark.parametrize(("links", "wanted"), [(0, (None, "no NVLink on this GPU")), (18, (0.0, None))])
def test_traffic_of_links_that_are_not_there_is_not_0(
    nvml_scenario: Callable[..., Scenario], links: int, wanted: tuple[float | None, str | None]
) -> None:
    """An H200 in a virtual machine has none of its links, and GPM gives 0 MiB/s of them."""
    scenario = nvml_scenario(1)
    scenario.gpus[0].set(nvlink_links=links, nvlink_active=links)
    scenario.gpus[0].gpm.update({60: 0, 61: 0})
    sample = Run(scenario, "once").gpu(0)
    assert sample["sm_source"] == "gpm"
    assert (sample["nvlink_rx_bytes_per_s"], sample["unavailable"].get("nvlink_rx_bytes_per_s")) == wanted
