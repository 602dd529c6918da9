"""What the program touches: no network, no file that was not asked for, no shell, no evaluated text."""

from __future__ import annotations

import ast
import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.nvml.stand_in import Process, Scenario
from tests.support.pty_program import ROOT, PtyProgram

MakeScenario = Callable[..., Scenario]

RECORDER = """
import atexit, os, sys
log = os.open(os.environ["SOCKET_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
def note(event, arguments):
    if event.startswith("socket.") and event not in ("socket.__new__", "socket.gethostname"):
        told = arguments if event == "socket.getaddrinfo" else arguments[1:]
        os.write(log, (event + " " + repr(told) + "\\n").encode())
sys.addaudithook(note)
"""
"""Python's own audit events: every connect, sendto, bind and look-up of a name, whichever module asks for it."""

THE_EXPORTER_S_PLACE = ("('localhost', 9400", "('127.0.0.1', 9400)", "('::1', 9400")
"""Where a GPU without GPM is looked up once: the one address that is asked without being given."""

PATIENT = """
import sys
from gputop.__main__ import program
from gputop.sources import local
local.SM_READER_WAIT_S = 60.0
sys.exit(program())
"""
"""gputop itself, but for how long `once` waits for an exporter: on a crowded machine it may end before it has asked."""

NO_EXPORTER_RUNS = """
import sys
from gputop.__main__ import program
from gputop.features.export import doctor_rows
doctor_rows._running = lambda proc: iter(())
sys.exit(program())
"""
"""gputop itself on a machine on which nobody else exports: ``doctor`` asks whichever exporter it finds running."""

OUR_EXPORTER_S_PLACE = "('127.0.0.1', 9401"
"""Where ``doctor`` alone looks whether this node is exported."""


class Place:
    """A home, a temporary folder, XDG folders and a working directory of one's own, and a record of all sockets."""

    def __init__(self, root: Path, scenario: Scenario) -> None:
        self.root = root / "place"
        for name in ("home", "tmp", "run", "config", "state", "cache", "data", "work", "audit"):
            (self.root / name).mkdir(parents=True)
        (self.root / "run").chmod(0o700)
        (self.root / "audit" / "sitecustomize.py").write_text(RECORDER)
        self.work = self.root / "work"
        self._log = root / "sockets.log"
        scenario.write()
        self.environment = {
            **scenario.environment(),
            "PYTHONPATH": f"{self.root / 'audit'}:{ROOT}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "SOCKET_LOG": str(self._log),
            "HOME": str(self.root / "home"),
            "TMPDIR": str(self.root / "tmp"),
            "XDG_RUNTIME_DIR": str(self.root / "run"),
            "XDG_CONFIG_HOME": str(self.root / "config"),
            "XDG_STATE_HOME": str(self.root / "state"),
            "XDG_CACHE_HOME": str(self.root / "cache"),
            "XDG_DATA_HOME": str(self.root / "data"),
        }
        self.before = self.files()

    def run(self, *arguments: str, status: int = 0, program: Sequence[str] = ("-m", "gputop")) -> None:
        done = subprocess.run(
            [sys.executable, *program, *arguments],
            env=self.environment, cwd=self.work, capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stderr

    def screen(self, *arguments: str, ready: str) -> None:
        """The live screen until its first frame and a change of screens, then out."""
        before = os.getcwd()
        os.chdir(self.work)
        try:
            with PtyProgram(*arguments, env=self.environment) as program:
                program.read_until_started(ready)
                program.press("?")
                program.read_until("keys")
                program.press("\x03")
                program.end()
                assert program.status == 0
        finally:
            os.chdir(before)

    def sockets(self) -> list[str]:
        """Every use of a socket but the marks' own, which have no network behind them."""
        lines = self._log.read_text().splitlines()
        return [line for line in lines if not line.startswith("socket.bind ('" + str(self.root / "run"))]

    def files(self) -> dict[str, int]:
        """Everything below the place, with its mode."""
        return {str(path.relative_to(self.root)): path.lstat().st_mode for path in self.root.rglob("*")}

    def written(self) -> set[str]:
        return {name for name in self.files() if name not in self.before}


@pytest.fixture
def place(nvml_scenario: MakeScenario) -> Iterator[Place]:
    scenario = nvml_scenario(1)
    scenario.gpus[0].processes.append(Process(os.getpid(), 1 << 30))
    # A short path: the address of a Unix socket has 107 bytes, and a worker's own folder takes most of them.
    with tempfile.TemporaryDirectory(prefix="gputop-") as root:
        yield Place(Path(root), scenario)


@pytest.mark.nvml
def test_nothing_is_sent_and_nothing_is_written_unasked(place: Place) -> None:
    place.run("once")
    place.screen(ready="H100")
    assert place.sockets() == []
    assert place.written() <= {"run/gputop"}


@pytest.mark.slow
@pytest.mark.nvml
def test_no_other_command_sends_or_writes_anything_unasked_either(place: Place) -> None:
    place.run("once", "--json")
    place.run("diagnose", "--for", "1s")
    place.run("demo", "--list")
    place.run("config")
    place.screen("demo", "small_kernels", ready="NOT WORKING")
    assert place.sockets() == []
    assert place.written() <= {"run/gputop"}


@pytest.mark.nvml
def test_the_doctor_and_a_gpu_without_gpm_look_at_one_place_of_this_machine_only(
    place: Place, nvml_scenario: MakeScenario
) -> None:
    nvml_scenario(1, "NVIDIA A100-SXM4-80GB").write()
    place.run("once", "--wait", "1m", program=("-c", PATIENT))
    asked = place.sockets()
    assert any(line.startswith("socket.connect") for line in asked)
    assert [line for line in asked if not any(where in line for where in THE_EXPORTER_S_PLACE)] == []
    place.run("doctor", "--wait", "1m", program=("-c", NO_EXPORTER_RUNS))
    places = (*THE_EXPORTER_S_PLACE, OUR_EXPORTER_S_PLACE)
    assert [line for line in place.sockets() if not any(where in line for where in places)] == []
    assert place.written() == set()


@pytest.mark.slow
@pytest.mark.nvml
def test_what_was_asked_for_is_for_its_owner_alone(place: Place) -> None:
    place.run("record", "--for", "1s", "-o", "r.gputop.jsonl.gz")
    place.run("config", "--init")
    pictures = [f"shot{suffix}" for suffix in (".svg", ".txt", ".ans")]
    for picture in pictures:
        place.run("screenshot", "r.gputop.jsonl.gz", "-o", picture)
    place.run("run", "--report", "report.md", "--", "true")
    assert place.sockets() == []
    asked_for = {f"work/{name}" for name in ("r.gputop.jsonl.gz", "report.md", *pictures)}
    written = place.written() - {"run/gputop", "config/gputop"}
    assert written == asked_for | {"config/gputop/config.toml"}
    modes = {name: stat.S_IMODE(mode) for name, mode in place.files().items()}
    assert {modes[name] for name in asked_for} == {0o600}
    assert modes["config/gputop/config.toml"] & 0o077 == 0
    assert modes["run/gputop"] == 0o700


@pytest.mark.nvml
def test_it_works_where_there_is_no_network_at_all(nvml_scenario: MakeScenario, tmp_path: Path) -> None:
    scenario = nvml_scenario(1)
    scenario.write()
    alone = ["unshare", "--user", "--map-root-user", "--net"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode != 0:
        alone = []  # a kernel that lends no namespaces; the audit above holds there as well
    done = subprocess.run(
        [*alone, sys.executable, "-m", "gputop", "once"],
        env={**scenario.environment(), "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "SM  25" in done.stdout


EVALUATING = {"eval", "exec", "compile", "__import__"}
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
UNPACKING = {"pickle", "marshal", "shelve", "dill"}
PLAIN = "features/memory_snapshot/plain_pickle.py"
"""Reads pickles and refuses every name in them: its own tests plant what would run."""


def _forbidden(tree: ast.AST) -> Iterator[str]:
    """Calls and imports that could run what somebody else wrote."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in node.names} | {getattr(node, "module", None) or ""}
            if names & UNPACKING:
                yield ast.unparse(node)
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            in_shell = any(k.arg == "shell" for k in node.keywords) and called.startswith(("subprocess.", "Popen"))
            if called in EVALUATING or called in SHELLS or in_shell:
                yield ast.unparse(node)


def test_no_shell_and_no_evaluated_text() -> None:
    words = {name.rpartition(".")[2] for name in EVALUATING | SHELLS | UNPACKING} | {"shell"}
    # Nothing of it can be called without being named, and most files name none of it.
    named = re.compile("|".join(map(re.escape, sorted(words))))
    for path in (ROOT / "gputop").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        allowed = ["import pickle"] if path == ROOT / "gputop" / PLAIN else []
        assert not named.search(text) or list(_forbidden(ast.parse(text))) == allowed, path


@pytest.mark.parametrize(
    "text",
    ["eval('1')", "os.system('ls')", "subprocess.run('ls', shell=True)", "import pickle", "from marshal import loads"],
)
def test_what_is_forbidden_would_be_found(text: str) -> None:
    assert list(_forbidden(ast.parse(text))) == [text]


def test_every_dependency_is_bounded_on_both_sides() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    before_tools = text.partition("[tool.")[0]
    requirements = re.findall(r'"([A-Za-z][\w.-]*)((?:>=|<|==|~=)[^";]*)', before_tools)
    assert {name for name, _ in requirements} >= {"textual", "nvidia-ml-py", "msgspec", "psutil", "tomli"}
    for name, bounds in requirements:
        assert re.fullmatch(r">=[\d.]+,<[\d.]+|==[\d.!]+", bounds), (name, bounds)


def test_every_dependency_is_one_that_the_program_imports() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    declared = re.findall(r'"([\w-]+)>=', text.partition("dependencies = [")[2].partition("]")[0])
    modules = {"nvidia-ml-py": "pynvml"}
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "gputop").rglob("*.py"))
    for name in declared:
        assert re.search(rf"^\s*(?:from|import) {modules.get(name, name)}\b", sources, re.MULTILINE), name
    assert len(declared) >= 5
