"""The card: one picture of a recording or a run."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from html import unescape
from pathlib import Path

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.model.snapshot import (
    GpuSample,
    GpuStatic,
    Machine,
    ProcessSample,
    ProcessStatic,
    Snapshot,
)
from gputop.output import png
from gputop.output.card import MOST_CAUSES, card_of
from gputop.output.card_picture import card_svg
from gputop.paint.theme import THEMES
from gputop.report.lanes import pictured
from gputop.sources.simulation.simulated import SimulatedSource
from tests.support.kept import kept
from tests.support.recording_frames import recorded

NOW = 1_780_000_000.0
GIB = 2.0**30
SECRET = "--token=hunter2"


def moments(
    seconds: int = 90,
    *,
    util: float = 95.0,
    sm: float | None = 8.0,
    host: str = "node-17",
    name: str = "NVIDIA H100 80GB HBM3",
) -> list[Snapshot]:
    """A job on one GPU; by default its kernels are small."""
    gpu = GpuSample(
        GpuStatic(0, "GPU-0", name), util_pct=util, sm_active_pct=sm, sm_source="none" if sm is None else "gpm",
        sm_window_s=1.0, tensor_active_pct=2.0, dram_active_pct=10.0, power_w=200.0, mem_used_bytes=20 * GIB,
        mem_total_bytes=80 * GIB,
    )  # fmt: skip
    static = ProcessStatic("ml", f"python train.py {SECRET} /home/ml/data", "python", job_key="j")
    held = ProcessSample(100, 1, gpu=0, gpu_mem_bytes=20 * GIB, static=static)
    return [Snapshot(NOW + k, Machine(host), (gpu,), (held,)) for k in range(seconds)]


class Text:
    """A drawn text with its box."""

    def __init__(self, match: re.Match[str]) -> None:
        x, y, size, length = (float(match[name]) for name in ("x", "y", "size", "length"))
        self.words = unescape(match["words"])
        self.size = size
        self.left, self.right = x, x + length
        self.top, self.bottom = y - 0.8 * size, y + 0.25 * size


_TEXT = re.compile(
    r'<text x="(?P<x>[\d.]+)" y="(?P<y>[\d.]+)" font-size="(?P<size>[\d.]+)"[^>]* '
    r'textLength="(?P<length>[\d.]+)"[^>]*>(?P<words>[^<]*)</text>'
)


def texts(svg: str) -> list[Text]:
    found = [Text(match) for match in _TEXT.finditer(svg)]
    assert len(found) == svg.count("<text")
    return found


def said(svg: str) -> str:
    return " ".join(text.words for text in texts(svg))


def card(tmp_path: Path, snapshots: Iterable[Snapshot], *options: str) -> str:
    """The card of a recording as SVG, made by the command."""
    file, picture = tmp_path / "r.gputop.jsonl", tmp_path / "card.svg"
    recorded(file, snapshots)
    assert main([*options, "report", str(file), "-o", str(picture)]) == 0
    file.unlink()
    return picture.read_text()


def test_the_card_tells_the_report_s_shares_its_cause_and_the_worth_of_a_cure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    svg = card(tmp_path, moments(), "--price", "3")
    recorded(tmp_path / "same.jsonl", moments())
    capsys.readouterr()
    assert main(["report", str(tmp_path / "same.jsonl"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    of_judged = {row["key"]: row["of_judged"] for row in report["time"]}
    words = said(svg)
    assert 'viewBox="0 0 1200 630" width="1200" height="630"' in svg
    assert f"{100 * of_judged['worked']:.0f} % of the GPU time worked" in words
    assert f"{100 * of_judged['small_kernels']:.0f} % GPU 0: busy, not working" in words
    assert "SM 8 %" in words and "→ larger batch" in words
    assert "Curing the first wins at most" in words and "worth 0.0" in words
    assert "at 3 a GPU-hour" in words
    assert "node-17" in words and "2026-05-28 20:26 to 20:28 UTC" in words
    assert "hunter2" not in svg and "train.py --" not in svg and "/home/ml" not in svg


def test_the_card_without_a_price_has_no_money_and_its_themes_differ(tmp_path: Path) -> None:
    dark = card(tmp_path, moments())
    light = card(tmp_path, moments(), "--theme", "light")
    assert "GPU-hour" not in said(dark) and "worth" not in said(dark)
    assert 'fill="#0d1117"' in dark and 'fill="#ffffff"' in light
    assert said(dark) == said(light)
    assert card(tmp_path, moments(), "--theme", "mono") == dark


def test_the_card_says_what_limits_its_figures(tmp_path: Path) -> None:
    assert "Nothing was wasted." in said(card(tmp_path, moments(sm=90.0)))
    short = said(card(tmp_path, moments(30)))
    assert "Shorter than a minute" in short
    unmeasured = said(card(tmp_path, moments(sm=None)))
    assert "SM activity was not measured on GPU 0" in unmeasured
    assert "No GPU time could be judged" in unmeasured and "% of the GPU time" not in unmeasured
    full = said(card(tmp_path, moments()))
    assert "Shorter" not in full and "not measured" not in full and "Nothing" not in full


def test_no_name_is_cut_or_leaves_the_card(tmp_path: Path) -> None:
    host = ".".join(("h" * 63, "o" * 63, "s" * 63, "t" * 61))
    name = f"NVIDIA {'RTX PRO 6000 Blackwell Max-Q Workstation Edition ' * 2}".strip()
    for found in (moments(host=host, name=name), moments(host="計算機" * 20, name=name)):
        svg = card(tmp_path, found, "--price", "2.5")
        shown = texts(svg)
        assert all(text.left >= 0 and text.right <= 1200 for text in shown)
        assert all(text.top >= 0 and text.bottom <= 630 for text in shown)
        together = "".join(text.words.replace(" ", "") for text in shown)
        assert found[0].machine.hostname in together
        assert name.removeprefix("NVIDIA ").replace(" ", "") in together
        rows = sorted((text for text in shown), key=lambda text: (text.top, text.left))
        for first in rows:
            for second in rows:
                apart = first is second or second.top >= first.bottom - 0.2 * first.size
                apart |= first.top >= second.bottom - 0.2 * second.size
                assert apart or second.left >= first.right or first.left >= second.right


def test_the_card_names_three_causes_and_sums_up_the_others() -> None:
    source = SimulatedSource(None, clock=lambda: NOW, events_past=True)
    shown = kept("demo-pictured", lambda: pictured(list(source.past(700.0)), price=2.5))
    words = said(card_svg(card_of(shown.report), THEMES["dark"]))
    assert len(re.findall(r"\d+ % GPU \d", words)) == MOST_CAUSES
    assert re.search(r"and \d smaller causes: \d+ %", words)


def test_a_redacted_card_has_numbers_for_names(tmp_path: Path) -> None:
    svg = card(tmp_path, moments(), "--redact")
    assert "host1" in said(svg) and "node-17" not in svg


def has_font() -> bool:
    try:
        png.png_font()
    except png.PngError:
        return False
    return True


@pytest.mark.skipif(not has_font(), reason="a PNG needs resvg-py and a monospaced font")
def test_the_card_as_png_has_the_size_that_chats_show(tmp_path: Path) -> None:
    file, picture = recorded(tmp_path / "r.jsonl", moments(70)), tmp_path / "card.PNG"
    assert main(["report", str(file), "-o", str(picture)]) == 0
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert [int.from_bytes(data[i : i + 4], "big") for i in (16, 20)] == [1200, 630]


def test_a_card_that_cannot_be_drawn_is_refused_before_the_job_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = tmp_path / "begun"
    job = ["--", sys.executable, "-c", f"open({str(begun)!r}, 'w')"]
    monkeypatch.setattr(png, "find_spec", lambda name: None)
    for file, reason in (
        ("card.png", "[png]'"),
        ("card.gif", "--card must name a .png or .svg file"),
        ("nowhere/card.svg", "no directory"),
    ):
        assert main(["run", "--card", str(tmp_path / file), *job]) == 2
        error = capsys.readouterr().err
        assert reason in error and error.count("\n") == 1
    assert not begun.exists()
    assert main(["report", "demo", "-o", str(tmp_path / "card.png")]) == 2
    assert "install" in capsys.readouterr().err


def test_a_run_s_card_is_written_and_the_exit_status_is_the_job_s(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "card.svg"
    job = [sys.executable, "-c", "raise SystemExit(3)", SECRET]
    assert main(["run", "--card", str(picture), "--", *job]) == 3
    svg = picture.read_text()
    assert "No GPU was used" in said(svg) and "hunter2" not in svg and sys.executable not in svg


def test_hosts_of_one_file_are_counted(tmp_path: Path) -> None:
    both = [
        replace(snapshot, machine=Machine(f"node-{k // 40}"))
        for k, snapshot in enumerate(moments(80))
    ]
    assert "node-0 and 1 more" in said(card(tmp_path, both))
