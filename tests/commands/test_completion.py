"""The shells' completion scripts know every command and option."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.command_line.completion import SHELLS
from gputop.command_line.parser import whole
from gputop.paint.theme import THEME_NAMES
from gputop.sources.simulation.scenarios import SCENARIOS


def _commands() -> dict[str, argparse.ArgumentParser]:
    (choices,) = (a.choices for a in whole()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(choices)


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_gets_a_script_with_all_commands(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in _commands())
    assert "colour-blind" in script or shell == "tcsh"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["di"], {"diagnose"}), (["--them"], {"--theme"}), (["--theme", ""], set(THEME_NAMES)),
        (["demo", "small"], {name for name in SCENARIOS if name.startswith("small")}),
        (["config", "--ch"], {"--check"}), (["completion", "z"], {"zsh"}), (["help", "verd"], {"verdicts"}),
    ],
    ids=lambda value: " ".join(sorted(value)) if isinstance(value, set) else " ".join(value),
)  # fmt: skip
def test_bash_completes(
    words: list[str], wanted: set[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    main(["completion", "bash"])
    script = tmp_path / "gputop"
    script.write_text(capsys.readouterr().out)
    line = " ".join(f"'{word}'" for word in ["gputop", *words])
    program = (
        f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; "
        'function=$(complete -p gputop | sed "s/.*-F \\([^ ]*\\) .*/\\1/"); '
        f"$function gputop '{words[-1]}' '{['gputop', *words][-2]}'; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(
        ["bash", "-c", program], capture_output=True, text=True, check=False, timeout=20
    )
    assert set(done.stdout.split()) == wanted, done.stderr
