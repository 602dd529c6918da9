"""Settings from file, environment and flags: who wins, what is refused, and what ``gputop config`` says of the file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.api.watch_options import configured
from gputop.cli import main
from gputop.commands.config import ConfigWatch, key_problems, problems
from gputop.config import ConfigError, Settings, declared, default_path, load


def _file(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_flags_win_over_the_environment_and_the_environment_over_the_file(tmp_path: Path) -> None:
    path = str(_file(tmp_path, "interval = 2\nspan = 300\ntheme = 'light'\n"))
    settings, warnings = load(path, {"GPUTOP_INTERVAL": "3", "GPUTOP_THEME": "mono"}, {"theme": "dark", "gpus": None})
    assert (settings.interval, settings.span, settings.theme, settings.gpus) == (3.0, 300.0, "dark", "")
    assert not warnings


def test_lists_and_tables_come_from_the_file(tmp_path: Path) -> None:
    text = 'columns = ["pid", "cpu_pct", "command"]\ndensity = "compact"\n[keys]\nquit = "x"\n'
    settings, _ = load(str(_file(tmp_path, text)), {}, {})
    assert settings.columns == ("pid", "cpu_pct", "command")
    assert settings.density == "compact"
    assert dict(settings.keys) == {"quit": "x"}
    assert load(None, {"GPUTOP_CONFIG": os.devnull, "GPUTOP_COLUMNS": "pid, user"}, {})[0].columns == ("pid", "user")
    assert load(None, {"GPUTOP_CONFIG": os.devnull, "GPUTOP_KEYS": "x", "GPUTOP_FLEET": "x"}, {}) == (Settings(), [])


def test_the_columns_of_dump_are_not_those_of_the_screen() -> None:
    assert load(None, {"GPUTOP_CONFIG": os.devnull}, {"columns": "util_pct"})[0].columns == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("interval = true", "must be a number"),
        ("interval = 0.1", "from 0.25"),
        ("span = 5", "from 10"),
        ("price = -1", "from 0"),
        ("price = 1000001", "from 0 to 1,000,000"),
        ("price = inf", "must be a number"),
        ("interval = nan", "must be a number"),
        ("theme = 'darc'", "did you mean dark"),
        ("density = 'compct'", "did you mean compact"),
        ("bell = 'perhaps'", "true or false"),
        ("gpus = 3", "must be a text"),
        ("theme = 'pink'", "colour-blind"),
        ("density = 'loose'", "standard, compact"),
        ("columns = ['pid', 'comand']", "did you mean command"),
        ("columns = ['pid', 'pid']", "twice"),
        ("columns = 3", "list of texts"),
        ("keys = 'q'", r"\[keys\]"),
        ("[keys]\nhelp = '?'\nquit = 3", r"\[keys\] quit must be a text such as \"q,ctrl\+c\", not 3$"),
    ],
)
def test_a_value_that_a_setting_cannot_take_is_refused_with_its_file(tmp_path: Path, text: str, says: str) -> None:
    path = _file(tmp_path, f"# comment\n{text}\n")
    with pytest.raises(ConfigError, match=says) as caught:
        load(str(path), {}, {})
    assert str(path) in str(caught.value)
    (found,) = problems(path)
    assert found.startswith(f"{path}: ")


def test_every_problem_is_said_in_one_go(tmp_path: Path) -> None:
    text = 'theme = "pink"\nthme = "dark"\n\ninterval = 0\n[keys]\nqit = "x"\npause = "b"\nhelp = "b"\n'
    path = _file(tmp_path, text)
    found = problems(path)
    assert len(found) == 5 and all(line.startswith(f"{path}: ") for line in found)
    assert "did you mean theme?" in found[1]
    assert "did you mean quit?" in found[3]
    assert "pause has it" in found[4]


def test_check_exits_2_on_a_problem_and_0_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--check", "--config", str(_file(tmp_path, "theme = 'dark'\n"))]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["config", "--check", "--config", str(_file(tmp_path, "theme = 'pink'\nbell = 2\n"))]) == 2
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
        assert any(f"#{begin}" in written for begin in (f"{name} = ", f"[{name}]", f"[[{name}]]", f"[{name}.")), name
    path.write_text("bell = true\n", encoding="utf-8")
    capsys.readouterr()
    assert main(["config", "--init", "--config", str(path)]) == 2
    assert "exists and was not changed" in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == "bell = true\n"


def test_the_written_file_is_valid_with_every_comment_sign_taken_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.toml"
    main(["config", "--init", "--config", str(path)])
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(line if line.startswith("# ") else line.removeprefix("#") for line in lines))
    assert problems(path) == []
    settings = load(str(path), {}, {})[0]
    assert dict(settings.keys) == {"quit": "q,x", "pause": "p,ctrl+s"}
    assert [alert["name"] for alert in settings.alert] == ["no-work"]
    assert settings.fleet["prod"]["url"] == "https://prometheus.example"
    assert replace(settings, keys={}, alert=(), fleet={}) == replace(Settings(), keys={}, fleet={})


def test_path_and_the_settings_in_force_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_no_key_of_the_defaults_is_a_problem() -> None:
    assert key_problems({}) == []
    assert key_problems({"jump": "ctrl+j"}) == []


def test_a_saved_file_is_taken_up_once(tmp_path: Path) -> None:
    path = _file(tmp_path, "theme = 'dark'\n")
    watch = ConfigWatch(str(path), {}, {"interval": "5"}, every_s=2.0)
    assert watch.poll(0.0) is None
    _file(tmp_path, "theme = 'light' # changed\nthme = 1\n")
    assert watch.poll(1.0) is None, "looked at more often than asked"
    reload = watch.poll(2.0)
    assert reload is not None
    assert reload.settings is not None
    assert (reload.settings.theme, reload.settings.interval) == ("light", 5.0)
    assert "thme" in reload.messages[0]
    assert watch.poll(4.0) is None


def test_a_broken_file_leaves_the_settings_in_force_and_is_said(tmp_path: Path) -> None:
    path = _file(tmp_path, "")
    watch = ConfigWatch(str(path), {}, {}, every_s=0.0)
    _file(tmp_path, "theme = [")
    reload = watch.poll(1.0)
    assert reload is not None
    assert reload.settings is None
    assert "not valid TOML" in reload.messages[0]
    path.unlink()
    gone = watch.poll(2.0)
    assert gone is not None
    assert gone.settings is None, "the file was named, so it has to be there"


@contextmanager
def out_of_reach(home: Path) -> Iterator[None]:
    """Whoever runs the tests may not enter the folder; root becomes another user for that."""
    folder, user = home / ".config", os.geteuid()
    folder.chmod(0o000)
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        if user == 0:
            os.seteuid(0)
        folder.chmod(0o700)


def test_a_configuration_in_a_folder_that_is_closed_to_this_user_is_a_warning_and_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".config" / "gputop").mkdir(parents=True)
    _file(tmp_path / ".config" / "gputop", "interval = 7")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert load(None, {}, {}) == (replace(Settings(), interval=7.0), [])
    with out_of_reach(tmp_path):
        settings, warnings = load(None, {}, {})
        assert settings == Settings() and len(warnings) == 1 and "out of this user's reach" in warnings[0]
        # What somebody named is wanted, and who may not show names must know that he may.
        for path, strict in ((default_path(), False), (None, True)):
            with pytest.raises(ConfigError, match="Permission denied"):
                load(path, {}, {}, strict=strict)
        assert configured({}).redact
    assert not configured({}).redact


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

        assert tomllib.loads("\n".join(lines))["keys"] == {"quit": "x"}, "the output is a configuration file"
