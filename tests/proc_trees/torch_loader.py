"""Run as a script: a real PyTorch DataLoader that is iterated for ever.

``torch_loader.py METHOD WORKERS PIN PERSISTENT ACTION``: METHOD is fork, spawn or forkserver; PIN and PERSISTENT are
0 or 1; ACTION is what the workers do with each item: burn, sleep or idle (the main program is the slow part). Writes
``ready`` when the first batch has come.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset


class Items(Dataset[torch.Tensor]):
    def __init__(self, action: str) -> None:
        self.action = action

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.action == "burn":
            end = time.perf_counter() + 0.02
            while time.perf_counter() < end:
                sum(range(1000))
        elif self.action == "sleep":
            time.sleep(0.05)
        return torch.zeros(8)


def main(method: str, workers: int, pin: bool, persistent: bool, action: str) -> None:
    only_with_workers: dict[str, Any] = (
        {"multiprocessing_context": method, "persistent_workers": persistent} if workers else {}
    )
    loader = DataLoader(Items(action), batch_size=4, num_workers=workers, pin_memory=pin, **only_with_workers)
    told = False
    while True:
        for _ in loader:
            if not told:
                print("ready", flush=True)
                told = True
            if action == "idle":
                time.sleep(0.5)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "1", sys.argv[4] == "1", sys.argv[5])
