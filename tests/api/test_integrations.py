"""Callbacks and loggers against the frameworks themselves, offline, each read back by its own reader: the numbers and
verdicts arrive where the loop logs, and disturb none of that."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import textwrap
from pathlib import Path
from typing import Any

import pytest

from gputop.integrations.csv import CsvLog
from tests.support.command import ran
from tests.support.wandb_file import wandb_rows

GPU = "gputop/gpu0/util_pct"
KEYS = (GPU, "gputop/gpu0/sm_active_pct", "gputop/step_ms")
DEMO = """
import sys, json, time
from gputop.sources.simulation.simulated import SimulatedSource
def demo(**more):
    return dict(interval=0.1, gpus="all", source=SimulatedSource(interval_s=0.1), log_every=0.2, **more)
"""
"""A watch on simulated GPUs: there is none where these tests run."""
LIGHTNING = """
import torch, lightning as L
from gputop.integrations.lightning import GputopCallback
class M(L.LightningModule):
    def __init__(self): super().__init__(); self.l = torch.nn.Linear(4, 1)
    def training_step(self, b, i):
        time.sleep(0.04); loss = self.l(b[0]).mean(); self.log("loss", loss, on_step=True); return loss
    def validation_step(self, b, i): time.sleep(0.02)
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)
class Waits(torch.utils.data.Dataset):
    def __len__(self): return 40
    def __getitem__(self, i): time.sleep(0.02); return (torch.zeros(4),)
def data(size=1): return torch.utils.data.DataLoader(Waits(), batch_size=size)
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
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 40
    def __getitem__(self, i): time.sleep(0.02); return {"x": torch.zeros(4), "labels": torch.zeros(1)}
def trainer(report_to, *callbacks):
    arguments = TrainingArguments("out", per_device_train_batch_size=2, max_steps=24, logging_steps=8, use_cpu=True,
                                  report_to=report_to, disable_tqdm=True, save_strategy="no")
    return Trainer(M(), arguments, train_dataset=Rows(), callbacks=list(callbacks))
"""
LOOP = """
with gputop.watch(log={log}, **demo()) as w:
    i, calls, log = -1, 0, LogTurn.log
    def counted(*args):
        global calls
        calls += 1
        log(*args)
    LogTurn.log = counted
    # Thirty steps, and as many more as it takes on a crowded machine until rows were logged.
    while i < 29 or (calls < 6 and i < 1000):
        time.sleep(0.05)
        i += 1
        w.step(i, loss=1.0 / (i + 1))
"""


def run(code: str, tmp_path: Path, *needs: str, **environment: str) -> dict[str, Any]:
    """Run a program with frameworks; the JSON that it prints last."""
    for name in needs:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: pip install '.[integrations]'")
    offline = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "HF_HUB_OFFLINE": "1", "KERAS_BACKEND": "torch",
               "GIT_PYTHON_REFRESH": "quiet", "OMP_NUM_THREADS": "1",
               "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}  # fmt: skip
    code = DEMO + textwrap.dedent(code)
    done = ran(tmp_path, "-W", "ignore", "-c", code, timeout=280, **offline, **environment)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return {**found, "stderr": done.stderr}


def test_a_csv_log_grows_columns_and_keeps_every_row(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    log = CsvLog(path)
    log.log({"a": 1.0}, 1)
    log.log_texts({"verdict": "working, well"}, 1)
    log.log({"a": 2.0}, 2)
    log.log({"a": 3.0, "b": 4.0}, None)
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert [(r["step"], r["a"], r["b"]) for r in rows] == [
        ("1", "1.0", ""),
        ("2", "2.0", ""),
        ("", "3.0", "4.0"),
    ]
    assert [r["verdict"] for r in rows] == ["", "working, well", "working, well"]
    assert os.stat(path).st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        CsvLog(path)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("log", ["wandb.log", "wandb"])
def test_wandb_offline_holds_a_row_for_each_interval_of_a_loop_that_logs_nothing_itself(
    when: str, log: str, tmp_path: Path
) -> None:
    """Also where the watch was made before the run, and where the run is finished inside of the watch."""
    loop = LOOP.format(log=log).replace("with gputop", "w = gputop").replace(" as w:", "")
    made, rest = loop.strip().split("\n", 1)
    init = "run = wandb.init(project='p', dir='.')"
    steps = (made, init) if when == "before" else (init, made)
    found = run(
        "\n".join(
            [
                "import wandb, gputop",
                "from gputop.api.log_turn import LogTurn",
                *steps,
                "with w:",
                rest,
            ]
        )
        + "\n    wandb.finish(); begun = time.monotonic()\nprint(json.dumps({'end_s': time.monotonic() - begun}))\n",
        tmp_path,
        "wandb",
    )
    rows, summary = wandb_rows(tmp_path)
    rows = [row for row in rows if "loss" in row]
    assert (
        len(rows) >= 3
        and {*KEYS, "loss"} <= set().union(*rows)
        and "gputop/gpu0/verdict" in summary
    )
    assert [row["gputop/step"] for row in rows] == sorted({row["gputop/step"] for row in rows})
    assert found["end_s"] < 5.0 and "gputop: " not in found["stderr"]


@pytest.mark.slow
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


SLEEPING = {
    "lightning": LIGHTNING
    + """
from lightning.pytorch.loggers.logger import Logger
class Slow(Logger):
    name, version = "slow", 0
    def log_metrics(self, metrics, step): time.sleep(0.06)
    def log_hyperparams(self, *given): pass
class Late(L.Callback):
    def on_train_batch_end(self, *given): time.sleep(0.03)
    on_train_batch_start = on_train_batch_end
import pickle
call = GputopCallback(**demo())
for fetch_s in FETCHES:
    pickle.dumps(GputopCallback())  # as a spawned rank gets it
    class Batches(torch.utils.data.Dataset):
        def __len__(self): return 24
        def __getitem__(self, i): time.sleep(fetch_s); return (torch.zeros(4),)
    train = trainer(Slow(), call)
    train.callbacks = [Late(), *train.callbacks, Late()]
    train.fit(M(), torch.utils.data.DataLoader(Batches()))
    told(call)
""",
    "transformers": TRANSFORMERS
    + """
from transformers import TrainerCallback
class Late(TrainerCallback):
    def on_step_end(self, *given, **more): time.sleep(0.03)
    on_step_begin = on_log = on_step_end
call = GputopCallback(**demo())
for fetch_s in FETCHES:
    class Rows(torch.utils.data.Dataset):
        def __len__(self): return 60
        def __getitem__(self, i): time.sleep(fetch_s / 2); return {"x": torch.zeros(4), "labels": torch.zeros(1)}
    train = trainer([], Late(), call, Late())
    train.args.logging_steps = 1
    train.train()
    told(call)
""",
    "keras": """
import keras, numpy as np
from gputop.integrations.keras import GputopCallback
class Late(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None): time.sleep(0.03)
    on_train_batch_end = on_train_batch_begin
call = GputopCallback(**demo())
for fetch_s in FETCHES:
    class Batches(keras.utils.PyDataset):
        def __len__(self): return 20
        def __getitem__(self, i): time.sleep(fetch_s); return np.zeros((2, 4)), np.zeros((2, 1))
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(Batches(), epochs=2, verbose=0, callbacks=[Late(), call, Late()])
    told(call)
""",
}
FETCHES = """
FETCHES, found = (0.0, 0.05), []
def told(call):
    steps = call.summary.steps
    found.append([steps.data_wait_s, steps.data_wait_pct, steps.data_words])
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", SLEEPING)
def test_the_time_of_loggers_and_other_callbacks_is_no_wait_for_a_batch(
    name: str, tmp_path: Path
) -> None:
    """Each step has a logger or callbacks that sleep for 60 ms or more; the loader takes no time, then 50 ms."""
    found = run(FETCHES + SLEEPING[name] + "print(json.dumps({'found': found}))\n", tmp_path, name)[
        "found"
    ]
    (none_s, none_pct, text), (wait_s, _, told) = found
    assert none_s < 0.02 and none_pct < 10.0 and (none_pct >= 5.0 or "gputop loader" not in text), (
        found
    )
    assert 0.05 <= wait_s < 0.08 and "gputop loader finds" in told, wait_s


@pytest.mark.slow
def test_keras_lists_have_an_entry_for_each_epoch_and_verdicts_arrive_as_texts(
    tmp_path: Path,
) -> None:
    found = run(
        TRANSFORMERS
        + """
import os, keras, numpy as np, wandb, mlflow
from gputop.integrations.keras import GputopCallback as KerasCallback
class Batches(keras.utils.PyDataset):
    def __len__(self): return 20
    def __getitem__(self, i): time.sleep(0.01 if short else 0.06); return np.zeros((2, 4)), np.zeros((2, 1))
short = True
class Epoch(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        global short
        short = epoch < 3
class WandbLog(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None): wandb.log(logs)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
os.makedirs("keras", exist_ok=True)
wandb.init(project="keras", dir="keras")
history = model.fit(Batches(), epochs=6, verbose=1, callbacks=[
    KerasCallback(**demo()), Epoch(), WandbLog(), keras.callbacks.CSVLogger("log.csv")]).history
keras_said = wandb.run.summary.get("gputop/gpu0/verdict")
wandb.finish()
train = trainer(["tensorboard", "mlflow", "wandb"], GputopCallback(**demo()))
train.train()
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from pathlib import Path
read = EventAccumulator(str(next(Path("out/runs").iterdir()))); read.Reload()
flow = mlflow.active_run() or mlflow.last_active_run()
print(json.dumps({
    "lengths": {key: len(values) for key, values in history.items()}, "texts": history["gputop/gpu0/verdict"],
    "keras": keras_said, "board": read.Tags()["tensors"], "flow": list(mlflow.get_run(flow.info.run_id).data.tags),
    "wandb": wandb.run.summary.get("gputop/gpu0/verdict"), "history": train.state.log_history[-2]}))
""",
        tmp_path, "keras", "transformers", "wandb", "mlflow", "tensorboard",
    )  # fmt: skip
    assert set(found["lengths"].values()) == {6} and {"loss", *KEYS} <= set(found["lengths"])
    assert found["texts"][-1] == found["keras"] and isinstance(found["keras"], str)
    assert (
        "gputop/gpu0/verdict/text_summary" in found["board"]
        and "gputop.gpu0.verdict" in found["flow"]
    )
    assert isinstance(found["wandb"], str) and isinstance(
        found["history"]["gputop/gpu0/verdict"], str
    )
    rows = list(csv.DictReader((tmp_path / "log.csv").read_text().splitlines()))
    assert len(rows) == 6 and "not logged" not in found["stderr"]
