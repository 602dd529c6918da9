"""Lightning: its Trainer drives the loop, and the DataLoader's workers decode."""

from __future__ import annotations

from typing import Any

from tests.e2e.case import Case
from tests.e2e.cases.torch_decode import Images
from tests.e2e.job import Gpu

REQUIREMENTS = ("lightning>=2.5,<3",)
CASE = Case(("dataloader_cpu",), ("cpu", "queued"), 2, cores=2.0)


def main(gpu: Gpu) -> None:
    import lightning
    import torch
    from torch.utils.data import DataLoader

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def training_step(self, batch: Any, index: int) -> Any:
            gpu.step(0.05)
            return self.layer(torch.zeros(1, 4)).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = lightning.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, max_epochs=1
    )
    trainer.fit(Model(), DataLoader(Images(), batch_size=None, num_workers=2))
