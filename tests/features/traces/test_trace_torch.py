"""A real trace of torch.profiler, made on the CPU: read, and told in one line that it holds no work of a GPU."""

from __future__ import annotations

import gzip
import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.features.traces.trace_ranks import read_trace

pytestmark = [
    pytest.mark.slow,
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch: pip install torch==2.13.0"),
]


def profiled(path: Path) -> Path:
    import torch
    from torch.profiler import profile, schedule
    from torch.utils.data import DataLoader

    loader = DataLoader(list(range(64)), batch_size=8)
    layer = torch.nn.Linear(8, 8)
    with profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=3, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
    ) as profiler:
        for batch in loader:
            layer(batch.float()).sum().item()
            profiler.step()
    return path


def test_a_real_trace_of_the_cpu_is_read_and_said_to_hold_no_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = profiled(tmp_path / "t.pt.trace.json.gz")
    trace = read_trace(str(path))
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    operators = [event for event in events if event.get("cat") == "cpu_op"]
    assert len(operators) > 10 and (trace.dropped_events, trace.truncated) == (0, False)
    assert len(trace.spans) >= len(operators)
    assert any(name.startswith("ProfilerStep#") for name in trace.names.texts)
    assert any("_SingleProcessDataLoaderIter.__next__" in name for name in trace.names.texts)
    assert main(["trace", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "no GPU work: profile with ProfilerActivity.CUDA" in error
