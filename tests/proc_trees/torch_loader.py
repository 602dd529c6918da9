"""Run as a script: a real PyTorch DataLoader with two workers that is iterated for ever.

``torch_loader.py METHOD ACTION``: METHOD is fork, spawn or forkserver; ACTION is what is slow: burn, the workers, or
idle, the main program, which pins its memory too. Writes ``ready`` when the first batch has come.
"""

from __future__ import annotations

import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Items(Dataset[torch.Tensor]):
    def __init__(self, action: str) -> None:
        self.action = action

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        end = time.perf_counter() + (0.02 if self.action == "burn" else 0.0)
        while time.perf_counter() < end:
            sum(range(1000))
        return torch.zeros(8)


def main(method: str, action: str) -> None:
    loader = DataLoader(
        Items(action),
        batch_size=4,
        num_workers=2,
        pin_memory=action == "idle",
        multiprocessing_context=method,
        persistent_workers=True,
    )
    told = False
    while True:
        for _ in loader:
            if not told:
                print("ready", flush=True)
                told = True
            if action == "idle":
                time.sleep(0.5)


if __name__ == "__main__":
    main(*sys.argv[1:])
