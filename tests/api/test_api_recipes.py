"""Every recipe of docs/api.md, run as it stands there: real frameworks, offline, on the stand-in driver."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nvml.stand_in import Process, Scenario
from tests.support.command import ran

ROOT = Path(__file__).parents[2]
RECIPES = dict(
    re.findall(
        r"^## ([^\n]+)\n(?:(?!^## ).)*?```python\n(.*?)```",
        (ROOT / "docs/api.md").read_text(),
        re.M | re.S,
    )
)
NEEDS = {
    "A plain loop": "", "DDP": "torch", "Lightning": "lightning", "Transformers": "transformers", "Keras": "keras",
    "Weights & Biases": "wandb", "MLflow": "mlflow", "TensorBoard": "tensorboard", "A notebook": "",
    "A gate in CI": "", "The largest batch": "",
}  # fmt: skip
SELDOM = {"Lightning", "Transformers", "Keras", "Weights & Biases", "MLflow", "TensorBoard"}
"""What starts a whole framework to say what a test of its integration says more closely."""
FOREIGN_PID = 4_000_000
"""No process here: a container is shown such pids, and then takes all GPUs that it sees for its own."""


def test_each_recipe_is_run() -> None:
    assert list(RECIPES) == list(NEEDS)


def _make_healthy(scenario: Scenario) -> None:
    """Let a GPU work: by itself the stand-in is busy and uses a quarter of its chip."""
    for gpu in scenario.gpus:
        gpu.gpm |= {2: 88.0, 5: 40.0}


@pytest.mark.slow
@pytest.mark.nvml
def test_the_gate_fails_on_a_gpu_that_is_busy_and_does_not_work(
    nvml_scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    scenario = nvml_scenario(gpus=2)
    for gpu in scenario.gpus:
        gpu.set(util=86)
        gpu.gpm[2] = 8.0
    scenario.write()
    (tmp_path / "recipe.py").write_text(RECIPES["A gate in CI"])
    done = ran(tmp_path, "recipe.py", environ=scenario.environment())
    assert done.returncode == 1 and "red:" in done.stderr, done.stderr[-3000:]
    assert "(0, " in done.stderr and "(1, " in done.stderr


@pytest.mark.slow
@pytest.mark.nvml
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.weekly) if name in SELDOM else name for name in NEEDS],
)
def test_a_recipe_runs_as_it_stands(
    name: str, nvml_scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    needs = NEEDS[name]
    if needs and importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed: pip install '.[integrations]'")
    scenario = nvml_scenario(gpus=1)
    scenario.gpus[0].processes = [Process(FOREIGN_PID, 1 << 30)]
    if name == "A gate in CI":
        _make_healthy(scenario)
    scenario.write()
    (tmp_path / "recipe.py").write_text(RECIPES[name])
    launcher = [sys.executable]
    if name == "DDP":
        launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    offline = {
        "PYTHONWARNINGS": "ignore", "WANDB_MODE": "offline", "WANDB_SILENT": "true", "HF_HUB_OFFLINE": "1",
        "KERAS_BACKEND": "torch", "OMP_NUM_THREADS": "1", "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
    }  # fmt: skip
    done = ran(tmp_path, "recipe.py", launcher=launcher, environ=scenario.environment(), **offline)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "gputop: the GPUs are not watched" not in done.stderr
    if name == "A plain loop":
        assert "Steps (baseline): 79, " in done.stdout and os.path.exists(
            tmp_path / "run.gputop.jsonl.gz"
        )
    if name == "The largest batch":
        assert "stopped by memory" in done.stdout
    if name == "DDP":
        assert "39, " in done.stdout
