"""A setting that is saved from the screen: its statement changes, every other byte of the file stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gputop.commands.screen import save
from gputop.config import ConfigError
from gputop.config.save import save_setting, with_setting

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


def test_links_and_files_of_others_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert path.read_text() == 'interval = 2\ncolumns = ["pid", "command"]\n' and path.stat().st_mode & 0o777 == 0o644
    assert "saved" in save(str(new), "theme", "light")
    assert new.stat().st_mode & 0o777 == 0o600 and os.listdir(new.parent) == ["config.toml"]
