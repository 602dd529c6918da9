"""A running exporter's page read back: its verdicts and values, with their age, and never old ones."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.commands import exporter_lines
from gputop.model.source import SourceError
from gputop.sources.exporter_reader import ExportedPage, exported_page

LATE = "gputop_up 0\ngputop_last_sample_timestamp_seconds 1780000000\n"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "gputop.prom"
    assert main(["export", "demo", "--once", "--textfile", str(path)]) == 0
    return Path(path).read_text()


def test_a_page_gives_the_verdicts_of_the_screen(page: str) -> None:
    found = exported_page(page)
    assert (found.host, found.is_simulated, len(found.gpus)) == ("node-17", True, 8)
    assert [gpu["index"] for gpu in found.gpus] == list(range(8))
    assert (found.gpus[0]["verdict"], found.gpus[0]["state"]) == ("small_kernels", "busy_not_working")
    assert found.gpus[0]["sm_active_pct"] == pytest.approx(8.0, abs=1.5)
    values = exporter_lines.line_values(found, found.t + 2.0)
    assert values[0]["title"] == "busy, not working: small kernels"
    assert {row["age_s"] for row in values} == {2.0}


def test_every_key_of_a_line_may_be_asked_for_and_no_other(
    page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(exporter_lines, "read_exporter", lambda _: exported_page(page))
    keys = set().union(*exporter_lines.line_values(exported_page(page), 0.0))
    template = " ".join(f"{{{key}}}" for key in sorted(keys))
    assert main(["diagnose", "--exporter", "--format", template]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 8
    assert main(["diagnose", "--exporter", "--format", "{evidence}"]) == 2
    assert "the exporter tells" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"), [(LATE, "no current values"), ("gputop_up 1\n", "no current values"), ("up 1\n", "is not")]
)
def test_late_values_and_another_program_are_an_error(text: str, said: str) -> None:
    with pytest.raises(SourceError, match=said):
        exported_page(text)


def test_no_exporter_is_said_and_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/metrics"
        assert main(["diagnose", "--exporter", url, "--format", "{title}"]) == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert "does not answer" in told.err and "gputop export" in told.err


def test_a_lost_gpu_is_lost_and_damaged_rows_are_left_out() -> None:
    text = (
        'gputop_up 1\ngputop_last_sample_timestamp_seconds 5\ngputop_gpu_info{gpu="0",uuid="GPU-1",model="H100"} 1\n'
        'gputop_gpu_lost{gpu="0",uuid="GPU-1"} 1\ngputop_gpu_verdict{gpu="0",uuid="GPU-1",verdict="coll\n'
        'gputop_gpu_state{gpu="x",uuid="GPU-1",state="idle"} 1\n'
        'gputop_gpu_info{gpu="0",uuid="GPU-2",model="\x1b["} nan\n'
    )
    page = exported_page(text)
    assert isinstance(page, ExportedPage)
    (values,) = exporter_lines.line_values(page, 5.0)
    assert (values["title"], values["lost"], values.get("state")) == ("LOST", True, None)


def test_an_exporter_goes_with_a_format_alone(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--exporter"], ["demo", "--exporter"], ["--exporter", "--json"], ["--exporter", "--for", "5s"]):
        assert main(["diagnose", *words]) == 2
        assert "--exporter" in capsys.readouterr().err
