"""Dumps of PyTorch's flight recorder: which rank did not come, who entered another collective, and hostile files."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gputop.features.traces.flight_recorder import FlightReport, compare_ranks, flight_document, flight_dumps
from gputop.output.document import plain
from tests.support.command import gputop, is_one_line
from tests.support.engines import free_port

FRAMES = [
    {"name": "all_reduce", "filename": "/x/site-packages/torch/distributed/distributed_c10d.py", "line": 3245},
    {"name": "step", "filename": "/home/me/train.py", "line": 41},
    {"name": "<module>", "filename": "/home/me/train.py", "line": 90},
]


def entry(seq: int, op: str = "all_reduce", sizes: Any = ((4, 3),), group: str = "0", ended: bool = True) -> Any:
    description = "default_pg" if group == "0" else "undefined"
    return {"record_id": seq - 1, "process_group": (group, description), "collective_seq_id": seq, "is_p2p": False,
            "profiling_name": f"nccl:{op}", "input_sizes": [list(size) for size in sizes], "input_dtypes": ["Float"],
            "state": "completed" if ended else "started", "retired": ended, "frames": FRAMES}  # fmt: skip


def dumped(folder: Path, *ranks: list[Any], members: str = "", form: str = "pickle", **more: Any) -> str:
    folder.mkdir(exist_ok=True)
    for rank, entries in enumerate(ranks):
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": members}} if members else {}
        data = {"version": "2.10", "pg_config": config, "entries": entries, **more}
        if form == "pickle":
            (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(data, protocol=2))
        else:
            (folder / f"rank_{rank}.json").write_text(json.dumps(dict(sorted(data.items()))))
    return str(folder)


def said(path: str) -> tuple[FlightReport, str]:
    dumps = flight_dumps([path])
    assert dumps is not None
    report = compare_ranks(dumps)
    return report, " ".join(plain(flight_document(report)).split())


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_the_rank_that_did_not_come_is_named_with_the_collective_and_where_it_is(tmp_path: Path, form: str) -> None:
    came = [entry(1), entry(2), entry(3, ended=False)]
    report, text = said(dumped(tmp_path / "d", came, [entry(1), entry(2)], came, form=form))
    (parting,) = report.partings
    assert ([place.rank for place in parting.missing], parting.seq) == ([1], 3)
    assert "rank 1 DID NOT COME: group 0 (default_pg), collective 3, all_reduce [4×3] Float" in text
    assert "ranks 0, 2 wait in it, from train.py:41 step < train.py:90 <module>" in text
    assert "rank 1 was last in 0 (default_pg), collective 2: all_reduce [4×3] Float, from train.py:41" in text


def test_who_entered_another_operation_or_other_sizes_is_named_and_uneven_sizes_where_they_may_be_are_not(
    tmp_path: Path,
) -> None:
    usual, other = [entry(1), entry(2, ended=False)], [entry(1), entry(2, "broadcast", ended=False)]
    assert "rank 2 ENTERED ANOTHER COLLECTIVE" in said(dumped(tmp_path / "op", usual, usual, other))[1]
    larger = [entry(1), entry(2, sizes=[(8, 3)], ended=False)]
    assert "rank 2 entered all_reduce [8×3] Float" in said(dumped(tmp_path / "size", usual, usual, larger))[1]
    uneven = [[entry(1, "all_to_all", [(rank + 1,)], ended=False)] for rank in range(2)]
    report, text = said(dumped(tmp_path / "uneven", *uneven))
    assert (
        not report.partings and "all ranks have entered collective 1, all_to_all [1] Float, and it does not end" in text
    )


def test_the_group_whose_missing_rank_waits_nowhere_else_is_told_first(tmp_path: Path) -> None:
    # Rank 1 is missing in the default group because it waits in another one, to which rank 2 did not come.
    waits_in_tp = [entry(1, group="tp"), entry(2, group="tp", ended=False)]
    report, _ = said(dumped(tmp_path / "d", [entry(1, ended=False)], waits_in_tp, [entry(1, group="tp")]))
    assert [(parting.group, [place.rank for place in parting.missing]) for parting in report.partings] == [
        ("tp", [2]), ("0 (default_pg)", [1, 2]),
    ]  # fmt: skip


def test_what_a_ring_has_lost_and_ranks_without_a_dump_are_not_taken_for_missing(tmp_path: Path) -> None:
    lost = [{**entry(7, group="tp"), "record_id": 90}]
    report, _ = said(dumped(tmp_path / "ring", [entry(5), entry(6)], [entry(6)], lost))
    assert not report.partings, "rank 2's ring no longer holds the default group"
    report, text = said(dumped(tmp_path / "absent", [entry(1)], [entry(1)], members="[0, 1, 2]"))
    assert not report.partings and "no dump of rank 2: whether it came cannot be said" in text


class _Runs:
    def __reduce__(self) -> Any:
        return (os.mkdir, ("ran",))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "3.0"}, "of version 3.0, and 2.x is known"),
        ({"entries": [{"is_p2p": False}]}, "is not a dump that PyTorch writes"),
        ({"pg_config": {"0": {"ranks": "[0, 1"}}}, "is not a dump that PyTorch writes"),
        ({"more": _Runs()}, "a pickle can run code"),
    ],
)
def test_hostile_and_foreign_dumps_are_one_line_and_nothing_in_them_is_run(
    change: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = gputop("trace", dumped(tmp_path / "d", [entry(1)], [entry(1)], **change))
    assert done.returncode == 2 and is_one_line(done.stderr) and words in done.stderr
    assert not (tmp_path / "ran").exists()


def test_one_dump_two_of_one_rank_and_a_nameless_one_are_refused(tmp_path: Path) -> None:
    folder = dumped(tmp_path / "d", [entry(1)], [entry(1)])
    one = f"{folder}/nccl_trace_rank_0"
    for paths, words in (((one,), "one rank alone"), ((one, one), "both of rank 0")):
        done = gputop("trace", *paths)
        assert done.returncode == 2 and words in done.stderr and is_one_line(done.stderr)
    (tmp_path / "dump").write_bytes(Path(one).read_bytes())
    assert "must end with the rank" in gputop("trace", str(tmp_path / "dump"), one).stderr
    assert "have no steps" in gputop("trace", folder, "--steps", "3").stderr
    assert gputop("trace", folder, "--json").returncode == 0


def test_a_hostile_group_writes_nothing_on_a_terminal_from_the_data_either(tmp_path: Path) -> None:
    came, hostile = [entry(1, group="a\u202eb"), entry(2, group="a\u202eb", ended=False)], "\u202e"
    done = gputop("trace", dumped(tmp_path / "d", came, came[:1]), "--json")
    assert done.returncode in (0, 1) and '"name": "a' in done.stdout and hostile not in done.stdout


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_the_recorder_of_torch_itself_is_read(tmp_path: Path) -> None:
    """Gloo's collectives on the CPU: the recorder is the one that NCCL's use."""
    (tmp_path / "program.py").write_text(
        "import os, time, torch, torch.distributed as dist, torch._C._distributed_c10d as c10d\n"
        "dist.init_process_group('gloo'); rank = dist.get_rank(); x = torch.ones(4, 3); dist.all_reduce(x)\n"
        "waits = dist.all_reduce(x, async_op=True) if rank != 1 else None\n"
        f"time.sleep(1); path = {str(tmp_path)!r} + f'/dumps/nccl_trace_rank_{{rank}}'\n"
        "open(path, 'wb').write(c10d._dump_fr_trace(True, True, False)); os._exit(0)\n"
    )
    (tmp_path / "dumps").mkdir()
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=3", f"--master-port={free_port()}",
         str(tmp_path / "program.py")],
        env={**os.environ, "TORCH_FR_BUFFER_SIZE": "100"}, timeout=150, check=False, capture_output=True,
    )  # fmt: skip
    report, text = said(str(tmp_path / "dumps"))
    assert "rank 1 DID NOT COME: group 0 (default_pg), collective 2, all_reduce [4×3] Float" in text
    assert "ranks 0, 2 wait in it, from program.py:3 <module>" in text and len(report.partings) == 1
