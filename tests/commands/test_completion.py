"""What is made from the parser: shells' completions and the manual page know every command and option."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.commands.argument_parser import COMMON
from gputop.commands.command_line import whole
from gputop.commands.completion import SHELLS
from gputop.output.man_page import man_page
from gputop.paint.theme import THEME_NAMES
from gputop.sources.simulation.scenarios import SCENARIOS


def _commands() -> dict[str, argparse.ArgumentParser]:
    (choices,) = (a.choices for a in whole()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(choices)


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_a_script_with_all_commands(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in _commands())
    assert "colour-blind" in script or shell == "tcsh"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["di"], {"diagnose"}),
        (["--them"], {"--theme"}),
        (["--theme", ""], set(THEME_NAMES)),
        (["demo", "small"], {name for name in SCENARIOS if name.startswith("small")}),
        (["config", "--ch"], {"--check"}),
        (["completion", "z"], {"zsh"}),
        (["help", "verd"], {"verdicts"}),
    ],
    ids=lambda value: " ".join(sorted(value)) if isinstance(value, set) else " ".join(value),
)
def test_bash_completes(words: list[str], wanted: set[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main(["completion", "bash"])
    script = tmp_path / "gputop"
    script.write_text(capsys.readouterr().out)
    line = " ".join(f"'{word}'" for word in ["gputop", *words])
    program = (
        f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; "
        'function=$(complete -p gputop | sed "s/.*-F \\([^ ]*\\) .*/\\1/"); '
        f"$function gputop '{words[-1]}' '{['gputop', *words][-2]}'; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False, timeout=20)
    assert set(done.stdout.split()) == wanted, done.stderr


def test_completion_needs_no_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    for shell in SHELLS:
        assert main(["completion", shell]) == 0
        assert "gputop" in capsys.readouterr().out


def test_the_manual_names_every_command_and_every_option() -> None:
    page = man_page(whole(), COMMON).replace(r"\-", "-")
    for name, command in _commands().items():
        assert re.search(rf"^\.SS {name}\b", page, re.MULTILINE)
        for action in command._actions:
            for option in action.option_strings:
                assert rf"\fB{option}\fR" in page


def test_options_of_every_command_are_described_once() -> None:
    page = man_page(whole(), COMMON).replace(r"\-", "-")
    assert page.count(r"\fB--dcgm-url\fR") == 1
    assert page.count(r"\fB--check\fR") == 1


def test_the_manual_is_roff_without_accidental_requests(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--man"])
    assert ended.value.code == 0
    page = capsys.readouterr().out
    assert page.startswith(".TH GPUTOP 1 ")
    assert {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))} == {
        ".TH", ".SH", ".SS", ".TP", ".B",
    }  # fmt: skip
    assert [line for line in page.splitlines() if line.startswith(".SH")][:4] == [
        ".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH OPTIONS",
    ]  # fmt: skip
    assert "-" not in re.sub(r"\\-", "", page.split(".SH COMMANDS")[1])


def test_text_that_looks_like_a_request_is_text() -> None:
    odd = argparse.ArgumentParser(prog="odd", description="d", epilog=".SH no\n'so \\ back-slash …")
    page = man_page(odd, COMMON)
    assert "\\&.SH no\n\\&'so \\e back\\-slash \\[u2026]" in page
    assert page.isascii()
