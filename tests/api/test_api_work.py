"""What a program says of its steps, and what that makes of their time; and how a run compares with those before it."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import gputop
from gputop.api import gpu_watch
from gputop.api.frame_means import FrameMeans
from gputop.api.process_role import Role
from gputop.api.work import NO_GPU, checked_work, claimed_mfu_pct, rates_of
from gputop.model.peak_flops import PEAKS, NoPeak, peak_flops
from gputop.model.snapshot import Machine, ProcessSample, ProcessStatic
from gputop.model.source import SourceError
from gputop.model.steps import StepRow
from tests.support.watched import NOW, Scripted, Watched, snapshot

H100 = "NVIDIA H100 80GB HBM3"


def test_mfu_is_the_models_flops_against_the_dense_peak_of_the_chip() -> None:
    """A dense model of 7e9 parameters, 8,192 tokens a step of 0.8 s: 6 · 7e9 · 8192 / 0.8 = 430 TFLOP/s of 989.5."""
    work = checked_work(4, 8192, 7e9, None, "bf16", None)
    rates = rates_of(work, 0.8, [H100])
    assert rates is not None and rates.mfu_pct == pytest.approx(43.46, abs=0.01)
    assert (rates.samples_per_s, rates.tokens_per_s) == (5.0, 10240.0)
    assert rates.text == (
        "This process: 5.0 samples/s, 10240 tokens/s, MFU 43.5 % (6 · parameters · tokens, of 990 TFLOPS BF16, NVIDIA "
        "H100 Tensor Core GPU data sheet)"
    )
    two = rates_of(replace(work, flops=1e15, precision="fp8"), 1.0, [H100, H100])
    assert two is not None and two.mfu_pct == pytest.approx(100 * 1e15 / (2 * 1979e12))
    assert two.mfu_from.startswith("FLOPs as given, of 2 × 1979 TFLOPS FP8")
    given = rates_of(replace(work, peak_flops=500e12), 0.8, ["NVIDIA Something 9"])
    assert (
        given is not None
        and given.mfu_pct == pytest.approx(86.0, abs=0.1)
        and "the peak as given" in given.mfu_from
    )


def test_without_a_data_sheet_a_gpu_or_flops_there_is_no_mfu_but_a_reason() -> None:
    work = checked_work(None, 8192, 7e9, None, "fp8", None)
    unknown = rates_of(work, 0.8, ["NVIDIA H100 64GB HBM2"])
    assert unknown is not None and unknown.mfu_pct is None
    assert "MFU n/a: no data sheet of NVIDIA H100 64GB HBM2 is known" in unknown.text
    no_fp8 = rates_of(work, 0.8, ["NVIDIA A100-SXM4-80GB"])
    assert no_fp8 is not None and "gives no FP8 figure" in no_fp8.mfu_reason
    told = rates_of(work, 0.8, [], "local rank 0 samples")
    assert told is not None and "MFU n/a: local rank 0 samples" in told.text
    nowhere = rates_of(work, 0.8, [])
    assert nowhere is not None and nowhere.mfu_reason == NO_GPU
    plain = rates_of(checked_work(32, None, 7e9, None, "bf16", None), 0.5, [H100])
    assert plain is not None and plain.text == "This process: 64.0 samples/s"
    assert rates_of(None, 0.5, [H100]) is None and rates_of(work, None, [H100]) is None
    for bad in ({"samples": 0}, {"tokens": float("nan")}, {"flops": "many"}, {"precision": "int3"}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            checked_work(
                **{
                    **dict.fromkeys(("samples", "tokens", "parameters", "flops", "peak_flops")),
                    "precision": "bf16",
                    **bad,
                }
            )  # type: ignore[arg-type]


def test_a_utilisation_above_100_percent_is_refused_in_words_and_is_no_figure_anywhere() -> None:
    """Tokens of the whole job instead of one process: eight times too much."""
    work = checked_work(None, 8 * 8192, 7e9, None, "bf16", None)
    rates = rates_of(work, 0.8, [H100])
    assert rates is not None and rates.mfu_pct is None
    assert rates.mfu_reason.startswith(
        "348 % would be more than the GPUs can do: check what work() is told"
    )
    assert "MFU n/a: 348 %" in rates.text
    means = FrameMeans("few")
    means.work, means.own_gpus = work, (H100,)
    means.add_steps(StepRow(1, None, None, "x", 2, 1.6, 0.8, 0.8, 0.8, 0.8))
    assert "gputop/mfu_pct" not in means.take()
    assert claimed_mfu_pct(work, 0.8, [H100]) == pytest.approx(347.7, abs=0.1), (
        "travels with the steps, to be refused"
    )
    assert claimed_mfu_pct(work, 0.8, []) is None and claimed_mfu_pct(None, 0.8, [H100]) is None


def test_the_table_of_peaks_holds_dense_figures_of_one_chip_each() -> None:
    """Tensor cores double with each halving of the width: a sparse figure among them would stand out by a factor."""
    for row in PEAKS:
        if row.tf32 is not None and row.bf16 is not None:
            assert row.bf16 / row.tf32 == pytest.approx(2.0, rel=0.03), row.name
        if row.fp8 is not None and row.bf16 is not None:
            assert row.fp8 / row.bf16 == pytest.approx(2.0, rel=0.03), row.name
        assert row.bf16 is None or row.bf16 == row.fp16
    # As the sheets print them: TF32, BF16 and FP8 with sparsity, in TFLOPS.
    for name, printed in (
        ("NVIDIA H100 80GB HBM3", (989, 1979, 3958)),
        ("NVIDIA H100 NVL", (835, 1671, 3341)),
        ("NVIDIA H200 NVL", (835, 1671, 3341)),
        ("NVIDIA B200", (2200, 4500, 9000)),
        ("NVIDIA GB200", (2500, 5000, 10000)),
        ("NVIDIA L40", (181, 362.1, 724)),
        ("NVIDIA L4", (120, 242, 485)),
    ):
        for precision, sparse in zip(("tf32", "bf16", "fp8"), printed, strict=True):
            assert peak_flops(name, precision)[0] == sparse / 2 * 1e12, (name, precision)  # type: ignore[arg-type]
    assert peak_flops("NVIDIA A100-SXM4-80GB", "bf16")[0] == 312e12
    assert peak_flops("Tesla V100-SXM2-16GB", "fp16")[0] == 125e12
    for other in (
        "NVIDIA A10G",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA GeForce RTX 4090",
        "",
        "A100X",
    ):
        with pytest.raises(NoPeak):
            peak_flops(other, "bf16")


def test_loggers_and_summary_have_samples_tokens_and_mfu_of_this_process() -> None:

    means = FrameMeans("few")
    means.work, means.own_gpus = checked_work(8, 8192, 7e9, None, "bf16", None), (H100,)
    means.add_steps(StepRow(1, None, None, "x", 2, 1.6, 0.8, 0.8, 0.8, 0.8, 16.0))
    found = means.take()
    assert found["gputop/samples_per_s"] == 10.0 and found["gputop/tokens_per_s"] == 10240.0
    assert found["gputop/mfu_pct"] == pytest.approx(43.46, abs=0.01)
    means.add_steps(StepRow(1, None, None, "x", 2, 1.6, 0.8, 0.8, 0.8, 0.8))
    assert "gputop/samples_per_s" not in means.take()
    watched = Watched()
    with watched.watch as w:
        w.work(samples=32, flops=1e9, peak_flops=1e12)
        for end in range(40):
            w._watcher.clock.explicit = True
            w._watcher.clock.append_end((float(end), None, None))
        watched.show(snapshot(NOW, pid=os.getpid()))
    assert max(map(len, w.summary().text.splitlines())) <= 100
    rates = w.summary().rates
    assert rates is not None and rates.samples_per_s == 32.0 and rates.mfu_pct == pytest.approx(0.1)
    assert "This process: 32.0 samples/s, MFU 0.1 % (FLOPs as given" in w.summary().text
    with gputop.watch(source=Scripted(SourceError("no driver"))) as none:
        none.step(1, batch_size=64)
        assert none._watcher.log.batch_size(None) == 64.0
    assert w.summary().report.steps[0].samples_per_s == 32.0


def test_a_redacted_watch_names_nobody_in_frames_recording_and_summary(tmp_path: Path) -> None:
    path = tmp_path / "run.gputop.jsonl.gz"
    static = ProcessStatic(
        user="alice", name="python", command="python /home/alice/train.py --key k3y"
    )
    taken = replace(
        snapshot(NOW), machine=Machine("node.example.org"), notices=("cannot read /home/alice/x",),
        processes=(ProcessSample(77, starttime=7, role="gpu", gpu=0, static=static),),
    )  # fmt: skip
    watched = Watched(record=str(path), redact=True, name="alices-secret-model")
    with watched.watch as w:
        w._watcher.clock.explicit = True
        for end in range(40):
            w._watcher.clock.append_end((float(end), None, None))
        w._watcher._worked_out = 0.0
        w.mark("copied to /home/alice/out")
        watched.show(taken)
        w.mark("done by alice on node.example.org")
        latest = w.latest
    told = "\n".join(
        [w.summary().text, w.summary().html, str(w.summary().to_dict()), str(latest.snapshot)]
    )  # type: ignore[union-attr]
    written = gzip.decompress(path.read_bytes()).decode()
    for text in (told, written):
        for name in ("alice", "node.example", "secret-model", "k3y", "/home"):
            assert name not in text, name
        assert "run1" in text
    assert [frame.steps[0].name for frame in gputop.load(path)] == ["run1"]


def test_without_the_argument_a_watch_is_redacted_as_the_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "config.toml"
    monkeypatch.setenv("GPUTOP_CONFIG", str(file))
    monkeypatch.delenv("GPUTOP_REDACT", raising=False)

    def redacted(text: str, **given: bool) -> bool:
        file.write_text(text)
        return gputop.watch(**given)._options.redact  # type: ignore[arg-type]

    assert (
        redacted("redact = true")
        and not redacted("")
        and not redacted("redact = true", redact=False)
    )
    assert redacted("redact = perhaps") and "names are redacted" in caplog.text, (
        "nobody knows what was wanted"
    )
    monkeypatch.setenv("GPUTOP_REDACT", "1")
    assert redacted("redact = false")


def test_a_watch_takes_price_and_exporter_from_the_settings_and_an_argument_goes_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "gputop.toml"
    path.write_text('price = 2.5\ndcgm_url = "http://localhost:9400/metrics"\nperf = true\n')
    monkeypatch.setenv("GPUTOP_CONFIG", str(path))
    asked = gputop.watch()._options
    assert asked.price == 2.5 and asked.dcgm_url == "http://localhost:9400/metrics"
    assert gputop.watch(price=3.0)._options.price == 3.0
    assert gputop.watch(price=0.0)._options.price is None, "no money at all"
    given: list[Any] = []
    monkeypatch.setattr(
        gpu_watch, "LocalSource", lambda *args, **more: given.append((args, more)) or Scripted()
    )
    gpu_watch.opened(asked, Role(None, None, True))
    ((args, more),) = given
    assert args[0].sm.dcgm_url == "http://localhost:9400/metrics" and more == {
        "own_process": False
    }, "no program is started by a watch"
