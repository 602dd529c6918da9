"""A file system in user space with one file on it, whose server can be stopped: whoever reads then hangs.

The server is a process of its own, which speaks the kernel's protocol (linux/fuse.h) for the few requests that one
file takes. Its end closes /dev/fuse, which aborts the connection and wakes whoever hangs.
"""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

NAME, SIZE = "data.bin", 1 << 30
_IN = struct.Struct("=IIQQIIII")
_OUT = struct.Struct("=IiQ")
_ATTR = struct.Struct("=QQQQQQIIIIIIIIII")
_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _RELEASE, _INIT, _OPENDIR, _READDIR = (
    1,
    2,
    3,
    14,
    15,
    18,
    26,
    27,
    28,
)
_FLUSH, _RELEASEDIR, _BATCH_FORGET = 25, 29, 42
_NO_SUCH_FILE, _NOT_THERE = -2, -38
_DETACH = 2


def why_not() -> str | None:
    """Why no file system in user space can be mounted here; None where one can."""
    if os.geteuid() != 0:
        return "only root can mount"
    return None if os.access("/dev/fuse", os.R_OK | os.W_OK) else "there is no /dev/fuse"


class HungMount:
    """Mounted while it is used in a ``with`` statement; unmounted and aborted in any case."""

    def __init__(self, folder: Path, delay_s: float = 0.0) -> None:
        """``delay_s`` is how long each read takes."""
        self.folder = folder
        self._delay_s = delay_s
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def file(self) -> Path:
        return self.folder / NAME

    def __enter__(self) -> HungMount:
        self.folder.mkdir(exist_ok=True)
        device = os.open("/dev/fuse", os.O_RDWR)
        try:
            options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
            library = ctypes.CDLL(None, use_errno=True)
            if library.mount(b"slow", os.fsencode(self.folder), b"fuse", 0, options) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.support.hung_mount", str(device), str(self._delay_s)],
                pass_fds=(device,),
            )
        finally:
            os.close(device)
        return self

    def stop(self) -> None:
        """Stop the server: from now on nothing on the mount answers."""
        assert self._server is not None
        self._server.send_signal(signal.SIGSTOP)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()
        ctypes.CDLL(None).umount2(os.fsencode(self.folder), _DETACH)


def serve(device: int, delay_s: float) -> None:
    """Answer the kernel until the mount is gone."""
    while True:
        try:
            request = os.read(device, 1 << 18)
        except OSError:
            return
        length, code, unique, node, *_ = _IN.unpack_from(request)
        answer = _answer(code, node, request[_IN.size : length], delay_s)
        if answer is None:
            continue
        error, data = answer if isinstance(answer, tuple) else (0, answer)
        try:
            os.write(device, _OUT.pack(_OUT.size + len(data), error, unique) + data)
        except OSError:
            return


def _answer(code: int, node: int, body: bytes, delay_s: float) -> bytes | tuple[int, bytes] | None:
    if code in (_FORGET, _BATCH_FORGET):
        return None
    if code == _INIT:
        # Protocol 7.31, no read ahead, no options, background requests, writes of a page.
        return struct.pack("=IIIIHHIIHHI28x", 7, 31, 0, 0, 16, 12, 4096, 1, 0, 0, 0)
    if code == _LOOKUP:
        if body.rstrip(b"\0") != NAME.encode():
            return _NO_SUCH_FILE, b""
        return struct.pack("=QQQQII", 2, 0, 0, 0, 0, 0) + _attributes(2)
    if code == _GETATTR:
        return struct.pack("=QII", 0, 0, 0) + _attributes(node)
    if code in (_OPEN, _OPENDIR):
        # Direct: every read is asked of the server.
        return struct.pack("=QII", 0, 1, 0)
    if code == _READ:
        _, _, size = struct.unpack_from("=QQI", body)
        time.sleep(delay_s)
        return bytes(size)
    if code in (_READDIR, _RELEASE, _RELEASEDIR, _FLUSH):
        return b""
    return _NOT_THERE, b""


def _attributes(node: int) -> bytes:
    kind, size = (stat.S_IFDIR | 0o755, 0) if node == 1 else (stat.S_IFREG | 0o644, SIZE)
    return _ATTR.pack(node, size, size // 512, 0, 0, 0, 0, 0, 0, kind, 1, 0, 0, 0, 4096, 0)


if __name__ == "__main__":
    serve(int(sys.argv[1]), float(sys.argv[2]))
