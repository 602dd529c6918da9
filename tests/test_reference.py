"""The pages of ``gputop help TOPIC``: made of the program's tables, complete, and readable in a terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gputop.command_line.parser import command_parser, live_parser
from gputop.command_line.registry import COMMANDS, TOPICS, page_of
from gputop.config import Settings
from gputop.diagnosis.verdict.catalogue import badge_rows, verdict_rows
from gputop.model import metrics
from gputop.model.sm import SM_SOURCES
from gputop.output.document import page, section
from gputop.output.markdown_document import markdown
from gputop.output.plain_document import plain
from gputop.paint.keys import KEYS, REPLAY_KEYS
from gputop.paint.process_columns import COLUMNS

TABLES = (
    metrics.GPU_STATIC, metrics.GPU_METRICS, metrics.SM_PROVENANCE, metrics.GPU_STATE, metrics.HOST_METRICS,
    metrics.PROCESS_METRICS, metrics.PROCESS_STATIC,
)  # fmt: skip


def _named(topic: str) -> set[str]:
    """The first cells of a topic's tables, without backticks."""
    return {row[0].strip("`") for _, entries in page_of(topic).entries for row in entries.rows}


@pytest.mark.parametrize(
    ("topic", "names"),
    [
        ("keys", {key.shown for key in (*KEYS, *REPLAY_KEYS) if key.shown}),
        ("metrics", {key for table in TABLES for key in table}),
        ("verdicts", {row.id for row in (*verdict_rows(), *badge_rows())}),
        ("settings", set(Settings.__struct_fields__)),
        ("sources", set(SM_SOURCES)),
        ("filters", {"verdict", *COLUMNS}),
    ],
)
def test_a_topic_names_everything_of_its_table(topic: str, names: set[str]) -> None:
    assert names <= _named(topic)


def test_the_options_of_every_command_are_explained() -> None:
    explained = " ".join(_named("options"))
    for parser in (live_parser(), *map(command_parser, COMMANDS)):
        for action in parser._actions:
            if "-h" not in action.option_strings:
                assert all(option in explained for option in action.option_strings)


@pytest.mark.parametrize("width", [20, 80, 300])
@pytest.mark.parametrize("topic", TOPICS)
def test_a_page_keeps_to_the_terminal_and_loses_no_word(topic: str, width: int) -> None:
    shown = page_of(topic)
    text = plain(shown, width)
    broken = [line for line in text.splitlines() if not line.startswith("  gputop ")]
    assert max(map(len, broken)) <= max(40, min(width, 120)), "but for code, which is to be copied"
    flat = "".join(text.split())
    for _, entries in shown.entries:
        for row in entries.rows:
            assert "".join(row[1].replace("`", "").split()) in flat
    assert "`" not in text


def test_a_page_says_the_same_in_markdown_and_in_a_terminal() -> None:
    document = page(
        "Title",
        ("Say `a|b` and <no> *more* snake_case, 1 < 2.",),
        (
            section(
                "One",
                ("Text.",),
                ("name", "what"),
                (("`x`", "short"), ("a name too long to stand", "y")),
            ),
            section(
                "Two",
                (),
                ("name", "what", "unit", "by"),
                (("k", "it is", "s", "–"), ("l", "w " * 30, "m", "z")),
            ),
        ),
    )
    assert markdown(document, "maker") == (
        "# Title\n\n<!-- written by `maker`: change the table in the code, not this page -->\n\n"
        "Say `a|b` and \\<no> \\*more\\* snake_case, 1 < 2.\n\n## One\n\nText.\n\n"
        "| name | what |\n|---|---|\n| `x` | short |\n"
        "| a name too long to stand | y |\n\n## Two\n\n| name | what | unit | by |\n|---|---|---|---|\n"
        "| k | it is | s | – |\n| l | " + "w " * 30 + " | m | z |\n"
    )
    assert plain(document, 40).splitlines() == [
        "Title", "", "Say a|b and <no> *more* snake_case, 1 <", "2.", "", "One", "  Text.", "",
        "  x              short", "  a name too long to stand", "                 y", "", "Two",
        "  k  it is · unit: s", "  l  " + "w " * 17 + "w", "     " + "w " * 11 + "w", "     unit: m · by: z",
    ]  # fmt: skip


def test_help_needs_neither_the_tests_nor_a_screen_nor_a_configuration(tmp_path: Path) -> None:
    package = tmp_path / "gputop"
    package.symlink_to(Path(__file__).parent.parent / "gputop")
    code = (
        "import sys; from gputop.cli import main\n"
        "for topic in sys.argv[1:]: assert main(['help', topic, '--config', '/nonexistent']) == 0\n"
        "assert not {'textual', 'tests'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *TOPICS],
        cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert b"dataloader_cpu" in done.stdout
