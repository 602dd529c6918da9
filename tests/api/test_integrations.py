"""Callbacks and loggers against the frameworks themselves, offline; what is not installed is named."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from gputop.integrations.csv import CsvLog
from tests.support.wandb_file import wandb_rows

ROOT = Path(__file__).parents[2]
KEYS = ("gputop/gpu0/util_pct", "gputop/gpu0/sm_active_pct", "gputop/step_ms")
DEMO = """
import sys, json, time
from gputop.sources.simulation.simulated import SimulatedSource
def demo(**more):
    return dict(interval=0.1, gpus="all", source=SimulatedSource(interval_s=0.1), log_every=0.2, **more)
"""
"""A watch on simulated GPUs: there is none where these tests run."""


def run(code: str, tmp_path: Path, needs: str, **environment: str) -> dict[str, Any]:
    """Run a program with a framework; the JSON that it prints last."""
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed: pip install '.[integrations]'")
    offline = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "HF_HUB_OFFLINE": "1", "KERAS_BACKEND": "torch",
               "GIT_PYTHON_REFRESH": "quiet", "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DEMO + textwrap.dedent(code)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), **offline, **environment},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
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
    assert [(r["step"], r["a"], r["b"]) for r in rows] == [("1", "1.0", ""), ("2", "2.0", ""), ("", "3.0", "4.0")]
    assert [r["verdict"] for r in rows] == ["", "working, well", "working, well"]
    assert os.stat(path).st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        CsvLog(path)


def test_a_csv_of_weeks_is_on_the_disk_and_not_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "gputop.csv"
    log = CsvLog(path)
    for step in range(300):
        log.log({"a": 1.0, "text, with\nlines": float(step)}, step)
    log.log({"late": 2.0}, 300)
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert [row["step"] for row in rows] == [str(step) for step in range(301)]
    assert rows[-1]["late"] == "2.0" and rows[0]["late"] == "" and rows[299]["text, with\nlines"] == "299.0"
    assert sum(len(value) for value in vars(log).values() if isinstance(value, (list, dict))) < 10
    assert [each.name for each in tmp_path.iterdir()] == ["gputop.csv"] and os.stat(path).st_mode & 0o777 == 0o600
    path.unlink()
    with pytest.raises(OSError, match=r"gputop\.csv"):
        log.log({"later": 1.0}, 301)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_lightning_logs_the_gpus_into_its_own_logger(tmp_path: Path) -> None:
    found = run(
        """
        import torch, lightning as L
        from lightning.pytorch.loggers import CSVLogger
        from gputop.integrations.lightning import GputopCallback
        class M(L.LightningModule):
            def __init__(self): super().__init__(); self.l = torch.nn.Linear(4, 1)
            def training_step(self, b, i): time.sleep(0.04); return self.l(b[0]).mean()
            def validation_step(self, b, i): time.sleep(0.02)
            def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)
        class Waits(torch.utils.data.Dataset):
            def __len__(self): return 40
            def __getitem__(self, i): time.sleep(0.02); return (torch.zeros(4),)
        data = torch.utils.data.DataLoader(Waits(), batch_size=2)
        valid = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(40, 4)), batch_size=2)
        call = GputopCallback(**demo())
        L.Trainer(max_epochs=1, val_check_interval=5, num_sanity_val_steps=0,
                  callbacks=[call], logger=CSVLogger("."), enable_progress_bar=False,
                  enable_model_summary=False, accelerator="cpu").fit(M(), data, valid)
        import csv, glob
        rows = list(csv.DictReader(open(glob.glob("lightning_logs/*/metrics.csv")[0])))
        print(json.dumps({"keys": list(rows[0]), "steps": call.summary.steps.count,
              "wait": call.summary.steps.data_wait_s, "share": call.summary.steps.data_wait_pct}))
        """,
        tmp_path,
        "lightning",
    )
    assert set(KEYS) <= set(found["keys"]) and found["steps"] == 20
    # Two samples of 20 ms are at least what a batch takes; twenty validation batches of 20 ms after each fifth are no
    # part of it, and a third of the time at least.
    assert found["wait"] >= 0.04 and found["share"] < 60.0
    assert "for its batch" in found["stderr"] and "gputop loader finds" in found["stderr"]
    assert "gputop itself:" in found["stderr"]


@pytest.mark.slow
def test_transformers_gets_the_means_in_its_log_lines(tmp_path: Path) -> None:
    found = run(
        """
        import torch
        from transformers import Trainer, TrainingArguments
        from gputop.integrations.transformers import GputopCallback
        class M(torch.nn.Module):
            def __init__(self): super().__init__(); self.l = torch.nn.Linear(4, 1)
            # Steps are worked out once a second: each stretch between two log lines must hold such a moment.
            def forward(self, x, labels=None): time.sleep(0.2); return {"loss": self.l(x).pow(2).mean()}
        class Waits(torch.utils.data.Dataset):
            def __len__(self): return 40
            def __getitem__(self, i): time.sleep(0.02); return {"x": torch.zeros(4), "labels": torch.zeros(1)}
        data = Waits()
        call = GputopCallback(**demo())
        t = Trainer(M(), TrainingArguments("out", per_device_train_batch_size=2, max_steps=16, logging_steps=8,
                    report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no"), train_dataset=data,
                    callbacks=[call])
        t.train()
        logs = [entry for entry in t.state.log_history if "loss" in entry]
        print(json.dumps({"keys": list(logs[-1]), "steps": call.summary.steps.count,
              "samples": call.summary.rates.samples_per_s * call.summary.steps.mean_s,
              "wait": call.summary.steps.data_wait_s, "share": call.summary.steps.data_wait_pct}))
        """,
        tmp_path,
        "transformers",
    )
    assert found["steps"] == 16 and found["samples"] == pytest.approx(2.0)
    assert set(KEYS) <= set(found["keys"])
    # Two samples of 20 ms, beside a step of 200 ms.
    assert found["wait"] >= 0.04 and found["share"] < 50.0


@pytest.mark.slow
def test_keras_gets_the_means_at_the_end_of_an_epoch(tmp_path: Path) -> None:
    found = run(
        """
        import numpy as np, keras
        from gputop.integrations.keras import GputopCallback
        class Slow(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None): time.sleep(0.06)
        class Waits(keras.utils.PyDataset):
            def __len__(self): return 20
            def __getitem__(self, i): time.sleep(0.03); return np.zeros((2, 4)), np.zeros((2, 1))
        m = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        m.compile("sgd", "mse")
        call = GputopCallback(**demo())
        h = m.fit(Waits(), epochs=2, verbose=0, callbacks=[call, Slow()])
        print(json.dumps({"keys": list(h.history), "steps": call.summary.steps.count,
              "wait": call.summary.steps.data_wait_s, "share": call.summary.steps.data_wait_pct}))
        """,
        tmp_path,
        "keras",
    )
    assert found["steps"] == 40
    assert set(KEYS) <= set(found["keys"])
    # 30 ms a batch beside 60 ms of another callback, after the batch has come.
    assert found["wait"] >= 0.03 and found["share"] < 60.0


LOOP = """
with gputop.watch(log={log}, **demo()) as w:
    i, seen = -1, 0
    # Thirty steps, and as many more as it takes on a crowded machine until there was something to log.
    while i < 29 or seen < 10:
        time.sleep(0.05)
        i += 1
        seen += w.latest is not None
        w.step(i, loss=1.0 / (i + 1))
"""


@pytest.mark.slow
def test_wandb_offline_holds_the_numbers_and_the_verdict_of_a_loop_that_logs_nothing_itself(tmp_path: Path) -> None:
    found = run(
        "import wandb, gputop\nrun = wandb.init(project='p', dir='.')\n"
        + LOOP.format(log="wandb.log")
        + "run.finish()\nprint('{}')\n",
        tmp_path,
        "wandb",
    )
    (row,), summary = wandb_rows(tmp_path)
    assert {*KEYS, "loss"} <= set(row) and "gputop/gpu0/verdict" in summary
    assert found["stderr"].count("the loop has logged nothing to the W&B run") == 1


@pytest.mark.slow
def test_mlflow_holds_the_numbers_by_step_and_the_verdict_as_a_tag(tmp_path: Path) -> None:
    found = run(
        "import mlflow, gputop\nwith mlflow.start_run() as run:\n"
        # Before the first step the watch's own thread logs, where MLflow knows no run.
        + textwrap.indent(
            LOOP.format(log="mlflow").replace("i, seen = -1, 0", "i, seen = -1, 0; time.sleep(2)"), "    "
        )
        + "client, of = mlflow.MlflowClient(), run.info.run_id\ndata = client.get_run(of).data\n"
        "steps, losses = ([m.step for m in client.get_metric_history(of, key)] for key in "
        "('gputop/gpu0/util_pct', 'loss'))\n"
        "runs = len(client.search_runs([run.info.experiment_id]))\n"
        "print(json.dumps({'keys': list(data.metrics), 'steps': steps, 'tags': list(data.tags), 'last': i,"
        " 'losses': losses, 'runs': runs}))\n",
        tmp_path,
        "mlflow",
    )
    assert {*KEYS, "loss"} <= set(found["keys"])
    # The last call holds what the loop gave; on a crowded machine no snapshot may have come since the one before.
    assert found["steps"] == sorted(found["steps"]) and found["losses"][-1] == found["last"]
    assert "gputop.gpu0.verdict" in found["tags"]
    assert found["runs"] == 1


@pytest.mark.slow
def test_tensorboard_holds_the_numbers_and_the_verdict(tmp_path: Path) -> None:
    found = run(
        "import gputop\nfrom torch.utils.tensorboard import SummaryWriter\nboard = SummaryWriter('tb')\n"
        + LOOP.format(log="board")
        + "board.close()\n"
        "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
        "read = EventAccumulator('tb'); read.Reload(); tags = read.Tags()\n"
        "print(json.dumps({'keys': tags['scalars'], 'texts': tags['tensors']}))\n",
        tmp_path,
        "tensorboard",
    )
    assert {*KEYS, "loss"} <= set(found["keys"])
    assert "gputop/gpu0/verdict/text_summary" in found["texts"]
