"""The rooms of the package: what lies where, and that the commands without a screen never load one."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from textual.app import App
from textual.command import CommandPalette
from textual.screen import ModalScreen
from textual.widgets import Input, Label

from gputop.commands.needs import Needs
from gputop.commands.registry import COMMANDS, LIVE, commands_and_parts, groups, module_of
from tests.nvml.stand_in import Scenario

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "gputop"
ROOT_FILES = {"__init__.py", "__init__.pyi", "__main__.py", "cli.py", "monitor.py", "py.typed"}
"""What may lie beside the rooms: everything else has one."""
DRIVERS = ("terminal/driver.py", "served_driver.py")
"""A driver is itself one of Textual's inner parts, and cannot be written without others of them."""


def test_the_root_of_the_package_holds_the_way_in_and_nothing_else() -> None:
    files = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    assert files - ROOT_FILES == set()


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
def test_nothing_that_reads_imports_what_textual_is_imported_without() -> None:
    _run(
        "import pkgutil, sys\n"
        "from importlib import import_module\n"
        "from gputop.commands.left_out import NOT_FOR_TEXTUAL, import_msgspec\n"
        "import_msgspec()\n"
        "import gputop.sources, psutil\n"
        "for module in pkgutil.walk_packages(gputop.sources.__path__, 'gputop.sources.'):\n"
        "    import_module(module.name)\n"
        "    assert not {*NOT_FOR_TEXTUAL} & set(sys.modules), module.name"
    )


@pytest.mark.slow
def test_nothing_outside_the_screen_imports_textual() -> None:
    _run(
        "import pkgutil, sys\n"
        "from importlib import import_module\n"
        "import gputop\n"
        "for module in pkgutil.walk_packages(gputop.__path__, 'gputop.'):\n"
        "    if module.name.startswith(('gputop.tui', 'gputop.integrations.')) or module.name.endswith('__main__'):\n"
        "        continue\n"
        "    import_module(module.name)\n"
        "    loaded = {name.partition('.')[0] for name in sys.modules} & {'textual', 'rich'}\n"
        "    assert not loaded, (module.name, loaded)"
    )


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
    arguments = [*command, "-o", str(tmp_path / "r.jsonl.gz")] if command[0] == "record" else command
    _run(
        "import sys\n"
        "from gputop.cli import main\n"
        f"assert main({arguments!r}) == 0\n"
        "loaded = {name.partition('.')[0] for name in sys.modules} & {'textual', 'rich', 'asyncio'}\n"
        "assert not loaded, loaded",
        **scenario.environment(),
    )


@pytest.mark.slow
def test_textual_s_private_parts_are_touched_on_one_page_and_in_its_drivers() -> None:
    private = set().union(*map(_private, (App, ModalScreen, CommandPalette, Input, Label)))
    touched = {}
    for path in sorted((PACKAGE / "tui").rglob("*.py")):
        place = str(path.relative_to(PACKAGE / "tui"))
        if place not in ("textual_internals.py", "screens/palette.py", *DRIVERS):
            touched[place] = set(_private_names(path)) & private
    assert {place: names for place, names in touched.items() if names} == {}


def _private(part: type) -> set[str]:
    """The private attributes of a class of Textual's, with those that its methods set."""
    names: set[str] = set()
    for base in part.__mro__:
        if base.__module__.startswith("textual"):
            names |= {*vars(base), *re.findall(r"self\.(_[a-z]\w*)", inspect.getsource(base))}
    return {name for name in names if re.match(r"_[a-z]", name)}


def _private_names(path: Path) -> Iterator[str]:
    """Private names that a file reads, sets or defines on an object; modules of Textual's under their own name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert "textual" not in (node.module or "") or "._" not in (node.module or ""), (path, node.module)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "os"):
            yield node.attr


def test_the_command_line_imports_the_standard_library_only() -> None:
    code = (
        "import sys, gputop.cli\n"
        "ours = {name for name in sys.modules if name.startswith('gputop.')}\n"
        "ours -= {'gputop.cli', 'gputop.commands'}\n"
        "ours -= {f'gputop.commands.{name}' for name in ('interrupt', 'left_out', 'registry')}\n"
        "ours -= {'gputop.output', 'gputop.output.messages', 'gputop.output.messages'}\n"
        "foreign = {'msgspec', 'pynvml', 'psutil', 'textual', 'rich'} & set(sys.modules)\n"
        "assert not ours and not foreign, (ours, foreign)"
    )
    _run(code)


def test_every_command_is_in_the_table_once_and_says_in_its_own_file_what_it_needs() -> None:
    assert [*COMMANDS] == [name for group in groups().values() for name in group], "by purpose"
    modules = [module_of(name) for name in (*commands_and_parts(), LIVE)]
    for module in modules:
        assert isinstance(module.NEEDS, Needs)
        assert callable(module.run) and (module.__name__.endswith(".live") or callable(module.arguments))
    files = {path for path in PACKAGE.rglob("*.py") if "\nNEEDS = " in path.read_text(encoding="utf-8")}
    assert files == {Path(module.__file__ or "") for module in modules}


def test_what_is_to_be_installed_is_said_in_one_place() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "gputop").rglob("*.py")}
    said = {path.name for path, text in texts.items() if "pip install" in text or "gputop-tui" in text}
    assert said == {"extras.py"}


def test_what_needs_a_part_at_once_that_is_left_out_gets_the_whole(tmp_path: Path) -> None:
    (tmp_path / "eager.py").write_text("import difflib\nNAMES = difflib.get_close_matches('a', ['a'])\n")
    code = (
        f"import sys; sys.path.append({str(tmp_path)!r})\n"
        "from gputop.commands.left_out import _import_with, blank\n"
        "_import_with('eager', blank('difflib'))\n"
        "import eager\n"
        "assert eager.NAMES == ['a']"
    )
    _run(code)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 lacks what msgspec takes from typing_extensions")
def test_a_start_leaves_out_what_nothing_uses_and_whoever_needs_it_gets_it() -> None:
    code = (
        "from __future__ import annotations\n"
        "import sys\n"
        "from gputop.commands.left_out import import_msgspec, import_pynvml\n"
        "import_msgspec(), import_pynvml()\n"
        "left_out = {'uuid', 'platform', 'msgspec.inspect', 'inspect', 'ctypes.util', 'subprocess'}\n"
        "assert not left_out & set(sys.modules), left_out & set(sys.modules)\n"
        "from msgspec import Struct, convert, json\n"
        "class Row(Struct):\n"
        "    names: dict[str, float | None]\n"
        "row = Row({'a': 1.5, 'b': None})\n"
        "assert json.decode(json.encode(row), type=Row) == convert({'names': {'a': 1.5, 'b': None}}, Row) == row\n"
        "assert json.schema(Row)['$defs']['Row']['required'] == ['names']\n"
        "import ctypes.util, uuid\n"
        "assert uuid.UUID(int=3).int == 3 and ctypes.util.find_library('c')"
    )
    _run(code)


def test_the_screen_leaves_out_what_nothing_uses_and_whoever_needs_it_gets_it() -> None:
    code = (
        "import sys, threading\n"
        "early = set(sys.modules)\n"
        "from gputop.commands.left_out import NOT_FOR_TEXTUAL, import_asyncio, import_msgspec, import_textual\n"
        "import_msgspec(), import_asyncio(), import_textual()\n"
        "from gputop.tui.node_app import GputopApp\n"
        "left_out = {*NOT_FOR_TEXTUAL, 'ssl', '_hashlib', 'difflib', 'rich.box', 'urllib.parse'}\n"
        "late = set(sys.modules) - early\n"
        "by_msgspec = {'typing_extensions', 'uuid'}\n"
        "left_out = left_out | by_msgspec if sys.version_info >= (3, 11) else left_out - by_msgspec\n"
        "assert 'asyncio' in late and not left_out & late, left_out & late\n"
        "import asyncio\n"
        "from tests.support.fake_app import app_on\n"
        "async def comes_when_asked_for():\n"
        "    app, _ = app_on()\n"
        "    async with app.run_test() as pilot:\n"
        "        await pilot.press('f', *'python', 'enter')\n"
        "        assert app.view.filter.text == 'python', app.view.filter\n"
        "        await pilot.press('ctrl+p')\n"
        "        from textual.widgets import OptionList\n"
        "        for _ in range(500):\n"
        "            if any(offered.option_count > 5 for offered in app.screen.query(OptionList)):\n"
        "                return\n"
        "            await pilot.pause(0.02)\n"
        "        raise AssertionError('the palette offers nothing')\n"
        "asyncio.run(comes_when_asked_for())\n"
        "import inspect, logging, pathlib, subprocess\n"
        "assert inspect.getsource(inspect.getsource).startswith('def getsource(') and inspect.signature(len)\n"
        "from textual.css import tokenizer\n"
        "assert pathlib.Path('/a b').as_uri() == 'file:///a%20b'\n"
        "assert tokenizer.get_suggestion('colr', ['color']) == 'color' and tokenizer.Panel('a').renderable == 'a'\n"
        "assert logging.Formatter().formatException((KeyError, KeyError('a'), None)).endswith(\"KeyError: 'a'\")\n"
        "assert subprocess.run(['true'], capture_output=True, text=True).stdout == ''\n"
        "from http.client import HTTPSConnection\n"
        "assert 'ssl' in sys.modules\n"
        "import asyncio.sslproto, platformdirs, uuid\n"
        "from textual.widgets import Select\n"
        "assert platformdirs.user_downloads_path() and uuid.uuid4().hex and Select.from_values(['a'])\n"
    )
    _run(code)


def test_parsing_a_command_imports_no_other_command_and_no_translations() -> None:
    code = (
        "import sys; from gputop.cli import _parsed\n"
        "_parsed(['mark', 'text', '--theme', 'dark'])\n"
        "others = {'gputop.commands.live', 'gputop.commands.once', 'pynvml', 'gettext', 'locale'} & set(sys.modules)\n"
        "assert not others, others\n"
        "from argparse import ngettext\n"
        "assert [ngettext('one', 'many', count) for count in (1, 2)] == ['one', 'many']\n"
        "import gettext; assert gettext.NullTranslations"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
