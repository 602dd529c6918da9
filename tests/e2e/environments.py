"""Runs the stacks: each framework is installed into an environment of its own, which is thrown away afterwards."""

from __future__ import annotations

import subprocess
import tempfile
import venv
from importlib.util import find_spec
from pathlib import Path

from tests.e2e.case import all_cases
from tests.e2e.watching import Result, run_group

TORCH = "torch==2.13.0"
INSTALL_S = 900.0
WATCH_S = 60.0
"""Frameworks take their time to start."""


def run_stacks(library: Path, names: list[str]) -> list[Result]:
    """Each stack by itself, or those named. One that cannot be installed is a result that says so."""
    results = []
    for name, case in all_cases("stacks").items():
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory(prefix=f"gputop-{name}-") as made:
            python = Path(made, "bin/python")
            print(f"installing {name}", flush=True)
            reason = _install(Path(made), python, case.requires)
            if reason:
                result = Result(name, "/".join(case.verdict), "", "", "", None, 0, (f"could not be had: {reason}",))
            else:
                print(f"running {name}", flush=True)
                try:
                    (result,) = run_group(
                        {name: case}, library, folder="stacks", python=str(python), watch_s=WATCH_S
                    )  # fmt: skip
                except AssertionError as error:
                    said = str(error).strip().splitlines()[-1:]
                    result = Result(name, "/".join(case.verdict), "", "", "", None, 0, (f"did not run: {said[0]}",))
            results.append(result)
    return results


def _install(folder: Path, python: Path, requirements: tuple[str, ...]) -> str:
    """Why it cannot be installed; empty when it was. PyTorch is taken from here where it is here."""
    venv.create(folder, with_pip=True)
    here = find_spec("torch")
    if here is not None and here.origin is not None:
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "torch_from_here.pth").write_text(f"{Path(here.origin).parents[1]}\n")
    elif any("torch" in requirement for requirement in requirements):
        requirements = (TORCH, *requirements)
    constraint = folder / "constraint.txt"
    constraint.write_text(f"{TORCH}\n")
    command = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(constraint), *requirements]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        return f"not installed within {INSTALL_S:.0f} s"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["pip failed"])[-1]
