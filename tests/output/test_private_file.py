"""Files for their owner alone: whole or not there at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gputop.output.private_file import write_private


def test_a_file_is_its_owners_alone_and_keeps_the_mode_and_the_link_that_it_has(tmp_path: Path) -> None:
    new, shared, link = tmp_path / "new", tmp_path / "shared", tmp_path / "link"
    write_private(new, "µ")
    assert (new.read_bytes(), stat.S_IMODE(new.stat().st_mode)) == ("µ".encode(), 0o600)
    shared.write_text("before")
    shared.chmod(0o644)
    link.symlink_to(shared)
    write_private(link, b"after")
    assert (shared.read_text(), stat.S_IMODE(shared.stat().st_mode), link.is_symlink()) == ("after", 0o644, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "new", "shared"]


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left") as error:
        write_private(path, "after")
    assert error.value.filename == str(path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_device_is_written_to_as_it_is() -> None:
    write_private("/dev/null", "nothing to keep")
