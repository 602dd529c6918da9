"""What tests share: the stand-in NVML library, built once, and scenarios for it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nvml.stand_in import Scenario, build


@pytest.fixture(scope="session")
def nvml_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that holds the compiled ``libnvidia-ml.so.1``."""
    if shutil.which("cc") is None:
        if os.environ.get("GPUTOP_TEST_EVERYTHING"):
            pytest.fail("cc is missing, and these tests were asked not to be skipped")
        pytest.skip("the stand-in NVML library needs a C compiler (cc)")
    return build(tmp_path_factory.mktemp("nvml")).parent


@pytest.fixture
def nvml_scenario(nvml_dir: Path, tmp_path: Path) -> Callable[..., Scenario]:
    """Makes scenarios: ``nvml_scenario(gpus=8, model="NVIDIA A100-SXM4-80GB")``, to be changed and then written."""

    def make(gpus: int = 1, model: str = "NVIDIA H100 80GB HBM3") -> Scenario:
        return Scenario(tmp_path, nvml_dir, gpus, model)

    return make
