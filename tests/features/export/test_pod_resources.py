"""Names of pods from the kubelet's socket: read, bounded, and never waited for."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.cli import main
from gputop.features.export import pod_resources
from gputop.features.export.metrics_page import PageChoice
from gputop.features.export.pod_resources import (
    METHOD,
    PodContainer,
    PodResources,
    ProtobufError,
    parse,
    pod_family,
)
from gputop.model.snapshot import GpuSample, GpuStatic, Machine, Snapshot
from gputop.model.source import UsageError
from tests.support.exported import Clock, feed, read


def field(number: int, content: bytes | str) -> bytes:
    """One length-delimited field."""
    data = content.encode() if isinstance(content, str) else content
    size, head = len(data), bytearray([number << 3 | 2])
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*head, size]) + data


def pod(
    namespace: str, name: str, container: str, *devices: str, resource: str = "nvidia.com/gpu"
) -> bytes:
    """A PodResources as kubelets send them, with the parts that nobody asks for here."""
    given = b"".join(field(2, device) for device in devices)
    topology = field(3, field(1, b"\x08\x01"))
    inner = field(1, container) + field(2, field(1, resource) + given + topology)
    # Packed cpu_ids (3), and a field of a later version, a fixed64.
    inner += field(3, b"\x00\x01\x02") + b"\x79" + b"\x00" * 8
    return field(1, field(1, name) + field(2, namespace) + field(3, inner) + b"\x20\x96\x01")


def test_gpus_instances_and_replicas_are_told_by_their_uuid() -> None:
    answer = (
        pod("team-a", "train-0", "main", "GPU-0", "GPU-1")
        + pod("team-b", "infer-0", "server", "MIG-7", resource="nvidia.com/mig-1g.10gb")
        + pod("team-b", "infer-1", "server", "GPU-2::0")
        + pod("team-b", "infer-2", "server", "GPU-2::1")
        + pod("kube-system", "dns", "dns")
    )
    assert parse(answer) == {
        "GPU-0": [PodContainer("team-a", "train-0", "main")],
        "GPU-1": [PodContainer("team-a", "train-0", "main")],
        "MIG-7": [PodContainer("team-b", "infer-0", "server")],
        "GPU-2": [
            PodContainer("team-b", "infer-1", "server"),
            PodContainer("team-b", "infer-2", "server"),
        ],
    }
    assert parse(b"") == {}
    with pytest.raises(ProtobufError, match="breaks off"):
        parse(answer[:-3])


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 200))
def test_any_answer_is_read_or_refused_in_one_line(noise: bytes, cut: int) -> None:
    for answer in (
        noise,
        pod("n", "p", "c", "GPU-0")[:cut],
        pod("n", "p", "c", "GPU-0")[:cut] + noise,
    ):
        try:
            parse(answer)
        except ProtobufError as error:
            assert "\n" not in str(error)


def test_the_pods_of_present_gpus_are_a_family_of_their_own_with_clean_labels() -> None:
    pods = {"GPU-0": [PodContainer("team-a", 'tr"ain\x1b[31m\n' + "x" * 300, "main")], "GPU-9": []}
    given_feed = feed(PageChoice(False, (partial(pod_family, lambda: pods),)))
    given_feed.take(
        Snapshot(1.0, Machine("n1"), (GpuSample(GpuStatic(0, "GPU-0", "H100"), util_pct=1.0),))
    )
    text = given_feed.page()
    assert "\x1b" not in text
    (labels,) = read(text)["gputop_pod_info"]
    assert dict(labels)["k8s_namespace_name"] == "team-a" and dict(labels)["uuid"] == "GPU-0"
    assert len(dict(labels)["k8s_pod_name"]) == 128
    assert not {"pod", "namespace", "container"} & {name for name, _ in labels}


def test_what_cannot_be_asked_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    for words in (
        ["demo", "--pod-resources", str(plain)],
        ["--pod-resources", str(plain)],
        ["--pod-resources", "/no"],
    ):
        assert main(["export", "--once", *words]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert main(["export", "--once", "--redact", "--pod-resources", str(plain)]) == 2
    assert "redact" in capsys.readouterr().err
    monkeypatch.setattr(pod_resources, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"\[export\]'"):
        PodResources(str(plain), print)


def test_an_old_answer_is_believed_no_more_and_a_failure_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, said, clock = str(tmp_path / "kubelet.sock"), list[str](), Clock()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        asked = PodResources(path, said.append, clock)
    monkeypatch.setattr(pod_resources, "_listed", lambda _: pod("n", "p", "c", "GPU-0"))
    asked.ask()
    assert list(asked.newest()) == ["GPU-0"]

    def refused(_: str) -> bytes:
        raise OSError("the kubelet does not answer (UNAVAILABLE)")

    monkeypatch.setattr(pod_resources, "_listed", refused)
    for clock.now in (10.0, 20.0, 59.0):
        asked.ask()
        assert list(asked.newest()) == ["GPU-0"]
    clock.now = 60.0
    assert asked.newest() == {}
    assert len(said) == 1 and "UNAVAILABLE" in said[0]

    def surprising(_: str) -> bytes:
        raise RecursionError("too deep")

    monkeypatch.setattr(pod_resources, "_listed", surprising)
    asked.ask()
    assert "RecursionError: too deep; retrying" in said[-1], (
        "the thread goes on after what nobody thought of"
    )


Answer = Callable[[], bytes]


@contextmanager
def kubelet(path: str, answer: Answer) -> Iterator[None]:
    """A gRPC server on a socket that answers List with these bytes."""
    import grpc

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: Any) -> Any:
            if details.method != METHOD:
                return None
            return grpc.unary_unary_rpc_method_handler(lambda request, context: answer())

    server = grpc.server(ThreadPoolExecutor(2), [Handler()])
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()


@pytest.mark.slow
def test_a_real_grpc_server_is_asked_and_a_hostile_one_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, said = str(tmp_path / "kubelet.sock"), list[str]()
    let_go = threading.Event()
    answers: list[Answer] = [lambda: pod("team-a", "train-0", "main", "GPU-0")]
    monkeypatch.setattr(pod_resources, "TIMEOUT_S", 20.0)
    with kubelet(path, lambda: answers[0]()):
        asked = PodResources(path, said.append)
        asked.ask()
        assert asked.newest() == {"GPU-0": [PodContainer("team-a", "train-0", "main")]} and not said
        hostile: list[tuple[Answer, str]] = [
            (lambda: b"\xff" * 100, "no message|no number"),
            (lambda: field(1, b"x" * (5 << 20)), "RESOURCE_EXHAUSTED"),
            (lambda: (let_go.wait(60), b"")[1], "DEADLINE_EXCEEDED"),
        ]
        for answer, reason in hostile:
            answers[0] = answer
            if "DEADLINE" in reason:
                monkeypatch.setattr(pod_resources, "TIMEOUT_S", 1.0)
            begun = time.monotonic()
            asked.ask()
            assert time.monotonic() - begun < 20.0
            assert any(part in said[-1] for part in reason.split("|")), said
        let_go.set()
        assert asked.newest(), "the last good answer stands for a minute"
    asked.ask()
    assert "UNAVAILABLE" in said[-1]
    with kubelet(path, lambda: pod("team-a", "train-1", "main", "GPU-0")):
        # gRPC itself may wait for a second before it connects again.
        deadline = time.monotonic() + 60.0
        while asked.newest()["GPU-0"][0].pod != "train-1":
            assert time.monotonic() < deadline, "a kubelet that was started again is found"
            asked.ask()
    # One that takes the connection and never says a word.
    Path(path).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        begun = time.monotonic()
        asked.ask()
        assert time.monotonic() - begun < 20.0 and said[-1].count("\n") == 0
