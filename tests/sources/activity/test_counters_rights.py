"""What the hardware counters need before they are asked: rights, libraries, and nobody else who needs them."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.sources.activity.counters.abi import HOST_CALLS, TARGET_CALLS
from gputop.sources.activity.counters.access import (
    FOR_EVERYBODY,
    WITH_PERFMON,
    Rights,
    advice,
    rights,
)
from gputop.sources.activity.counters.counter_libraries import NoLibraries, find, wanted_cuda
from gputop.sources.activity.counters.counter_plan import host_library
from gputop.sources.activity.counters.helper_protocol import SampleLine, doubt
from gputop.sources.activity.counters.other_profilers import Others
from gputop.sources.activity.counters.sampler import places, target_library
from gputop.sources.activity.cross_check import TIMES, CrossCheck
from gputop.sources.capabilities import PERFMON, SYS_ADMIN, Capabilities
from gputop.sources.pci_cards import kernel_address
from tests.nvperf.stand_in import Counters

NOTHING, ROOT, ONLY_PERFMON = (
    Capabilities(),
    Capabilities(1 << SYS_ADMIN),
    Capabilities(1 << PERFMON),
)


def proc_with(folder: Path, admin_only: int | None, uid_map: str = "0 0 4294967295") -> str:
    (folder / "driver/nvidia").mkdir(parents=True)
    (folder / "self").mkdir()
    (folder / "self/uid_map").write_text(f"         {uid_map}\n")
    if admin_only is not None:
        (folder / "driver/nvidia/params").write_text(
            f"Mobile: 1\nRmProfilingAdminOnly: {admin_only}\n"
        )
    return str(folder)


@pytest.mark.parametrize(
    ("admin_only", "driver", "held", "allowed"),
    [
        (0, "550.1", NOTHING, True),
        (1, "580.1", NOTHING, False),
        (1, "580.1", ONLY_PERFMON, True),
        (1, "565.57", ONLY_PERFMON, True),
        (1, "560.35", ONLY_PERFMON, False),
        (1, "550.1", ROOT, True),
        (None, "580.1", NOTHING, None),
        (1, None, ONLY_PERFMON, False),
    ],
)
def test_who_may_read_counters_follows_the_kernel_modules_rule(
    tmp_path: Path,
    admin_only: int | None,
    driver: str | None,
    held: Capabilities,
    allowed: bool | None,
) -> None:
    assert rights(driver, proc_with(tmp_path, admin_only), held).allowed is allowed


def test_the_advice_gives_the_smallest_right_first_and_never_a_root_shell() -> None:
    new = advice(Rights(True, False, True, False))
    assert new[1].strip() == WITH_PERFMON and new[-1].strip() == FOR_EVERYBODY
    assert not any("sudo gputop" in line for line in new)
    assert all(WITH_PERFMON not in line for line in advice(Rights(True, False, False, False)))
    assert "--cap-add=PERFMON" in advice(Rights(True, False, True, True))[0]
    assert "--cap-add=SYS_ADMIN" in advice(Rights(True, False, False, True))[0]


def test_the_command_is_valid_shell_and_keeps_the_users_surroundings(tmp_path: Path) -> None:
    for name, text in (
        ("sudo", 'exec "$@"'),
        ("setpriv", 'printf "%s\\n" "$@" "$COLORTERM" "$XDG_RUNTIME_DIR"'),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "gputop").symlink_to("/bin/true")
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "HOME": "/h",
        "LANG": "C",
        "COLORTERM": "24",
        "XDG_RUNTIME_DIR": "/r",
    }
    said = subprocess.run(
        ["sh", "-c", WITH_PERFMON], env=environment, capture_output=True, text=True, check=True
    )
    words = said.stdout.splitlines()
    assert words[:2] == [f"--reuid={os.getuid()}", f"--regid={os.getgid()}"]
    assert words[-4:] == [str(tmp_path / "gputop"), "--perf", "24", "/r"]


CHILDREN = """
import json, subprocess, sys
from gputop.sources.capabilities import PERFMON, ambient, capabilities, clear_ambient
from gputop.system.children import end, ours, start
def seen():
    return subprocess.run(["grep", "CapEff", "/proc/self/status"], capture_output=True, text=True).stdout.split()[1]
before = seen()
clear_ambient()
program = f"import sys; sys.path[:] = {sys.argv[1:]!r}; from looker import main; main()"
with ambient(PERFMON):
    helper = start([sys.executable, "-I", "-c", program], ours())
line = helper.stdout.readline().decode().split()[1]
end(helper)
print(json.dumps([before, seen(), line, capabilities().ambient]))
"""


def test_only_the_helper_inherits_the_right_to_read_counters(tmp_path: Path) -> None:
    if shutil.which("setpriv") is None or os.geteuid() != 0:
        pytest.skip("needs root and setpriv, to start a program with one capability")
    if not int(_status("CapBnd"), 16) >> PERFMON & 1:
        pytest.skip("the bounding set lacks CAP_PERFMON: this container may not give it to anybody")
    (tmp_path / "looker.py").write_text(
        "def main():\n    lines = open('/proc/self/status')\n"
        "    print(next(l for l in lines if l.startswith('CapEff')), flush=True)\n"
    )
    # Still root, so that it can read this checkout, but without what comes with that name.
    command = [
        "setpriv",
        "--securebits=+noroot",
        "--inh-caps=-all,+perfmon",
        "--ambient-caps=-all,+perfmon",
    ]
    said = subprocess.run(
        [*command, sys.executable, "-c", CHILDREN, str(tmp_path)],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    before, other, helper, ambient = json.loads(said.stdout)
    assert int(before, 16) == 1 << PERFMON == int(helper, 16)
    assert int(other, 16) == 0 == ambient


def _status(name: str) -> str:
    return next(
        line.split()[1]
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith(name)
    )


# -- libraries ---------------------------------------------------------------------------------------------------------


def wheel(root: Path, rest: str) -> Path:
    folder = root / rest
    folder.mkdir(parents=True)
    for name in ("libnvperf_host.so", "libnvperf_target.so"):
        (folder / name).write_text("")
        (folder / name).chmod(0o644)
    return folder


def test_the_wheel_that_fits_the_driver_is_found(tmp_path: Path) -> None:
    new, old = wheel(tmp_path, "cu13/lib"), wheel(tmp_path, "cuda_cupti/lib")
    assert find("580.1", roots=[str(tmp_path)]) == str(new)
    assert find("570.1", roots=[str(tmp_path)]) == str(old)
    assert (wanted_cuda(580), wanted_cuda(579), wanted_cuda(None)) == (13, 12, 13)


@pytest.mark.parametrize("what", ["", "libnvperf_target.so"])
def test_libraries_that_others_can_write_are_refused(tmp_path: Path, what: str) -> None:
    folder = wheel(tmp_path, "own")
    (folder / what).chmod(0o777)
    with pytest.raises(NoLibraries, match="changed by other users"):
        find("580.1", str(folder))


# -- courtesy ----------------------------------------------------------------------------------------------------------


def start(proc: Path, pid: int, name: str) -> None:
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "comm").write_text(f"{name}\n")


def test_counters_are_left_to_profilers_and_dcgm(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    proc.mkdir()
    others = Others(str(proc))
    start(proc, 1, "init")
    assert others.reason_to_wait(0.0) is None
    start(proc, 7, "sh")
    assert others.reason_to_wait(2.0) is None
    # The shell becomes the profiler: the same process under another name.
    start(proc, 7, "ncu")
    assert others.reason_to_wait(4.0) == "left to ncu, which needs the same counters"
    start(proc, 8, "nv-hostengine")
    assert others.reason_to_wait(6.0) == "left to ncu, nv-hostengine, which needs the same counters"
    for pid in (7, 8):
        shutil.rmtree(proc / str(pid))
    assert others.reason_to_wait(8.0) is None


# -- the witness, and the chain ---------------------------------------------------------------------------------------


def test_counters_that_contradict_utilisation_are_rejected_after_ten_times() -> None:
    check = CrossCheck()
    for _ in range(TIMES - 1):
        assert check.refutes(80.0, 0.0) is None
    assert check.refutes(50.0, 40.0) is None, "within the margin"
    for _ in range(TIMES - 1):
        assert check.refutes(80.0, 20.0) is None
        assert check.refutes(None, 20.0) is None
    assert "contradict NVML (80 % of the chip at 20 % utilisation)" in (
        check.refutes(80.0, 20.0) or ""
    )


# Hardware counters: the library's structures, byte for byte, and the lines that helper and client exchange.


@pytest.mark.parametrize("half", ["host", "target"])
def test_the_library_refuses_a_structure_of_another_size(counters: Counters, half: str) -> None:
    library = (
        host_library(str(counters.libraries))
        if half == "host"
        else target_library(str(counters.libraries))
    )
    table = HOST_CALLS if half == "host" else TARGET_CALLS
    for name, (function, made, size) in library._calls.items():
        assert function(ctypes.byref(made(structSize=size + 1))) == 8, name
        assert function(ctypes.byref(made(structSize=size - 1))) == 8, name
    assert library._calls.keys() == table.keys()


def test_gpus_are_joined_by_their_pci_address_and_not_by_their_number(counters: Counters) -> None:
    counters.write(gpus=3)
    found = places(target_library(str(counters.libraries)))
    assert [(place.device, place.pci) for place in found] == [
        (0, "0000:03:00.0"),
        (1, "0000:02:00.0"),
        (2, "0000:01:00.0"),
    ]
    assert kernel_address("00000000:3B:00.0") == "0000:3b:00.0" == kernel_address("0000:3B:00.0")
    assert kernel_address("00010000:3B:00.0") == "10000:3b:00.0", (
        "a domain of more than four digits"
    )
    assert kernel_address(None) is None and kernel_address("x") is None


@pytest.mark.parametrize(
    ("t0", "t1", "sm", "believed"),
    [
        (10.0, 11.0, 50.0, True),
        (10.0, 11.0, 104.0, True),
        (10.0, 11.0, 250.0, False),
        (10.0, 11.0, -1.0, False),
        (0.0, 1.0, 50.0, False),
        (11.0, 10.0, 50.0, False),
        (10.0, 10.1, 50.0, False),
        (10.0, 40.0, 50.0, False),
        (10.0, float("nan"), 50.0, False),
    ],
)
def test_a_sample_without_a_plausible_time_and_value_is_not_believed(
    t0: float, t1: float, sm: float, believed: bool
) -> None:
    assert (doubt(SampleLine("p", t0, t1, sm), 1.0) is None) is believed
