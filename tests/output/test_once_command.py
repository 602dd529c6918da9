"""`gputop once` on the stand-in driver: one object, table or CSV, for the GPUs and processes that were asked for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.nvml.stand_in import Process
from tests.support.command import ROOT, gputop


@pytest.mark.nvml
def test_once_gives_one_json_object_and_imports_no_screen(nvml_scenario) -> None:  # type: ignore[no-untyped-def]
    scenario = nvml_scenario(gpus=2)
    scenario.gpus[1].set(power_w=None, util=10)
    scenario.write()
    code = (
        "import sys; from gputop.cli import main; status = main(['once', '--json']);"
        "assert not {'textual', 'rich', 'asyncio'} & set(sys.modules), 'a screen was imported'; sys.exit(status)"
    )
    env = {**scenario.environment(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    # A machine that is slow is told what it waits for.
    assert done.returncode == 0 and all(
        "waiting for the driver" in line for line in done.stderr.splitlines()
    )
    data = json.loads(done.stdout)
    assert data["schema"] == 1
    assert (data["complete"], data["missing_gpus"]) == (True, [])
    assert [gpu["index"] for gpu in data["gpus"]] == [0, 1]
    assert data["gpus"][0]["power_w"] == 400
    assert data["gpus"][0]["sm_active_pct"] == pytest.approx(25, abs=0.5)
    assert data["gpus"][0]["sm_source"] == "gpm"
    assert data["gpus"][1]["power_w"] is None
    assert data["gpus"][1]["unavailable"]["power_w"]
    assert (
        data["gpus"][1]["doubts"] == {"util_pct": "SM says more"}
        and "doubts" not in data["gpus"][0]
    )


@pytest.mark.nvml
def test_once_as_a_table_and_as_csv(nvml_scenario) -> None:  # type: ignore[no-untyped-def]
    scenario = nvml_scenario(gpus=1)
    scenario.write()
    table = gputop("once", **scenario.environment())
    assert table.returncode == 0
    assert "H100 80GB" in table.stdout
    assert "\x1b" not in table.stdout
    rows = gputop("once", "--csv", **scenario.environment()).stdout.splitlines()
    assert rows[0].split(",")[:4] == ["t", "index", "uuid", "name"]
    assert len(rows) == 2


@pytest.mark.nvml
def test_where_no_gpu_could_be_read_it_says_so_and_ends_with_3(nvml_scenario) -> None:  # type: ignore[no-untyped-def]
    scenario = nvml_scenario(gpus=1)
    scenario.error("*", 15, gpu=0)  # NVML_ERROR_GPU_IS_LOST
    scenario.write()
    done = gputop("once", "--json", **scenario.environment())
    assert done.returncode == 3, done.stderr
    assert "lost" in done.stdout.lower()


@pytest.mark.nvml
def test_once_shows_the_processes_that_pass_the_filter(nvml_scenario) -> None:  # type: ignore[no-untyped-def]
    scenario = nvml_scenario(gpus=2)
    for gpu, pid in ((0, 4000001), (1, 4000002)):
        scenario.gpus[gpu].processes = [Process(pid, 2**30)]
    scenario.write()
    env = scenario.environment()
    data = json.loads(gputop("once", "--json", "--filter", "gpu:1 mem>0.5G", **env).stdout)
    assert [process["pid"] for process in data["processes"]] == [4000002]
    assert len(data["gpus"]) == 2
    table = gputop("once", "--filter", "!gpu:1", **env).stdout
    assert "4000001" in table and "4000002" not in table
