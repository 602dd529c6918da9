"""A disk that takes no more: whatever writes a file says so in one line, and leaves what was there before."""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gputop.cli import main
from tests.support.command import is_one_line
from tests.support.synthetic_trace import planted, written

VECTOR = str(Path(__file__).parent / "vectors" / "main_process_no_workers.jsonl")
ROOM = 512
"""Bytes that a file may have: fewer than any of these outputs."""


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can grow beyond ``ROOM``; the system says so where a full disk would."""
    assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN, "Python ignores it, and gets EFBIG"
    before, bytecode = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    # Python would keep half a file of bytecode, and stumble over it the next time.
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        sys.dont_write_bytecode = bytecode


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("report.json", ("report", VECTOR, "-o")),
        ("config.toml", ("config", "--init", "--config")),
        *(
            pytest.param(name, words, marks=pytest.mark.slow)
            for name, words in (
                ("report.html", ("report", VECTOR, "-o")),
                ("compared.html", ("compare", VECTOR, VECTOR, "-o")),
                ("trace.html", ("trace", "TRACE", "-o")),
                ("screen.svg", ("screenshot", VECTOR, "--size", "80x24", "-o")),
                ("gputop.prom", ("export", "demo", "healthy", "--once", "--textfile")),
            )
        ),
    ],
)
@pytest.mark.parametrize("has_one", [False, True], ids=["new", "there"])
def test_a_full_disk_leaves_the_file_that_was_there_or_none(
    name: str,
    words: tuple[str, ...],
    has_one: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = tmp_path / "out" / name
    target.parent.mkdir()
    trace = (
        written(tmp_path / "trace.json", planted("low_sm", steps=3)) if "TRACE" in words else None
    )
    if has_one:
        target.write_text("mine")
    with full_disk():
        status = main([str(trace) if word == "TRACE" else word for word in words] + [str(target)])
    said = capsys.readouterr()
    assert status == 2
    if not has_one or name != "config.toml":
        assert "File too large" in said.err
    assert is_one_line(said.err) and str(target) in said.err
    assert {path.name: path.read_text() for path in target.parent.iterdir()} == (
        {name: "mine"} if has_one else {}
    )
