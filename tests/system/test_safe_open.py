"""Files that a user names: a pipe that nobody writes to is one line at once, or soon, and never waited for."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputop.commands.config import problems
from gputop.config import ConfigError
from gputop.features.export.scrape_server import context
from gputop.features.fleet.read.address import address_of
from gputop.features.traces.trace_ranks import read_trace
from gputop.model.source import UsageError
from gputop.recording.file_lines import open_recording
from gputop.recording.format import RecordingError
from gputop.system.plain_pickle import load_plain
from gputop.system.safe_open import write_private

URL = "http://localhost:9090"


def ended(call: Callable[[], object]) -> Any:
    """What a call gives or raises, of one that might wait for ever."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:  # noqa: BLE001 - looked at by the test
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30.0)
    assert found, "it waits for the writer of a pipe"
    return found[0]


@pytest.fixture
def pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("gputop.system.safe_open.PIPE_S", 0.05)
    os.mkfifo(tmp_path / "pipe")
    return str(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (open_recording, RecordingError, "not a regular file"),
        (read_trace, OSError, "not a regular file"),
        (load_plain, OSError, "not a regular file"),
        (lambda path: context(path, None, None), UsageError, "--tls-cert {}: not a regular file"),
        (
            lambda path: context(__file__, path, None),
            UsageError,
            "--tls-key {}: not a regular file",
        ),
        (
            lambda path: context(__file__, None, path),
            UsageError,
            "--client-ca {}: not a regular file",
        ),
        (
            lambda path: address_of(URL, {}, header_file=path),
            UsageError,
            "--header-file: {} is a named pipe",
        ),
        (
            lambda path: address_of(URL, {"GPUTOP_PROM_TOKEN_FILE": path}),
            UsageError,
            "{} is a named pipe",
        ),
        (lambda path: problems(Path(path)), ConfigError, "it is a named pipe"),
    ],
)
def test_a_pipe_that_nobody_writes_to_is_refused(
    pipe: str, call: Callable[[str], object], kind: type[Exception], words: str
) -> None:
    error = ended(lambda: call(pipe))
    assert isinstance(error, kind) and words.format(pipe) in str(error) and "\n" not in str(error)


def test_headers_may_come_by_a_pipe_of_the_shell() -> None:
    end, start = os.pipe()
    os.write(start, b"X-Scope-OrgID: team\n")
    os.close(start)
    assert ended(lambda: address_of(URL, {}, header_file=f"/dev/fd/{end}").headers) == {
        "X-Scope-OrgID": "team"
    }
    os.close(end)


def test_a_file_is_its_owners_alone_and_keeps_the_mode_and_the_link_that_it_has(
    tmp_path: Path,
) -> None:
    new, shared, link = tmp_path / "new", tmp_path / "shared", tmp_path / "link"
    write_private(new, "µ")
    assert (new.read_bytes(), stat.S_IMODE(new.stat().st_mode)) == ("µ".encode(), 0o600)
    shared.write_text("before")
    shared.chmod(0o644)
    link.symlink_to(shared)
    write_private(link, b"after")
    assert (shared.read_text(), stat.S_IMODE(shared.stat().st_mode), link.is_symlink()) == (
        "after",
        0o644,
        True,
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "new", "shared"]


def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_device_is_written_to_as_it_is_and_a_pipe_only_where_somebody_reads_it(
    tmp_path: Path,
) -> None:
    write_private("/dev/null", "nothing to keep")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="a pipe that nobody reads"):
        write_private(pipe, "waits for ever")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_private(pipe, "read")
    assert os.read(reader, 9) == b"read"
    os.close(reader)
