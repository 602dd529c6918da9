"""Pods that hold GPUs, from the kubelet's pod-resources socket.

https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/
"""

from __future__ import annotations

import os
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from msgspec import Struct

from gputop.features.export.exposition import TextPage, labels
from gputop.features.export.metrics_page import gpu_labels
from gputop.model.clean_text import clean_text
from gputop.model.extras import install
from gputop.model.snapshot import GpuSample
from gputop.model.source import UsageError
from gputop.system.worker import Worker

_VARINT, _I64, _LEN, _I32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


class ProtobufError(Exception):
    """Why bytes are not a message, in one line."""


def message(data: bytes) -> dict[int, list[bytes]]:
    """The contents of each length-delimited field by its number. Raises ProtobufError."""
    contents: dict[int, list[bytes]] = defaultdict(list)
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _LEN:
            size, begin = _varint(data, at)
            at = begin + size
            contents[key >> 3].append(data[begin:at])
        elif kind == _VARINT:
            _, at = _varint(data, at)
        elif kind in (_I64, _I32):
            at += 8 if kind == _I64 else 4
        else:
            raise ProtobufError("the answer is not a message of this API")
    if at > len(data):
        raise ProtobufError("the answer breaks off")
    return contents


def text(values: Sequence[bytes]) -> str:
    """Return a text field; the last value counts. Raises ProtobufError."""
    try:
        return values[-1].decode() if values else ""
    except UnicodeDecodeError:
        raise ProtobufError("the answer holds a text that is not UTF-8") from None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place after it."""
    value = 0
    for position, byte in enumerate(data[at : at + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return value, at + position + 1
    raise ProtobufError(
        "the answer breaks off"
        if len(data) - at < _LONGEST_VARINT
        else "the answer holds no number"
    )


class PodContainer(Struct, frozen=True, order=True):
    """A container's names in Kubernetes; foreign text, cleaned where shown."""

    namespace: str
    pod: str
    container: str


USUAL_PATH = "/var/lib/kubelet/pod-resources/kubelet.sock"
METHOD = "/v1.PodResourcesLister/List"
EVERY_S = 10.0
TIMEOUT_S = 5.0
STALE_S = 60.0
"""An answer older than this no longer counts."""
MOST_BYTES = 4 << 20
Pods = Mapping[str, Sequence[PodContainer]]
"""UUID of a GPU or MIG instance → the containers that it was given to."""


def parse(answer: bytes) -> Pods:
    """The containers by device of a ListPodResourcesResponse. Raises ProtobufError for anything else."""
    by_device: dict[str, set[PodContainer]] = defaultdict(set)
    for pod in map(message, message(answer)[1]):
        for container in map(message, pod[3]):
            named = PodContainer(text(pod[2]), text(pod[1]), text(container[1]))
            for device in (device for devices in container[2] for device in message(devices)[2]):
                by_device[text([device]).partition("::")[0]].add(named)
    return {uuid: sorted(sharing) for uuid, sharing in by_device.items()}


class PodResources:
    """Asks a kubelet regularly. ``newest`` may be called from any thread and never waits."""

    def __init__(
        self, path: str, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``say`` gets a failure once. Raises UsageError for a path that is no kubelet's socket."""
        if find_spec("grpc") is None:
            raise UsageError(f"--pod-resources needs grpcio: {install('export')}")
        try:
            is_socket = stat.S_ISSOCK(os.stat(path).st_mode)
        except OSError as error:
            raise UsageError(
                f"--pod-resources {path}: {error.strerror}; the kubelet's is {USUAL_PATH}"
            ) from None
        if not is_socket:
            raise UsageError(
                f"--pod-resources {path} is not a socket; the kubelet's is {USUAL_PATH}"
            )
        self._path, self._say, self._clock = path, say, clock
        self._pods: Pods = {}
        self._at = float("-inf")
        self._last_reason = ""
        self._worker = Worker("pod-resources", self.ask, again=EVERY_S)

    def start(self) -> None:
        """Ask from now on."""
        self._worker.ask()

    def close(self) -> None:
        """Stop asking; a request under way is left to its timeout."""
        self._worker.stop(0.2)

    def newest(self) -> Pods:
        """Return the kubelet's last answer; nothing where it is too old."""
        return self._pods if self._clock() - self._at < STALE_S else {}

    def ask(self) -> None:
        """Ask once, and keep the answer or report why there is none."""
        try:
            self._pods, self._at, self._last_reason = parse(_listed(self._path)), self._clock(), ""
        except Exception as error:  # noqa: BLE001 — whatever it is, it is said
            is_usual = isinstance(error, OSError | ProtobufError)
            reason = clean_text(str(error) if is_usual else f"{type(error).__name__}: {error}")[
                :120
            ]
            if reason != self._last_reason:
                self._last_reason = reason
                self._say(f"--pod-resources {self._path}: {reason}; retrying every {EVERY_S:.0f} s")


def _listed(path: str) -> bytes:
    """The answer as it came. Raises OSError."""
    # Otherwise gRPC's core writes to stderr, over whatever the terminal shows.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    import grpc

    options = [
        ("grpc.max_receive_message_length", MOST_BYTES),
        # The default is the percent-encoded path, which servers written in Go refuse as an authority.
        ("grpc.default_authority", "localhost"),
        ("grpc.enable_http_proxy", 0),
    ]
    try:
        with grpc.insecure_channel(f"unix:{os.path.abspath(path)}", options) as channel:
            answer: Any = channel.unary_unary(METHOD)(b"", timeout=TIMEOUT_S)
            return bytes(answer)
    except grpc.RpcError as error:
        code = getattr(error, "code", lambda: None)()
        raise OSError(
            f"the kubelet does not answer ({'no status' if code is None else code.name})"
        ) from None


def pod_family(
    newest: Callable[[], Pods], page: TextPage, gpus: Sequence[GpuSample], hostname: str
) -> None:
    """Add ``gputop_pod_info``: the pods of these GPUs, whether or not anything runs in them."""
    pods = newest()
    samples = [
        (f"{gpu_labels(gpu.static)},{named}", 1.0)
        for gpu in gpus
        # Long names may become equal once they are cut, and a duplicate sample spoils the whole scrape.
        for named in dict.fromkeys(map(_named, pods.get(gpu.static.uuid, ())))
    ]
    page.family("gputop_pod_info", "The pods that the kubelet gave a GPU to", samples)


def _named(container: PodContainer) -> str:
    # As OpenTelemetry names them; ``pod``, ``namespace`` and ``container`` are labels that a scrape gives its targets.
    return labels(
        ("k8s_namespace_name", container.namespace),
        ("k8s_pod_name", container.pod),
        ("k8s_container_name", container.container),
    )
