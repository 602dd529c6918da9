"""What an offline run of W&B has written, read by W&B's own messages: the rows of its history, and its summary."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_BLOCK, _FILE_HEAD, _HEAD = 32 * 1024, 7, 7
"""The file is a log of LevelDB's form behind a head of its own: blocks of records, each behind checksum, length, kind.
https://github.com/google/leveldb/blob/main/doc/log_format.md"""
_WHOLE, _FIRST, _LAST = 1, 2, 4


def wandb_rows(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of the history, each with ``_step``, and the newest summary, of the one run below the folder."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    rows: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    for data in _records(path.read_bytes()):
        record = Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            row = {_key(item): json.loads(item.value_json) for item in record.history.item}
            rows.append({"_step": record.history.step.num, **row})
        if record.HasField("summary"):
            summary.update(
                {_key(item): json.loads(item.value_json) for item in record.summary.update}
            )
    return rows, summary


def _key(item: Any) -> str:
    return str(item.key or "/".join(item.nested_key))


def _records(data: bytes) -> Iterator[bytes]:
    at, parts = _FILE_HEAD, b""
    while at + _HEAD <= len(data):
        left = _BLOCK - at % _BLOCK
        if left < _HEAD:
            at += left
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        part = data[at + _HEAD : at + _HEAD + length]
        at += _HEAD + length
        parts = part if kind in (_WHOLE, _FIRST) else parts + part
        if kind in (_WHOLE, _LAST):
            yield parts
