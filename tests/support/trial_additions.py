"""What a contributor adds to try gputop on: a demo scenario, a fault, a real-life case."""

from __future__ import annotations

from tests.support.additions import Addition, Patch

SCENARIO = Addition(
    "a demo scenario",
    2,
    (
        Patch(
            "gputop/sources/simulation/small_machines.py",
            """def added() -> NodeLife:
    return machine(eight_gpu_node.healthy(1))


""",
            after="    return NodeLife((life,), chip, host)\n\n\n",
        ),
        Patch(
            "gputop/sources/simulation/scenarios.py",
            '    _one("added", "what a test adds", small_machines.added, "healthy"),\n',
            after='"a training job that uses the whole chip", small_machines.healthy, "healthy"),\n',
        ),
    ),
    """
def test_a_scenario_is_listed_diagnosed_pictured_and_completed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--list"]) == 0 and "what a test adds" in capsys.readouterr().out
    scenario = SCENARIOS["added"]
    assert_as_expected(scenario, 1.0, watch(scenario, 1.0))
    assert "added" in pictures()["scenario_added.svg"]
    assert " added" in SCRIPTS.joinpath("fish").read_text()
""",
)

FAULT = Addition(
    "a fault",
    1,
    (
        Patch(
            "tests/faults/surroundings.py",
            """        Row("a setting out of its bounds", "`interval = 0` in the configuration", "interval", "–", 2,
            _configured(b"interval = 0")),
""",
            after="""            _configured(b"a = " + b"[" * 100_000)),
""",
        ),
    ),
    """
@pytest.mark.nvml
def test_a_fault_is_tried_and_explained(nvml_scenario: Callable[..., Scenario], tmp_path: Path) -> None:
    (row,) = (row for row in rows() if row.name == "a setting out of its bounds")
    row.proof(row, World(tmp_path, nvml_scenario))
    assert "a setting out of its bounds" in page_text("faults")
""",
)

CASE = Addition(
    "a real-life case",
    1,
    (
        Patch(
            "tests/e2e/cases/added.py",
            '''"""The main thread sleeps for nearly all of its time."""

from __future__ import annotations

import time

from tests.e2e.case import Case
from tests.e2e.job import Gpu
from tests.e2e.loads import endless

CASE = Case(("main_process",), ("sleep",), says=("sleep",), cores=0.1)


def main(gpu: Gpu) -> None:
    def sleep() -> bytes:
        time.sleep(0.8)
        return b""

    gpu.train(endless(sleep), 0.1, spins=True)
''',
        ),
    ),
    """
@pytest.mark.nvml
def test_a_case_is_run_and_judged(nvml_dir: Path) -> None:
    (result,) = run_group({"added": all_cases()["added"]}, nvml_dir, watch_s=20.0)
    assert not result.problems, result
""",
)

TRIAL_ADDITIONS = (SCENARIO, FAULT, CASE)
