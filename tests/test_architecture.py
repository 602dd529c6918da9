"""The arrows point down: the contracts hold, and the commands without a screen never load one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gputop.commands.needs import Needs
from gputop.commands.registry import COMMANDS, LIVE, module_of

ROOT = Path(__file__).parent.parent
HEADLESS = ["model", "sources.local", "sources.simulation.simulated", "sources.recorded", "diagnosis.engine", "monitor"]
HEADLESS += ["recording.reader", "recording.writer", "paint.main_screen", "paint.help", "output.svg", "output.table"]
HEADLESS += ["output.data", "commands.once", "commands.screenshot", "commands.doctor", "commands.diagnose", "config"]


@pytest.mark.parametrize("module", HEADLESS)
def test_textual_is_not_imported_outside_the_screen(module: str) -> None:
    code = (
        f"import sys, gputop.{module}\n"
        "loaded = sorted({name.partition('.')[0] for name in sys.modules} & {'textual', 'rich'})\n"
        "assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_command_line_imports_the_standard_library_only() -> None:
    code = (
        "import sys, gputop.cli\n"
        "ours = {name for name in sys.modules if name.startswith('gputop.')}\n"
        "ours -= {f'gputop.{name}' for name in ('cli', 'commands', 'commands.registry', 'output')}\n"
        "ours -= {'gputop.output.messages', 'gputop.output.streams'}\n"
        "foreign = {'msgspec', 'pynvml', 'platformdirs', 'textual', 'rich'} & set(sys.modules)\n"
        "assert not ours and not foreign, (ours, foreign)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_command_is_listed_once_and_says_in_its_own_file_what_it_needs() -> None:
    files = {path.stem for path in (ROOT / "gputop" / "commands").glob("*.py")}
    for name in (*COMMANDS, LIVE):
        module = module_of(name)
        assert module.__name__.rpartition(".")[2] in files
        assert isinstance(module.NEEDS, Needs)
        assert callable(module.arguments) and callable(module.run)
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "gputop" / "commands").glob("*.py")}
    commands = {path.stem for path, text in texts.items() if "\nNEEDS = " in text}
    assert commands == {name.replace("-", "_") for name in (*COMMANDS, LIVE)}


def test_what_is_to_be_installed_is_said_in_one_place() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "gputop").rglob("*.py")}
    said = {path.name for path, text in texts.items() if "pip install" in text or "gputop-tui" in text}
    assert said == {"extras.py"}


def test_the_screen_leaves_openssl_out_and_whoever_needs_it_gets_it() -> None:
    code = (
        "import sys, threading\n"
        "from gputop.commands.live import _import_asyncio_without_tls\n"
        "_import_asyncio_without_tls()\n"
        "from gputop.tui.app import GputopApp\n"
        "assert 'asyncio' in sys.modules and not {'ssl', '_ssl', '_hashlib'} & set(sys.modules)\n"
        "from http.client import HTTPSConnection\n"
        "assert 'ssl' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
