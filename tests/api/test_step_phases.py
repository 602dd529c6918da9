"""The host time of a step by phase: what grew, and that PyTorch's hooks tell it without hurting a training."""

from __future__ import annotations

import importlib.util
import json
import textwrap
from pathlib import Path
from typing import Any, cast

import pytest

from gputop.api.step_phases import MOST_KEPT, Phases, PhaseSampler, phase_summary
from gputop.diagnosis.phase_growth import LEAST_STEPS, WARM_UP_STEPS, grown, growth_remedy
from gputop.model.step_pace import PhaseSeries
from tests.support.command import ran

PROGRAM = """
import json, sys, threading, time, warnings
import torch
from torch.nn.modules import module as modules
import gputop
from tests.support.watched import Scripted
def hooks(): return len(modules._global_forward_pre_hooks) + len(modules._global_forward_hooks)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.rest = torch.nn.Linear(8, 8), torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    def forward(self, x): time.sleep(0.04); return self.rest(self.first(x))
model, loss_of = Model(), torch.nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x, y = torch.randn(4, 8), torch.zeros(4, 8)
def step(model=model):
    optimizer.zero_grad(); loss = loss_of(model(x), y); time.sleep(0.02); loss.backward(); optimizer.step()
def watching(body, least=3, most=60.0, **given):
    '''Steps until so many were looked at, or for some seconds where none is to be.'''
    with gputop.watch(source=Scripted(), gpus="all", **given) as w:
        until = time.monotonic() + most
        while time.monotonic() < until and w._watcher.steps.kept_phases.count < least:
            # Every step, and not one a second.
            w._watcher.phases.due = True
            body()
    found = w.summary()
    assert hooks() == 0, "nothing is left with torch"
    return found.phases, found
"""


def _said(code: str, tmp_path: Path, needs: str = "torch") -> Any:
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    done = ran(tmp_path, "-c", PROGRAM + textwrap.dedent(code), OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1]) | {"stderr": done.stderr}


def _steps(count: int, **seconds: float) -> list[Phases]:
    usual = {"forward": 0.02, "backward": 0.03, "optimizer": 0.01, "between": 0.01}
    return [cast("Phases", {**usual, **seconds})] * count


def _series(steps: list[Phases]) -> PhaseSeries:
    series = PhaseSeries(MOST_KEPT)
    for phases in steps:
        series.add(phases)
    return series


@pytest.mark.parametrize("phase", ["between", "forward", "backward", "optimizer"])
def test_the_phase_that_grew_is_named_with_what_lies_in_it(phase: str) -> None:
    found = phase_summary(_series(_steps(20) + _steps(20, **{phase: 0.08})))
    assert found is not None and found.growth is not None and found.growth.phase == phase
    name = "between steps" if phase == "between" else phase
    assert f"; {name} grew, " in found.text and "→ 80.0 ms: " in found.text
    assert growth_remedy(found.growth) in found.text


def test_nothing_grew_in_a_short_run_in_an_even_one_or_in_its_warm_up() -> None:
    for steps in (
        [*_steps(10), *_steps(LEAST_STEPS + WARM_UP_STEPS - 11, between=0.5)],
        _steps(200),
        [*_steps(WARM_UP_STEPS, forward=9.0), *_steps(200)],
        # Faster at the end.
        [*_steps(60, between=0.5), *_steps(60)],
    ):
        found = phase_summary(_series(steps))
        assert found is not None and found.growth is None
    assert grown([]) is None and phase_summary(_series([])) is None


def test_a_long_run_is_kept_in_bounded_memory_from_its_beginning_to_its_end() -> None:
    series = _series(_steps(12_000) + _steps(6000, between=0.2))
    found = phase_summary(series)
    assert found is not None and found.steps == 18_000 and len(series.steps) <= 4096
    assert found.growth is not None and found.growth.phase == "between"


def test_without_torch_nothing_is_hooked() -> None:
    sampler = PhaseSampler()
    sampler.due = True
    sampler.optimizer_begins()
    sampler.backward_ended()
    sampler.optimizer_ended()
    sampler.stop()
    assert not sampler.taken


@pytest.mark.slow
@pytest.mark.torch
def test_the_phases_of_a_plain_loop_are_its_own_and_nothing_of_the_program_is_touched(
    tmp_path: Path,
) -> None:
    found = _said(
        """
        import copy, io, pickle
        def loop():
            time.sleep(0.01)
            step()
            copy.deepcopy(model); pickle.loads(pickle.dumps(model)); torch.save(model, io.BytesIO())
            assert not model._forward_hooks and not model._forward_pre_hooks and not model._backward_hooks
        numbers = {}
        for _ in range(5):  # a crowded machine holds one of three steps up anywhere
            phases, summary = watching(loop, log=lambda given, step: numbers.update(given), log_every=0.0)
            if phases.means_s["forward"] > phases.means_s["backward"] > phases.means_s["optimizer"]:
                break
        off, _ = watching(step, most=1.5, phases=False)
        print(json.dumps({"means": phases.means_s, "text": str(summary), "off": off is None, "keys": list(numbers)}))
        """,
        tmp_path,
    )
    means = found["means"]
    assert means["forward"] >= 0.04 and means["backward"] >= 0.02 and means["between"] >= 0.01
    assert means["forward"] > means["backward"] > means["optimizer"], means
    assert "Host time of a step (" in " ".join(found["text"].split()) and found["off"]
    assert {
        f"gputop/step_{phase}_ms" for phase in ("forward", "backward", "optimizer", "between")
    } <= set(found["keys"])


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.weekly
def test_steps_of_another_order_are_not_told_wrongly(tmp_path: Path) -> None:
    """Several batches a step, an evaluation in between, a sharded model; activations that are computed again."""
    found = _said(
        """
        from torch.utils.checkpoint import checkpoint
        def accumulated():
            for _ in range(2): loss_of(model(x), y).backward()
            optimizer.step()
        def evaluated():
            model.eval()
            with torch.no_grad(): model(x); model(x)
            model.train(); step()
        class FSDPModule: pass
        class Sharded(FSDPModule, Model): pass
        sharded = Sharded()
        class Again(Model):
            def forward(self, x):
                return checkpoint(self.rest, checkpoint(self.first, x, use_reentrant=False), use_reentrant=False)
        again = Again()
        teacher = Model().eval()
        def taught():
            with torch.no_grad(): teacher(x)
            step()
        def fails():
            try:
                with torch.autocast("cpu"): model(torch.randn(3, 3))
            except RuntimeError: pass
            step()
        said = {}
        for name, body in (("accumulated", accumulated), ("evaluated", evaluated), ("sharded", lambda: step(sharded)),
                           ("fails", fails)):
            said[name] = watching(body, most=1.5)[0] is None
        said["again"] = watching(lambda: step(again))[0].means_s
        said["taught"] = watching(taught)[0].means_s
        print(json.dumps(said))
        """,
        tmp_path,
    )
    assert found["accumulated"] and found["evaluated"] and found["sharded"] and found["fails"]
    # The backward pass, with what is computed again and the 20 ms before it, is no forward.
    assert found["again"]["backward"] >= 0.02 > found["again"]["forward"]
    assert found["taught"]["between"] >= 0.04 and found["taught"]["forward"] >= 0.04, (
        "the teacher is before the step"
    )


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.weekly
def test_a_compiled_training_is_compiled_as_without_a_watch(tmp_path: Path) -> None:
    found = _said(
        """
        from torch._dynamo.utils import counters
        class Small(torch.nn.Module):
            def __init__(self): super().__init__(); self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
            def forward(self, x): return self.b(self.a(x))
        def seen(watched):
            torch._dynamo.reset(); counters.clear()
            small = Small()
            own = torch.optim.SGD(small.parameters(), 0.1)
            part = Small(); part.a = torch.compile(part.a, backend="eager")
            inner = torch.optim.SGD(part.parameters(), 0.1)
            whole, opt = torch.compile(small, backend="eager"), torch.compile(own.step, backend="eager")
            def all_forms():
                for one, end in ((whole, own.step), (whole, opt), (part, inner.step)):
                    own.zero_grad(); inner.zero_grad()
                    loss_of(one(x), y).backward(); end()
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                if watched: phases = watching(all_forms, most=4.0)[0]
                else:
                    for _ in range(8): all_forms()
            mine = [str(each.message) for each in warned if "perf_counter" in str(each.message)]
            return dict(counters["stats"]).get("unique_graphs"), sum(counters["graph_break"].values()), mine
        print(json.dumps({"without": seen(False), "with": seen(True)}))
        """,
        tmp_path,
    )
    assert found["with"] == found["without"] and found["with"][2] == []
