"""A snapshot full of names, and the check that none of them is left."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.model.sm import SmLack
from gputop.model.snapshot import CgroupName, Event, ProcessStatic, Snapshot
from gputop.sources.simulation.life import slurm
from tests.support.scenes import gpu, snap, train

UUID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
PRIVATE = (
    "alice",
    "tesla07",
    "corp.example",
    "/home",
    "/data",
    "secret-project",
    UUID,
    "10.20.30.40",
    "9f8e7d6c5b4a",
)


def private_snapshot(t: float = 0.0) -> Snapshot:
    """A snapshot that names users, hosts, jobs, paths and UUIDs wherever a text can stand."""
    text = (
        f"alice on tesla07 and tesla07.corp.example: /data/secret-project/x.py, pod {UUID}, "
        "http://10.20.30.40:9400/m"
    )
    static = ProcessStatic(
        "alice", "/home/alice/bin/python /data/secret-project/train.py", "python", slurm(8821),
        CgroupName("pod", UUID), "torch",
        f"R1 comm {text}", None, "f00d",
    )  # fmt: skip
    other = replace(static, user="bob", contained_in=CgroupName("docker", "9f8e7d6c5b4a"))
    first = gpu(0, unavailable={"power_w": text}, sm_lack=SmLack((text,), text), lost_reason=None)
    second = gpu(1)
    snapshot = snap(
        t,
        [
            replace(first, static=replace(first.static, uuid=f"GPU-{UUID}")),
            replace(second, static=replace(second.static, uuid="MIG-x", mig_parent=f"GPU-{UUID}")),
        ],
        [
            train(0, static=static, unavailable={"read_bytes_per_s": text}),
            train(1, static=other),
            train(1, static=static, pid=7),
        ],
    )
    machine = replace(snapshot.machine, hostname="tesla07.corp.example", boot_id=UUID)
    return replace(
        snapshot, machine=machine, notices=(text,), events=(Event(snapshot.t, "mark", text),)
    )


def assert_private(text: str) -> None:
    for word in PRIVATE:
        assert word not in text, word
