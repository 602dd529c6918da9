"""The rooms of the package: what lies where, and that the commands without a screen never load one."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.command_line.registry import (
    COMMANDS,
    COMMANDS_AND_PARTS,
    LIVE,
    PURPOSES,
    USUAL,
    Needs,
    module_of,
)
from gputop.model import feature_table
from tests.nvml.stand_in import Scenario

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "gputop"


def _run(code: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.nvml
@pytest.mark.parametrize(
    "command",
    [["record", "--for", "1s"], ["run", "--", "true"], ["export", "--once"]],
    ids=lambda command: command[0],
)
def test_a_command_without_a_screen_never_loads_one_while_it_runs(
    command: list[str], nvml_scenario: Callable[..., Scenario], tmp_path: Path
) -> None:
    scenario = nvml_scenario()
    scenario.write()
    arguments = (
        [*command, "-o", str(tmp_path / "r.jsonl.gz")] if command[0] == "record" else command
    )
    _run(
        "import sys\n"
        "from gputop.cli import main\n"
        f"assert main({arguments!r}) == 0\n"
        "never = {'textual', 'rich', 'asyncio', 'inspect', 'typing_extensions'}\n"
        "loaded = {name.partition('.')[0] for name in sys.modules} & never\n"
        "assert not loaded, loaded",
        **scenario.environment(),
    )


def test_the_command_line_imports_the_standard_library_only_and_a_command_no_other() -> None:
    code = (
        "import sys, gputop.cli\n"
        "ours = {name for name in sys.modules if name.startswith('gputop.')}\n"
        "ours -= {'gputop.cli', 'gputop.command_line', 'gputop.model'}\n"
        "ours -= {f'gputop.command_line.{name}' for name in ('interrupt', 'registry')}\n"
        "ours -= {f'gputop.model.{name}' for name in ('feature_table', 'text_table')}\n"
        "ours -= {'gputop.output', 'gputop.output.messages', 'gputop.output.messages'}\n"
        "foreign = {'msgspec', 'pynvml', 'psutil', 'textual', 'rich'} & set(sys.modules)\n"
        "assert not ours and not foreign, (ours, foreign)\n"
        "gputop.cli._parsed(['mark', 'text', '--theme', 'dark'])\n"
        "others = {'gputop.command_line.screen', 'gputop.commands.once', 'pynvml', 'psutil'} & set(sys.modules)\n"
        "assert not others, others"
    )
    _run(code)


def test_every_command_is_in_the_table_once_and_says_in_its_own_file_what_it_needs() -> None:
    assert [*COMMANDS] == sorted(
        COMMANDS, key=lambda name: (PURPOSES.index(COMMANDS[name].purpose), name)
    )
    modules = [module_of(name) for name in (*COMMANDS_AND_PARTS, LIVE)]
    for module in modules:
        assert isinstance(getattr(module, "NEEDS", USUAL), Needs)
        assert callable(module.run) and (
            module.__name__.endswith(".screen") or callable(module.arguments)
        )
    files = {
        path
        for path in PACKAGE.rglob("*.py")
        if "\ndef run(args: argparse.Namespace, settings: Settings) -> int:"
        in path.read_text(encoding="utf-8")
    }
    assert files == {Path(module.__file__ or "") for module in modules}


def test_every_line_of_the_features_table_names_something_that_is_there() -> None:
    folders = {path.parent.name for path in (PACKAGE / "features").glob("*/__init__.py")}
    assert {row.module.split(".")[1] for row in feature_table.FEATURE_COMMANDS.values()} == folders
    paths = [
        path
        for value in vars(feature_table).values()
        for path in re.findall(r"features[\w.]+:\w+", str(value))
    ]
    assert len(paths) > 6
    for path in paths:
        assert feature_table.resolve(path) is not None, path


def test_what_is_to_be_installed_is_said_in_one_place() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "gputop").rglob("*.py")}
    said = {
        path.name for path, text in texts.items() if "pip install" in text or "gputop-tui" in text
    }
    assert said == {"extras.py"}


def _imports(path: Path) -> set[str]:
    """The modules that a file names in its imports, wherever they stand in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module)
    return names


def test_neither_sources_nor_what_runs_them_without_a_loop_import_asyncio() -> None:
    """It would cost each command that reads once 44 ms of CPU and 6 MiB."""
    folders = ("sources", "session", "model", "api", "recording")
    files = [path for folder in folders for path in (PACKAGE / folder).rglob("*.py")]
    for path in [*files, PACKAGE / "system/awaited.py", PACKAGE / "system/worker.py"]:
        names = {name.partition(".")[0] for name in _imports(path)}
        assert not names & {"asyncio", "anyio"}, path.relative_to(ROOT)


DEFAULT_EXECUTOR = re.compile(
    r"\bto_thread\(|\brun_in_executor\(|\brun_worker\([^)]*\bthread\s*=\s*True|@work\([^)]*\bthread\s*=\s*True"
)


def test_nobody_uses_the_default_executor() -> None:
    """Its threads are no daemons: a driver that hangs in one would hold the program's exit for ever."""
    for path in sorted(PACKAGE.rglob("*.py")):
        found = DEFAULT_EXECUTOR.search(path.read_text(encoding="utf-8"))
        assert found is None, (path.relative_to(ROOT), found)


def test_psutil_is_imported_by_the_pollers_thread_after_the_first_picture() -> None:
    """Its import takes 13 to 44 ms of CPU, and its folder belongs to the program that gputop runs in."""
    _run(
        "import sys, gputop\n"
        "from gputop.sources.local import LocalSource\n"
        "from gputop.sources.pollers.process import ProcessPoller\n"
        "from gputop.sources.selection import MachineOptions\n"
        "source = LocalSource(MachineOptions())\n"
        "poller = source._poller.processes\n"
        "poller.read()\n"
        "assert 'psutil' not in sys.modules\n"
        "poller.reads_host = True\n"
        "host = poller.read().host\n"
        "assert host.mem_total_bytes and sys.modules['psutil'].PROCFS_PATH == '/proc'\n"
    )
    for path in sorted(PACKAGE.rglob("*.py")):
        assert not re.search(r"PROCFS_PATH\s*=", path.read_text(encoding="utf-8")), path


def test_a_command_that_reads_once_and_a_recording_never_import_asyncio(tmp_path: Path) -> None:
    _run(
        "import sys\n"
        "from gputop.session.arrivals import Arrivals\n"
        "from gputop.sources.local import LocalSource\n"
        "from gputop.sources.selection import MachineOptions\n"
        "from gputop.sources.simulation.simulated import SimulatedSource\n"
        "source = SimulatedSource(interval_s=0.05)\n"
        "arrivals = Arrivals(source)\n"
        "arrivals.start()\n"
        "while not list(arrivals.wait(1.0)): pass\n"
        "source.close()\n"
        "LocalSource(MachineOptions()).close()\n"
        "assert 'asyncio' not in sys.modules\n"
    )
