"""One look at what a thread does: its wait channel, and where that says too little, what proves a network or a disk.

Everything is read from the kernel's memory: the state, the system call with its first argument, the link of that
descriptor. Nothing of the process's files is touched.
"""

from __future__ import annotations

from msgspec import Struct

from gputop.sources.processes.inet_sockets import SAVING, InetSockets, inode_in, target_of, waited_call
from gputop.sources.processes.mounts import Mounts
from gputop.sources.processes.wait_channel import is_stopped, may_be_disk, needs_proof, wait_class, writes_a_pipe
from gputop.sources.procfs import ProcessFiles, parse_stat, read_small

RAN, BLOCKED, WRITE, STOPPED = "run", "blocked", "write", "stopped"
"""What a look finds besides the classes of ``wait_class``: on a core or queued, state D of no known class, the reader
of a full pipe, a signal."""


HOLDS_S = 2.0
"""For so long a thread that sleeps in the same function is taken to wait for the same file."""
MOST_KNOWN = 4096


class Seen(Struct, frozen=True):
    """A thread at one look. ``pipe`` is the inode of the pipe that it reads, ``fifo`` whether that has a name.

    ``mount`` is where the file system is mounted on which it waits, if that is networked.
    """

    wait: str
    channel: str = ""
    pipe: int | None = None
    fifo: bool = False
    mount: str | None = None
    socket: int | None = None
    saves: bool = False
    """Whether it is a file's writing, or the end of that, for which it waits."""

    @property
    def needs_more(self) -> bool:
        """Whether the same wait channel may stand for something else at the next look."""
        return self.wait in ("pipe", "socket", "other", BLOCKED) or self.socket is not None or self.mount is not None


SEEN_RUNNING = Seen(RAN)
_WORDS = {WRITE: "queue", BLOCKED: "other", "socket": "other", STOPPED: "other"}


def word_of(wait: str) -> str:
    """The class as ``waiting_on`` gives it: queue, network, pipe, disk, sleep, lock, gpu or other."""
    return _WORDS.get(wait, wait)


class WaitLook:
    """Looks at threads. Used by one thread at a time."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._inet = InetSockets(proc)
        self._mounts = Mounts(proc)
        self._known: dict[str, tuple[float, Seen]] = {}
        """By the thread's folder: which socket, pipe or mount it was last found to wait for."""

    def at(self, now: float, pid: int, folder: str, channel: str, files: ProcessFiles | None = None) -> Seen:
        """What a thread with this wait channel does. ``folder`` is its own below /proc, ``files`` its open files.

        ``now`` is in monotonic seconds. A class of an older kernel that needs no proof is taken at its word.
        """
        wait = wait_class(channel)
        if wait is None:
            return SEEN_RUNNING
        known = self._known.get(folder)
        if known is not None and known[1].channel == channel and 0.0 <= now - known[0] < HOLDS_S:
            return known[1]
        return self._afresh(now, pid, folder, channel, wait, files)

    def pipe_now(self, now: float, pid: int, folder: str, channel: str) -> Seen:
        """What a thread that was found to read a pipe reads now: a process that starts children has a new one each."""
        return self._afresh(now, pid, folder, channel, "pipe", None)

    def _afresh(self, now: float, pid: int, folder: str, channel: str, wait: str, files: ProcessFiles | None) -> Seen:
        seen = self._ask(now, pid, folder, channel, wait, files)
        if seen.socket is not None or seen.pipe is not None or seen.mount is not None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[folder] = now, seen
        return seen

    def _ask(self, now: float, pid: int, folder: str, channel: str, wait: str, files: ProcessFiles | None) -> Seen:
        if writes_a_pipe(channel):
            return Seen(WRITE, channel)
        if is_stopped(channel):
            return Seen(STOPPED, channel)
        if needs_proof(channel):
            return self._in_a_socket(now, pid, folder, channel)
        if wait == "pipe":
            return self._in_a_pipe(pid, folder, channel)
        if wait in ("disk", "network"):
            return self._on_a_mount(now, pid, folder, channel, wait)
        if wait == "other" and may_be_disk(channel):
            return self._unknown(now, pid, folder, channel, files)
        return Seen(wait, channel)

    def _in_a_socket(self, now: float, pid: int, folder: str, channel: str) -> Seen:
        call = waited_call(folder)
        if call is None:
            return Seen("socket", channel)
        inode = inode_in(target_of(self._proc, pid, call[1]), "socket")
        is_inet = False if inode is None else self._inet.has(now, pid, inode)
        if is_inet is None:
            return Seen("socket", channel)
        return Seen("network" if is_inet else "other", channel, socket=inode)

    def _in_a_pipe(self, pid: int, folder: str, channel: str) -> Seen:
        call = waited_call(folder)
        if call is None:
            return Seen("pipe", channel)
        target = target_of(self._proc, pid, call[1])
        return Seen("pipe", channel, pipe=inode_in(target, "pipe"), fifo=target.startswith("/"))

    def _on_a_mount(self, now: float, pid: int, folder: str, channel: str, wait: str) -> Seen:
        """A page that a networked file system reads is waited for as one of a disk is."""
        call = waited_call(folder)
        if call is None:
            return Seen(wait, channel)
        mount = self._mounts.of(now, pid, call[1])
        saves = call[0] in SAVING
        if mount is None or not mount.is_networked:
            return Seen(wait, channel, saves=saves and wait != "network")
        return Seen("network", channel, mount=mount.path, saves=saves)

    def _unknown(self, now: float, pid: int, folder: str, channel: str, files: ProcessFiles | None) -> Seen:
        try:
            stat = parse_stat(read_small(f"{folder}/stat") if files is None else files.read("stat"))
        except OSError:
            stat = None
        if stat is None or stat.state != "D":
            return Seen("other", channel)
        seen = self._on_a_mount(now, pid, folder, channel, BLOCKED)
        if seen.wait == BLOCKED and self._somebody_waits_for_io():
            return Seen("disk", channel, saves=seen.saves)
        return seen

    def _somebody_waits_for_io(self) -> bool:
        """Whether a task of this machine sleeps for block I/O at this moment: ``procs_blocked`` of /proc/stat."""
        try:
            text = read_small(f"{self._proc}/stat", 1 << 20)
            return int(text[text.index(b"procs_blocked") + 13 :].split(None, 1)[0]) > 0
        except (OSError, ValueError, IndexError):
            return False
