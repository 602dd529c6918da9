"""What tests share: the stand-in NVML library, built once, and scenarios for it."""

from __future__ import annotations

import fcntl
import gc
import importlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.nvml.stand_in import LIBRARY, Scenario, build
from tests.nvperf import stand_in as nvperf
from tests.support.kept import KEPT_IN

OWN = pytest.StashKey[list[str]]()
"""The directories that this process has made and takes away."""

MOST_CORES = 12
"""More workers would spend their time on collecting the tests."""


def pytest_configure(config: pytest.Config) -> None:
    # Some hundred programs are started: without bytecode each would compile gputop anew, two thirds of its time.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # What is started in the background of a script ignores Ctrl+C, and so would all programs that tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # What whoever runs the tests has chosen for a terminal of their own is none of the tests' business.
    for name in ("COLORFGBG", "COLORTERM", "COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR"):
        os.environ.pop(name, None)
    os.environ["TERM"] = "xterm-256color"
    # A mark reaches every recorder and screen of a user: those of another worker's tests listen elsewhere.
    config.stash[OWN] = [tempfile.mkdtemp(prefix="gputop-run-")]
    os.environ["XDG_RUNTIME_DIR"] = config.stash[OWN][0]
    # Workers share it; a run within a test, perhaps of a changed copy of the tree, has its own.
    if not hasattr(config, "workerinput"):
        os.environ[KEPT_IN] = tempfile.mkdtemp(prefix="gputop-kept-")
        config.stash[OWN].append(os.environ[KEPT_IN])


def pytest_unconfigure(config: pytest.Config) -> None:
    for directory in config.stash.get(OWN, []):
        shutil.rmtree(directory, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Let xdist, where it is there and nothing else was asked for, run as many tests at once as there are cores."""
    option = config.option
    if not config.pluginmanager.hasplugin("xdist") or hasattr(config, "workerinput"):
        return
    if option.numprocesses is None:
        option.numprocesses = "auto"
    if option.dist == "no":
        option.dist = "worksteal"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """What ``-n auto`` means: a worker a core that this process may use, and one for those that wait for a program.

    xdist itself counts the machine's cores, also where a container or taskset lends two of them.
    """
    return min(len(os.sched_getaffinity(0)), MOST_CORES) + 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let every worker begin to import at another file, so that in a fresh checkout each is compiled by one of them.

    All of them compiling everything, assertions rewritten, takes 20 s of CPU more.
    """
    worker, tests = os.environ.get("PYTEST_XDIST_WORKER"), Path(__file__).parent
    if worker is None or [Path(argument).resolve() for argument in session.config.args] != [tests]:
        return
    names = sorted(
        ".".join(path.relative_to(tests).with_suffix("").parts) for path in tests.rglob("test_*.py")
    )
    first = (
        int(worker.removeprefix("gw")) * len(names) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    )
    for name in names[first:] + names[:first]:
        # What is wrong with a file, or why it is skipped, is told when pytest itself comes to it.
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(f"tests.{name}")


def pytest_collection_finish() -> None:
    """Spare the collector what lives as long as the run: to look through all tests and modules again and again takes
    an eighth of the CPU time. The whole programs that tests start are as a user starts them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the longest tests begin first."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all worker processes of this run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own


def _compiled(run_dir: Path, name: str, library: str, build: Callable[[Path], object]) -> Path:
    """The directory of libraries that the worker which comes first compiles for all."""
    if shutil.which("cc") is None:
        if os.environ.get("GPUTOP_TEST_EVERYTHING"):
            pytest.fail("cc is missing, and these tests were asked not to be skipped")
        pytest.skip("stand-in libraries need a C compiler (cc)")
    directory = run_dir / name
    with (run_dir / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / library).exists():
            directory.mkdir(exist_ok=True)
            build(directory)
    return directory


@pytest.fixture(scope="session")
def nvml_dir(run_dir: Path) -> Path:
    """The directory that holds the compiled ``libnvidia-ml.so.1``."""
    return _compiled(run_dir, "nvml", LIBRARY, build)


@pytest.fixture(scope="session")
def nvperf_dir(run_dir: Path) -> Path:
    """The directory that holds the compiled stand-in performance libraries."""
    return _compiled(run_dir, "nvperf", "libnvperf_target.so", nvperf.build)


@pytest.fixture
def counters(nvperf_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> nvperf.Counters:
    """What the stand-in performance libraries answer to this process and its children."""
    scripted = nvperf.Counters(nvperf_dir, tmp_path)
    monkeypatch.setenv("NVPERF_SCENARIO", str(scripted.path))
    return scripted


@pytest.fixture
def nvml_scenario(nvml_dir: Path, tmp_path: Path) -> Callable[..., Scenario]:
    """Makes scenarios: ``nvml_scenario(gpus=8, model="NVIDIA A100-SXM4-80GB")``, to be changed and then written."""

    def make(gpus: int = 1, model: str = "NVIDIA H100 80GB HBM3") -> Scenario:
        return Scenario(tmp_path, nvml_dir, gpus, model)

    return make
