"""Numbers and verdicts arrive where the loop logs itself, and disturb none of that: read back by each one's reader."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.api.test_integrations import run
from tests.support.wandb_file import wandb_rows

pytestmark = pytest.mark.slow
GPU = "gputop/gpu0/util_pct"
LIGHTNING = """
import torch, lightning as L
from gputop.integrations.lightning import GputopCallback
class M(L.LightningModule):
    def __init__(self): super().__init__(); self.l = torch.nn.Linear(4, 1)
    def training_step(self, b, i):
        time.sleep(0.04); loss = self.l(b[0]).mean(); self.log("loss", loss, on_step=True); return loss
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)
def data(): return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(40, 4)), batch_size=1)
def trainer(logger, call, **more):
    return L.Trainer(max_epochs=1, callbacks=[call], logger=logger, log_every_n_steps=1, enable_progress_bar=False,
                     enable_model_summary=False, enable_checkpointing=False, accelerator="cpu", **more)
"""
TRANSFORMERS = """
import torch
from transformers import Trainer, TrainingArguments
from gputop.integrations.transformers import GputopCallback
class M(torch.nn.Module):
    def __init__(self): super().__init__(); self.l = torch.nn.Linear(4, 1)
    # Steps are worked out once a second: each stretch between two log lines must hold such a moment.
    def forward(self, x, labels=None): time.sleep(0.15); return {"loss": self.l(x).pow(2).mean()}
rows = [{"x": torch.zeros(4), "labels": torch.zeros(1)} for _ in range(40)]
def trainer(report_to, *callbacks):
    arguments = TrainingArguments("out", per_device_train_batch_size=2, max_steps=24, logging_steps=8, use_cpu=True,
                                  report_to=report_to, disable_tqdm=True, save_strategy="no")
    return Trainer(M(), arguments, train_dataset=rows, callbacks=list(callbacks))
"""


def _needs(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed: pip install '.[integrations]'")


def test_wandb_gets_the_numbers_in_the_rows_of_the_loop_and_no_row_more(tmp_path: Path) -> None:
    found = run(
        """
        import wandb, gputop
        run = wandb.init(project="p", dir=".")
        with gputop.watch(log=run, **demo()) as w:
            for i in range(60):
                wandb.log({"loss0": 1.0 / (i + 1)})
                wandb.log({"loss1": 1.0 / (i + 1)})
                time.sleep(0.05)
                w.step(i)
        run.finish()
        print(json.dumps({}))
        """,
        tmp_path,
        "wandb",
    )
    rows, summary = wandb_rows(tmp_path)
    own = [row for row in rows if "loss0" in row or "loss1" in row]
    assert [row["_step"] for row in own] == list(range(120)), "the loop's own axis is as it was"
    # What was logged last is in a row of its own, which the end of the run ends.
    assert len(rows) <= len(own) + 1
    mine = [row for row in rows if GPU in row]
    assert len(mine) >= 3 and all(0 <= row["gputop/step"] < 60 for row in mine)
    assert "gputop/step_ms" in summary and isinstance(summary["gputop/gpu0/verdict"], str)
    assert "Tried to log" not in found["stderr"]


def test_wandb_gets_the_numbers_beside_a_loop_that_numbers_its_rows_itself(tmp_path: Path) -> None:
    run(
        """
        import wandb, gputop
        run = wandb.init(project="p", dir=".")
        with gputop.watch(log=wandb.log, **demo()) as w:
            for i in range(50):
                time.sleep(0.05)
                w.step(i)
                if i % 10 == 9:
                    wandb.log({"accuracy": i / 50}, step=i // 10)
        run.finish()
        print("{}")
        """,
        tmp_path,
        "wandb",
    )
    rows, _ = wandb_rows(tmp_path)
    assert [row["_step"] for row in rows if "accuracy" in row] == [0, 1, 2, 3, 4]
    assert any(GPU in row for row in rows)


def test_lightning_s_loggers_hold_the_numbers_and_the_verdict(tmp_path: Path) -> None:
    _needs("tensorboard")
    _needs("mlflow")
    _needs("wandb")
    found = run(
        LIGHTNING
        + """
from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger
import os
board, flow = TensorBoardLogger("."), MLFlowLogger(tracking_uri=os.environ["MLFLOW_TRACKING_URI"])
rows = WandbLogger(project="p", offline=True)
call = GputopCallback(**demo())
trainer([board, flow, rows], call).fit(M(), data())
rows.experiment.finish()
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
read = EventAccumulator(board.log_dir); read.Reload(); tags = read.Tags()
held = flow.experiment.get_run(flow.run_id).data
print(json.dumps({"board": tags["scalars"], "texts": tags["tensors"], "flow": list(held.metrics),
                  "tags": list(held.tags), "steps": call.summary.steps.count}))
""",
        tmp_path,
        "lightning",
    )
    assert {GPU, "loss"} <= set(found["board"]) and {GPU, "loss"} <= set(found["flow"])
    assert "gputop/gpu0/verdict/text_summary" in found["texts"] and "gputop.gpu0.verdict" in found["tags"]
    rows, summary = wandb_rows(tmp_path)
    assert found["steps"] == 40 and "left out" not in found["stderr"]
    assert len([row for row in rows if "loss" in row]) == 40
    assert len([row for row in rows if GPU in row]) >= 2
    assert isinstance(summary["gputop/gpu0/verdict"], str)


def test_what_transformers_reports_to_holds_the_numbers_without_a_line_more(tmp_path: Path) -> None:
    _needs("tensorboard")
    _needs("mlflow")
    _needs("wandb")
    found = run(
        TRANSFORMERS
        + """
from pathlib import Path
from types import SimpleNamespace
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
import mlflow, wandb
both = {}
for name in ("given", "attached"):
    if name == "given":
        train = trainer(["tensorboard", "mlflow", "wandb"], GputopCallback(**demo()))
    else:
        train = trainer(["tensorboard", "mlflow"])
        GputopCallback(**demo()).attach(train)
    train.train()
    read = EventAccumulator(str(max(Path("out/runs").iterdir(), key=lambda each: each.stat().st_mtime)))
    read.Reload()
    flow = mlflow.active_run() or mlflow.last_active_run()
    both[name] = {"board": read.Tags()["scalars"], "flow": list(mlflow.get_run(flow.info.run_id).data.metrics),
                  "history": list(train.state.log_history[0])}
    mlflow.end_run()
    wandb.finish()
    time.sleep(1.1)
state = SimpleNamespace(is_world_process_zero=True)
stray = GputopCallback(**demo())
stray.on_train_begin(train.args, state, None)
stray._watch.stop()
print(json.dumps(both))
""",
        tmp_path,
        "transformers",
        WANDB_DIR=str(tmp_path),
    )
    for way in ("given", "attached"):
        assert {"train/loss", f"train/{GPU}", "train/gputop/step_ms"} <= set(found[way]["board"]), way
        assert {"loss", GPU} <= set(found[way]["flow"]) and GPU in found[way]["history"], way
    # Only a callback that no trainer's list has called cannot go before the others, and says so.
    assert found["stderr"].count("attach(trainer)") == 1
    rows, _ = wandb_rows(tmp_path)
    lines = [row for row in rows if "train/loss" in row]
    assert [row["train/global_step"] for row in lines] == [8, 16, 24]
    assert all(f"train/{GPU}" in row for row in lines)


def test_accelerate_s_trackers_hold_the_numbers_beside_the_loops_own(tmp_path: Path) -> None:
    _needs("wandb")
    _needs("tensorboard")
    found = run(
        """
        import gputop
        from accelerate import Accelerator
        accelerator = Accelerator(log_with=["wandb", "tensorboard"], project_dir=".", cpu=True)
        accelerator.init_trackers("p")
        with gputop.watch(log=accelerator, **demo()) as w:
            for i in range(50):
                time.sleep(0.05)
                accelerator.log({"loss": 1.0 / (i + 1)}, step=i)
                w.step(i)
        accelerator.end_training()
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        read = EventAccumulator("p"); read.Reload()
        print(json.dumps({"keys": read.Tags()["scalars"]}))
        """,
        tmp_path,
        "accelerate",
    )
    rows, _ = wandb_rows(tmp_path)
    assert len([row for row in rows if "loss" in row]) == 50 and [row for row in rows if GPU in row]
    assert {GPU, "loss"} <= set(found["keys"])


def test_a_callback_of_each_framework_measures_a_second_training_as_the_first(tmp_path: Path) -> None:
    """With ``hyperparameter_search``, and with a warm-up before the fine-tuning."""
    _needs("transformers")
    _needs("keras")
    found = run(
        LIGHTNING
        + TRANSFORMERS.replace("def trainer(", "def hf_trainer(")
        .replace("GputopCallback", "HFCallback")
        .replace("import HFCallback", "import GputopCallback as HFCallback")
        .replace("class M(torch.nn.Module)", "class H(torch.nn.Module)")
        .replace("Trainer(M()", "Trainer(H()")
        + """
import numpy as np, keras, threading
from gputop.integrations.keras import GputopCallback as KerasCallback
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
class Slow(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None): time.sleep(0.05)
def said(call): return [call.summary.steps.count, call.summary.report.frames > 0, str(call.summary)[:7]]
lightning, hugging, dense = GputopCallback(**demo()), HFCallback(**demo()), KerasCallback(**demo())
found = {"lightning": [], "transformers": [], "keras": []}
for _ in range(2):
    trainer(False, lightning).fit(M(), data())
    found["lightning"].append(said(lightning))
    hf = hf_trainer([], hugging)
    hf.train()
    found["transformers"].append(said(hugging) + ["gputop/gpu0/util_pct" in hf.state.log_history[0]])
    history = model.fit(np.zeros((40, 4)), np.zeros((40, 1)), batch_size=2, epochs=1, verbose=0,
                        callbacks=[dense, Slow()])
    found["keras"].append(said(dense) + ["gputop/gpu0/util_pct" in history.history])
found["threads"] = [t.name for t in threading.enumerate() if t.name.startswith("gputop")]
print(json.dumps(found))
""",
        tmp_path,
        "lightning",
    )
    assert found["lightning"] == [[40, True, found["lightning"][0][2]]] * 2
    assert found["transformers"] == [[24, True, found["transformers"][0][2], True]] * 2
    assert found["keras"] == [[20, True, found["keras"][0][2], True]] * 2
    assert "gputop: None" not in found["stderr"] and found["threads"] == []
