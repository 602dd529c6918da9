"""Memory snapshots as PyTorch writes them, by an allocator of a few lines: segments, first fit, blocks of 512 bytes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

ROUND = 512
BASE = 0x7F00_0000_0000

TRAIN = [("/home/ml/train.py", "main", 10), ("/home/ml/train.py", "<module>", 90)]
"""The outer frames of every stack."""


def frames(*inner: tuple[str, str, int]) -> list[dict[str, Any]]:
    """A stack, innermost first: (file, function, line)."""
    return [{"filename": file, "name": name, "line": line} for file, name, line in (*inner, *TRAIN)]


FORWARD = frames(
    ("/venv/lib/python3.11/site-packages/torch/nn/functional.py", "linear", 2000),
    ("/home/ml/model.py", "forward", 42),
    ("/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", "_call_impl", 1500),
)
OPTIMIZER = frames(("/venv/lib/python3.11/site-packages/torch/optim/adamw.py", "_init_group", 150))
BACKWARD = [{"filename": "??", "name": "torch::autograd::Engine::thread_main", "line": 0}]
PARAMETERS = frames(("/venv/lib/python3.11/site-packages/torch/nn/parameter.py", "__new__", 40))


class Allocator:
    """Writes its events; ``t`` is microseconds. Sizes are bytes."""

    def __init__(self, device_bytes: int = 1 << 40) -> None:
        self.events: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []
        self.segments: list[dict[str, Any]] = []
        self.device_bytes = device_bytes
        self.t = 1_780_000_000_000_000
        self._next = BASE

    @property
    def reserved(self) -> int:
        return sum(segment["total_size"] for segment in self.segments)

    def _event(
        self, action: str, addr: int, size: int, stack: list[dict[str, Any]], **more: Any
    ) -> None:
        self.t += 1
        self.events.append(
            {
                "action": action,
                "addr": addr,
                "size": size,
                "stream": 0,
                "time_us": self.t,
                "frames": stack,
                **more,
            }
        )

    def step(self, name: str = "Optimizer.step#AdamW.step") -> None:
        self.t += 1
        for stage in ("START", "END"):
            self.annotations.append({"stage": stage, "name": name, "device": 0, "time_us": self.t})

    def alloc(self, size: int, stack: list[dict[str, Any]]) -> int:
        """The address of a new block, or 0 where there is no room."""
        room = -(-size // ROUND) * ROUND
        for segment in self.segments:
            for at, block in enumerate(segment["blocks"]):
                if block["state"] == "inactive" and block["size"] >= room:
                    rest = block["size"] - room
                    taken = self._block(block["address"], room, size, stack)
                    left = (
                        [{**block, "address": block["address"] + room, "size": rest}]
                        if rest
                        else []
                    )
                    segment["blocks"][at : at + 1] = [taken, *left]
                    self._event("alloc", taken["address"], size, stack)
                    return int(taken["address"])
        total = -(-room // (2 << 20)) * (2 << 20)
        if self.reserved + total > self.device_bytes:
            self._event("oom", 0, size, stack, device_free=self.device_bytes - self.reserved)
            return 0
        segment = {
            "device": 0, "address": self._next, "total_size": total, "stream": 0, "segment_type": "large",
            "blocks": [self._free(self._next, total)],
        }  # fmt: skip
        self._next += total + (1 << 30)
        self.segments.append(segment)
        self._event("segment_alloc", segment["address"], total, stack)
        return self.alloc(size, stack)

    @staticmethod
    def _block(address: int, size: int, asked: int, stack: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "address": address, "size": size, "requested_size": asked, "state": "active_allocated", "frames": stack,
        }  # fmt: skip

    @staticmethod
    def _free(address: int, size: int) -> dict[str, Any]:
        return {
            "address": address,
            "size": size,
            "requested_size": 0,
            "state": "inactive",
            "frames": [],
        }

    def free(self, address: int) -> None:
        for segment in self.segments:
            for at, block in enumerate(segment["blocks"]):
                if block["address"] == address and block["state"] != "inactive":
                    for action in ("free_requested", "free_completed"):
                        self._event(action, address, block["requested_size"], block["frames"])
                    segment["blocks"][at] = self._free(address, block["size"])
                    self._merge(segment)
                    return
        raise AssertionError("freed what is not there")

    @classmethod
    def _merge(cls, segment: dict[str, Any]) -> None:
        merged: list[dict[str, Any]] = []
        for block in segment["blocks"]:
            if merged and merged[-1]["state"] == block["state"] == "inactive":
                merged[-1] = cls._free(merged[-1]["address"], merged[-1]["size"] + block["size"])
            else:
                merged.append(block)
        segment["blocks"] = merged

    def snapshot(self, last: int | None = None) -> dict[str, Any]:
        """As torch.cuda.memory._snapshot gives it; of the events only the last ones, as from a full ring."""
        events = self.events if last is None else self.events[len(self.events) - last :]
        return {
            "segments": self.segments,
            "device_traces": [events],
            "allocator_settings": {"expandable_segments": False},
            "external_annotations": self.annotations,
        }


def dumped(path: Path, snapshot: Any) -> Path:
    """The file of a snapshot, as torch.cuda.memory._dump_snapshot writes it."""
    path.write_bytes(pickle.dumps(snapshot))
    return path
