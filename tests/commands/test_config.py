"""Settings from file, environment and flags: who wins, what is refused, what ``gputop config`` says, what is saved."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.command_line.screen import save
from gputop.commands.config import problems
from gputop.config import ConfigError, Settings, declared, load
from gputop.config.save import save_setting, with_setting


def _file(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_flags_win_over_the_environment_and_the_environment_over_the_file(tmp_path: Path) -> None:
    path = str(_file(tmp_path, "interval = 2\nspan = 300\ntheme = 'light'\n"))
    settings, warnings = load(
        path, {"GPUTOP_INTERVAL": "3", "GPUTOP_THEME": "mono"}, {"theme": "dark", "gpus": None}
    )
    assert (settings.interval, settings.span, settings.theme, settings.gpus) == (
        3.0,
        300.0,
        "dark",
        "",
    )
    assert not warnings


def test_lists_and_tables_come_from_the_file(tmp_path: Path) -> None:
    text = 'columns = ["pid", "cpu_pct", "command"]\n[keys]\nquit = "x"\n'
    settings, _ = load(str(_file(tmp_path, text)), {}, {})
    assert settings.columns == ("pid", "cpu_pct", "command")
    assert dict(settings.keys) == {"quit": "x"}
    assert load(None, {"GPUTOP_CONFIG": os.devnull, "GPUTOP_COLUMNS": "pid, user"}, {})[
        0
    ].columns == ("pid", "user")
    assert load(
        None, {"GPUTOP_CONFIG": os.devnull, "GPUTOP_KEYS": "x", "GPUTOP_FLEET": "x"}, {}
    ) == (Settings(), [])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("interval = true", "must be a number"), ("interval = 0.1", "from 0.25"), ("interval = 3601", "to 3,600"),
        ("span = 5", "from 10"), ("price = -1", "from 0"), ("price = 1000001", "from 0 to 1,000,000"),
        ("price = inf", "must be a number"), ("interval = nan", "must be a number"),
        ("theme = 'darc'", "did you mean dark"), ("bell = 'perhaps'", "true or false"), ("gpus = 3", "must be a text"),
        ("theme = 'pink'", "colour-blind"), ("key_preset = 'vim'", "gputop, nvitop, htop"),
        ("columns = ['pid', 'comand']", "did you mean command"), ("columns = ['pid', 'pid']", "twice"),
        ("columns = 3", "list of texts"), ("keys = 'q'", r"\[keys\]"),
        ("[keys]\nhelp = '?'\nquit = 3", r"\[keys\] quit must be a text such as \"q,ctrl\+c\", not 3$"),
    ],
)  # fmt: skip
def test_a_value_that_a_setting_cannot_take_is_refused_with_its_file(
    tmp_path: Path, text: str, says: str
) -> None:
    path = _file(tmp_path, f"# comment\n{text}\n")
    with pytest.raises(ConfigError, match=says) as caught:
        load(str(path), {}, {})
    assert str(path) in str(caught.value)
    (found,) = problems(path)
    assert found.startswith(f"{path}: ")


def test_every_problem_is_said_in_one_go(tmp_path: Path) -> None:
    text = (
        'theme = "pink"\nthme = "dark"\n\ninterval = 0\n[keys]\nqit = "x"\npause = "b"\nhelp = '
        '"b"\n'
    )
    path = _file(tmp_path, text)
    found = problems(path)
    assert len(found) == 5 and all(line.startswith(f"{path}: ") for line in found)
    assert "did you mean theme?" in found[1]
    assert "did you mean quit?" in found[3]
    assert "pause has it" in found[4]


def test_check_exits_2_on_a_problem_and_0_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "--check", "--config", str(_file(tmp_path, "theme = 'dark'\n"))]) == 0
    assert capsys.readouterr() == ("", "")
    assert (
        main(["config", "--check", "--config", str(_file(tmp_path, "theme = 'pink'\nbell = 2\n"))])
        == 2
    )
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 2
    assert main(["config", "--check", "--config", str(_file(tmp_path, "theme = = 1\n"))]) == 2
    assert "line 1" in capsys.readouterr().err


def test_init_writes_a_file_that_changes_nothing_and_never_overwrites(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new" / "config.toml"
    assert main(["config", "--init", "--config", str(path)]) == 0
    assert load(str(path), {}, {}) == (Settings(), [])
    written = path.read_text(encoding="utf-8")
    for name in declared():
        assert any(
            f"#{begin}" in written
            for begin in (f"{name} = ", f"[{name}]", f"[[{name}]]", f"[{name}.")
        ), name
    path.write_text("bell = true\n", encoding="utf-8")
    capsys.readouterr()
    assert main(["config", "--init", "--config", str(path)]) == 2
    assert "exists and was not changed" in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == "bell = true\n"


def test_path_and_the_settings_in_force_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _file(tmp_path, "theme = 'light'\n[keys]\nquit = 'x'\n")
    assert main(["config", "--path", "--config", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert main(["config", "--config", str(path), "--interval", "2"]) == 0
    printed = _file(tmp_path, capsys.readouterr().out)
    assert load(str(printed), {}, {}) == load(str(path), {}, {"interval": "2", "theme": "light"})


def test_every_setting_is_documented_where_it_is_declared() -> None:
    texts = [setting.description for setting in declared().values()]
    assert list(declared()) == list(Settings.__struct_fields__)
    assert all(text[0].isalpha() and text.endswith(".") for text in texts)


def test_every_setting_in_force_says_where_it_comes_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _file(tmp_path, "interval = 2\nspan = 300\nbell = true\n[keys]\nquit = 'x'\n")
    monkeypatch.setenv("GPUTOP_SPAN", "60")
    assert main(["-i", "3", "config", "--config", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    for wanted in ("interval = 3  # --interval", "span = 60  # GPUTOP_SPAN", f"bell = true  # {path}",
                   f"[keys]  # {path}", 'theme = "auto"  # default'):  # fmt: skip
        assert wanted in lines
    if sys.version_info >= (3, 11):
        import tomllib

        assert tomllib.loads("\n".join(lines))["keys"] == {"quit": "x"}, (
            "the output is a configuration file"
        )


LINE = 'theme = "light"'
FULL = (
    '# mine\ninterval = 2\ntheme = "dark"  # at night\n\nnote = """\ntheme = "x"\n[keys]\n"""\n'
    '[keys]\nquit = "q"\ntheme = "T"\n'
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"{LINE}\n"),
        ("interval = 2", f"interval = 2\n{LINE}\n"),
        ('[keys]\nquit = "q"\n', f'{LINE}\n[keys]\nquit = "q"\n'),
        ('#theme = "dark"\r\ninterval = 2\r\n', f'#theme = "dark"\r\ninterval = 2\r\n{LINE}\r\n'),
        (FULL, FULL.replace('theme = "dark"', LINE)),
        ('theme = [\n  "a", # one\n]\nb = 1\n', f"{LINE}\nb = 1\n"),
        ('theme = "a#b"', f"{LINE}\n"),
    ],
)
def test_one_statement_changes_and_every_other_byte_stays(before: str, after: str) -> None:
    assert with_setting(before, "theme", LINE + "\n") == after


def test_a_file_with_a_mistake_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("interval = \n")
    with pytest.raises(ConfigError, match="mistake"):
        save_setting(str(path), "theme", LINE)
    assert path.read_text() == "interval = \n"


def test_links_and_files_of_others_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, link = tmp_path / "config.toml", tmp_path / "link.toml"
    path.write_text("interval = 2\n")
    link.symlink_to(path)
    assert "is a link" in save(str(link), "theme", "light")
    monkeypatch.setattr(os, "geteuid", lambda: 4_711)
    assert "somebody else" in save(str(path), "theme", "light")
    assert path.read_text() == "interval = 2\n"


def test_a_file_keeps_its_mode_and_a_new_one_is_the_users_alone(tmp_path: Path) -> None:
    path, new = tmp_path / "config.toml", tmp_path / "deep" / "config.toml"
    path.write_text("interval = 2\n")
    path.chmod(0o644)
    assert save(str(path), "columns", ("pid", "command")) == f"columns saved in {path}"
    assert (
        path.read_text() == 'interval = 2\ncolumns = ["pid", "command"]\n'
        and path.stat().st_mode & 0o777 == 0o644
    )
    assert "saved" in save(str(new), "theme", "light")
    assert new.stat().st_mode & 0o777 == 0o600 and os.listdir(new.parent) == ["config.toml"]


# --- files that are too much ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("interval = " + "9" * 5000, r"digits \(line 3\)"), ("interval = " + "9_" * 3000 + "9", r"digits \(line 3\)"),
        ("gpus = " + "[" * 3000, r"within each other.*\(line 3\)"), ("gpus = " + "{a=" * 3000, r"\(line 3\)"),
        ("a." * 3000 + "a = 1", r"100 parts \(line 3\)"), ("['" + "'.'".join("a" * 3000) + "']", r"100 parts"),
        ("interval = " + "9" * 3000, "from 0.25 to 3,600 seconds, not a number of 3000 digits|a number, not a number"),
        ("interval = 0x" + "f" * 9000, "not a number of 10837 digits"), ("gpus = 0x" + "f" * 9000, "must be a text"),
        ("theme = " + "[" * 150 + "]" * 150, "theme must be a text, not a list"),
        ("bell = " + "{a=" * 60 + "1" + "}" * 60, "bell must be true or false, not a table"),
        ("[keys]\nquit = " + "[" * 150 + "]" * 150, "not a list$"), ("key_preset = 2026-11-29", "no key-preset a date"),
        ("theme = '" + "x" * 9000 + "'", "no theme 'x+…': choose one of auto"),
        ("columns = ['" + "x" * 9000 + "']", "no column 'x+…'"),
        ("[fleet." + "x" * 9000 + "]\nurl = 'http://a'", "a cluster's name is made of up to 40"),
        ("[[alert]]\nname = 'a'\nwhen = 'temp_c > 1'\nfor = 0x" + "f" * 900, "for: must be"),
    ],
    ids=range(17),
)  # fmt: skip
def test_a_value_without_measure_is_one_short_line_with_its_file(
    text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _file(tmp_path, f"# comment\n\n{text}\n")
    for words in (["config"], ["config", "--check"], ["demo", "-1"]):
        assert main([*words, "--config", str(path)]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and str(path) in said and "internal error" not in said
        assert re.search(says, said.rstrip().removesuffix("…")), said


@pytest.mark.parametrize("head", ["", "[keys]\n"])
def test_of_many_unknown_names_ten_are_told_and_the_rest_is_counted(
    head: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []

    def nearest(name: str, names: object, otherwise: str = "") -> str:
        compared.append(name)
        return ""

    monkeypatch.setattr("gputop.model.expression.nearest", nearest)
    monkeypatch.setattr("gputop.paint.keys.nearest", nearest)
    path = _file(tmp_path, head + "".join(f"setting{number} = ''\n" for number in range(500)))
    assert main(["config", "--check", "--config", str(path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 11 and "setting9'" in lines[9] and "490 more" in lines[10]
    assert len(set(compared)) == 10
    if not head:
        assert main(["config", "--config", str(path)]) == 0
        assert capsys.readouterr().err.count("\n") == 11


def test_of_many_wrong_alerts_ten_are_told_and_the_rest_is_counted(tmp_path: Path) -> None:
    text = "".join(f"[[alert]]\nname = 'a{number}'\nwhn = 'x'\n" for number in range(300))
    found = problems(_file(tmp_path, text))
    assert len(found) == 11 and "alert a9:" in found[9] and "290 more alerts" in found[10]
